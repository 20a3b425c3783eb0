"""The store of one informer: its objects, raw and parsed, and whether they may be stale.

Not here: threads, and requests (`kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from locallb.kubernetes.access.errors import ForbiddenError, KubeError, PermanentKubeError
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing.objects import Parsed
from locallb.kubernetes.parsing.relevant import Document

PASSING = 30.0
"""Seconds for which a right may be missing until what was read before counts no more."""


class Fault(Struct, frozen=True):
    """The reason that known objects may be old; empty if they are current."""

    sentence: str = ""
    error: type[KubeError] = KubeError

    def __bool__(self) -> bool:
        return bool(self.sentence)

    @property
    def is_refusal(self) -> bool:
        """Return whether it lasts until a user changes something, such as a right."""
        return issubclass(self.error, PermanentKubeError)

    def then(self, error: KubeError) -> Fault:
        """Return the fault after another error: an outage keeps its first sentence, whatever later attempts say."""
        return self if self and self.error is type(error) else Fault(str(error), type(error))


def lasting(reported: Fault, faults: Iterable[Fault]) -> Fault:
    """Return the fault to report: the same one for as long as any of its kind goes on, whichever ends first."""
    present = [fault for fault in faults if fault]
    if any(fault.error is reported.error for fault in present) and reported:
        return reported
    return present[0] if present else Fault()


class FollowedObjects(Struct):
    """Objects of one kind, as they are and as they are understood."""

    objects: dict[Identity, Document] = field(default_factory=dict)
    parsed: dict[Identity, Parsed] = field(default_factory=dict)
    listed: bool = False
    fault: Fault = field(default_factory=Fault)
    refused_since: float | None = None
    """When the right to read them was first missing; None while it isn't."""
    _order: tuple[Identity, ...] = ()

    def put(self, identity: Identity, document: Document | None, parsed: Parsed) -> None:
        """Store an object and its parse result; None removes it."""
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

    def fail(self, error: KubeError, now: float) -> bool:
        """Note why they can't be followed; return whether that may make a difference to readers."""
        before, self.fault = self.fault, self.fault.then(error)
        self.refused_since = (self.refused_since or now) if isinstance(error, ForbiddenError) else None
        return self.fault != before or self.is_forbidden(now)

    def mend(self) -> bool:
        """Note that they are followed; return whether they weren't."""
        was, self.fault, self.refused_since = bool(self.fault), Fault(), None
        return was

    def is_forbidden(self, now: float) -> bool:
        """Return whether they may not be read, and that is no passing whim of a server that has just started."""
        return self.refused_since is not None and (not self.listed or now - self.refused_since > PASSING)
