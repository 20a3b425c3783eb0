"""Services as this process was told of them last, by a watch or as the answer to a patch.

A first guess for whoever is about to write over a resourceVersion: one that is old is refused as a conflict, and read
then. While a watch is open, what it told last also counts as a look at a Service that is as it shall be; one that
differs is read. It saves a request each time, and proves nothing else. Not here: who asks the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, TypeAlias

from locallb.model.identities import ObjectKind
from locallb.model.snapshot import Access

Service: TypeAlias = Mapping[Any, Any]
"""As the API gives it."""


def recent_name(name: str, kind: ObjectKind) -> str:
    """Return the name under which an object of a kind is kept; a slash is in no name."""
    return name if kind is ObjectKind.SERVICE else f"{kind}/{name}"


class Recent:
    """Objects by cluster, namespace and name. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: dict[Access, dict[tuple[str, str], Service]] = {}
        self._open: set[Access] = set()

    def note(self, access: Access, namespace: str, name: str, service: Service) -> None:
        """Take one over."""
        with self._lock:
            self._seen.setdefault(access, {})[namespace, name] = service

    def drop(self, access: Access, namespace: str, name: str) -> None:
        """Forget one that is gone."""
        with self._lock:
            self._seen.get(access, {}).pop((namespace, name), None)

    def forget(self, access: Access) -> None:
        """Forget a cluster."""
        with self._lock:
            self._seen.pop(access, None)
            self._open.discard(access)

    def opened(self, access: Access, *, is_open: bool) -> None:
        """Note whether a watch tells of every change from now on."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)(access)

    def find(self, access: Access, namespace: str, name: str) -> Service | None:
        """Return a Service as it was told last; None if nobody told of it."""
        with self._lock:
            return self._seen.get(access, {}).get((namespace, name))

    def watched(self, access: Access, namespace: str, name: str) -> Service | None:
        """Return the same while a watch is open; None while nobody would tell of a change."""
        return self.find(access, namespace, name) if access in self._open else None


RECENT = Recent()
"""Of this process."""
