"""A cache of objects as last seen: by a watch, or in the answer to a patch.

A first guess before a write with a resourceVersion: an old one is refused as a conflict, and the object is read then.
While a watch is open, its last version also counts as a read of an object in the desired state; a different one is
read. It saves a request each time, and proves nothing else. Not here: requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, TypeAlias

from locallb.model.identities import ObjectKind
from locallb.model.snapshot import Access

_MAX_DIGITS = 40
Object: TypeAlias = Mapping[Any, Any]
"""As the API gives it."""


class Recent:
    """Objects by cluster, kind, namespace and name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._observed: dict[tuple[Access, ObjectKind], dict[tuple[str, str], Object]] = {}
        self._open: set[tuple[Access, ObjectKind]] = set()

    def note(
        self, access: Access, namespace: str, name: str, live: Object, kind: ObjectKind = ObjectKind.SERVICE
    ) -> None:
        """Store an object unless it is older: the answer to a patch may come after the watch's next event."""
        with self._lock:
            existing = self._observed.setdefault((access, kind), {})
            if not _is_older(live, existing.get((namespace, name))):
                existing[namespace, name] = live

    def drop(self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> None:
        with self._lock:
            self._observed.get((access, kind), {}).pop((namespace, name), None)

    def forget(self, access: Access, *kinds: ObjectKind) -> None:
        """Forget all that a cluster has, or has of these kinds."""
        with self._lock:
            for kind in kinds or ObjectKind:
                self._observed.pop((access, kind), None)
                self._open.discard((access, kind))

    def opened(self, access: Access, kind: ObjectKind = ObjectKind.SERVICE, *, is_open: bool) -> None:
        """Note whether a watch reports every change of a kind from now on."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)((access, kind))

    def find(self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE) -> Object | None:
        """Return the last known version of an object; None if it is unknown."""
        with self._lock:
            return self._observed.get((access, kind), {}).get((namespace, name))

    def watched(
        self, access: Access, namespace: str, name: str, kind: ObjectKind = ObjectKind.SERVICE
    ) -> Object | None:
        """Return the same while a watch is open; None while changes wouldn't be reported."""
        return self.find(access, namespace, name, kind) if (access, kind) in self._open else None


def _is_older(live: Object, existing: Object | None) -> bool:
    """Return whether `live` has a smaller resourceVersion; they grow (KEP-5504), and non-numeric ones never compare."""
    (uid, new), (last_uid, old) = _version(live), _version(existing or {})
    return uid == last_uid and new is not None and old is not None and new < old


def _version(item: Object) -> tuple[object, int | None]:
    metadata = item.get("metadata")
    if not isinstance(metadata, Mapping):
        return None, None
    text = str(metadata.get("resourceVersion"))
    return metadata.get("uid"), int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else None


RECENT = Recent()
"""Of this process."""
