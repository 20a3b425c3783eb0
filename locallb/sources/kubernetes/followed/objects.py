"""The store of one informer: its objects, raw and parsed, and whether they may be stale.

Not here: threads, and what asks for them (`kinds`).
"""

from __future__ import annotations

from msgspec import Struct, field

from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing.objects import Parsed
from locallb.kubernetes.parsing.relevant import Document

PASSING = 30.0
"""Seconds for which a right may be missing until what was read before counts no more."""


class FollowedObjects(Struct):
    """Objects of one kind, as they are and as they are understood."""

    objects: dict[Identity, Document] = field(default_factory=dict)
    parsed: dict[Identity, Parsed] = field(default_factory=dict)
    listed: bool = False
    broken: str = ""
    """Why what is known may be old."""
    refused_since: float | None = None
    """When the right to read them was first missing; None while it isn't."""
    _order: tuple[Identity, ...] = ()

    def put(self, identity: Identity, document: Document | None, parsed: Parsed) -> None:
        """Take over what an object is now and what that means; None: it is gone."""
        if document is None:
            self.objects.pop(identity, None)
            self.parsed.pop(identity, None)
        else:
            self.objects[identity], self.parsed[identity] = document, parsed

    def order(self) -> tuple[Identity, ...]:
        """Return the objects' names, sorted."""
        if len(self._order) != len(self.parsed) or any(identity not in self.parsed for identity in self._order):
            self._order = tuple(sorted(self.parsed))
        return self._order

    def fail(self, why: str, now: float, *, forbidden: bool) -> bool:
        """Note why they can't be followed; return whether that may make a difference to readers."""
        was, self.broken = bool(self.broken), why
        self.refused_since = (self.refused_since or now) if forbidden else None
        return not was or self.is_forbidden(now)

    def mend(self) -> bool:
        """Note that they are followed; return whether they weren't."""
        was, self.broken, self.refused_since = bool(self.broken), "", None
        return was

    def is_forbidden(self, now: float) -> bool:
        """Return whether they may not be read, and that is no passing whim of a server that has just started."""
        return self.refused_since is not None and (not self.listed or now - self.refused_since > PASSING)
