"""Statuses that this user may not write: reported in one sentence for a cluster, and not tried for each object.

The first refusal of a kind counts for all its objects for a while, so that a thousand routes cost one request. Not
here: writing (`live_service`), and rights to read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from msgspec import Struct, field

from locallb.kubernetes.access.errors import ForbiddenError, KubeError
from locallb.model.identities import OF_INGRESSES, ObjectKind
from locallb.model.snapshot import Access

PAUSE = 60.0
"""Seconds until a kind with a refused status patch is retried."""


class _Refusals(Struct):
    """Refusals that one file of rights in one cluster would remedy."""

    sentence: str
    tried: dict[ObjectKind, float] = field(default_factory=dict)


class Unwritable:
    """Kinds with refused status patches. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._existing: dict[tuple[Access, str], _Refusals] = {}

    def why(self, access: Access, kind: ObjectKind) -> str:
        """Return why the status of this kind isn't even tried; empty if it is."""
        with self._lock:
            existing = self._existing.get((access, _rights(kind)))
            tried = existing.tried.get(kind) if existing else None
            return existing.sentence if existing and tried is not None and self._clock() < tried + PAUSE else ""

    def refused(self, access: Access, kind: ObjectKind) -> str:
        """Note a refusal; return the sentence, which is the same for all until none is refused any more."""
        rights = _rights(kind)
        with self._lock:
            sentence = (
                f"context {access.context}: this user may not patch {kind}/status, so nobody is told there what became"
                f" of objects that are served; give it the rights of {rights}"
            )
            existing = self._existing.setdefault((access, rights), _Refusals(sentence))
            existing.tried[kind] = self._clock()
            return existing.sentence

    def written(self, access: Access, kind: ObjectKind) -> None:
        """Note that it may be written."""
        with self._lock:
            place = access, _rights(kind)
            if existing := self._existing.get(place):
                existing.tried.pop(kind, None)
                if not existing.tried:
                    del self._existing[place]


def _rights(kind: ObjectKind) -> str:
    return f"deploy/rbac-{'ingresses' if kind in OF_INGRESSES else 'gateways'}.yaml"


def lacks_right(error: KubeError) -> bool:
    """Return whether a right is missing; an admission webhook that refuses one object gives another message."""
    return isinstance(error, ForbiddenError) and "cannot patch resource" in str(error)


UNWRITABLE = Unwritable()
"""Of this process."""
