"""What one UPDATE (RFC 2136) says so that a name becomes what is wanted and nothing of anybody else is touched. Pure.

Prerequisites hold what was seen until the server acts: markers of ours are as they were read, and where we have none,
nobody has such records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from locallb.dns.markers import TYPES, Marker, marker_name

NOBODY = "somebody who left no mark"
Records = Mapping[str, tuple[str, ...]]
"""Values by type."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server answers for a name. Whatever isn't ours may be a wildcard's."""

    records: Records
    markers: Mapping[str, tuple[str, ...]]
    """Texts of TXT records at the markers' names, by the type that they are about."""
    ttl: int = 0

    def ours(self, owner: str) -> Mapping[str, Marker]:
        """Return the markers of a stack, by type."""
        parsed = {kind: Marker.parse(texts[0]) for kind, texts in self.markers.items() if len(texts) == 1}
        return {kind: marker for kind, marker in parsed.items() if marker and marker.owner == owner}

    def having(self, marker: Marker) -> Mapping[str, Marker]:
        """Return the markers that are just this one, by type."""
        return {kind: known for kind, known in self.ours(marker.owner).items() if known == marker}


@dataclass(frozen=True, slots=True)
class Set:
    """A record set: its name, type and values."""

    name: str
    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """One message: all of it happens, or nothing."""

    present: tuple[Set, ...] = ()
    """Must be there, with these values."""
    absent: tuple[Set, ...] = ()
    """Must not be there."""
    put: tuple[Set, ...] = ()
    """Replace what is there."""
    gone: tuple[Set, ...] = ()


def putting(name: str, wanted: Records, marker: Marker, seen: Seen, before: Marker | None = None) -> Update:
    """Return how the name gets these records and no others of ours, among which are those marked as `before`.

    A mark of somebody else's may be a wildcard's answer: whether it stands there only the server can tell.
    """
    ours = {**(seen.having(before) if before else {}), **seen.ours(marker.owner)}
    # A CNAME where a mark is to be would make servers leave the mark out silently (RFC 2136, 3.4.2.2).
    free = tuple(kind for kind in TYPES if kind not in ours)
    return Update(
        present=_marked(name, ours),
        absent=(
            *(Set(name, kind) for kind in free),
            *(Set(marker_name(name, kind), held) for kind in free if kind in wanted for held in ("TXT", "CNAME")),
        ),
        put=tuple(
            each
            for kind, values in wanted.items()
            for each in (Set(name, kind, values), Set(marker_name(name, kind), "TXT", (str(marker),)))
        ),
        gone=_sets(name, (kind for kind in ours if kind not in wanted)),
    )


def removing(name: str, marker: Marker, seen: Seen) -> Update | None:
    """Return how what this object has of the name goes; None where it has nothing any more."""
    ours = seen.having(marker)
    return Update(present=_marked(name, ours), gone=_sets(name, ours)) if ours else None


def _marked(name: str, ours: Mapping[str, Marker]) -> tuple[Set, ...]:
    return tuple(Set(marker_name(name, kind), "TXT", (str(marker),)) for kind, marker in ours.items())


def _sets(name: str, kinds: Iterable[str]) -> tuple[Set, ...]:
    return tuple(each for kind in kinds for each in (Set(name, kind), Set(marker_name(name, kind), "TXT")))


def holder(owner: str, seen: Seen) -> str:
    """Return who has what isn't a stack's, of a name that the server doesn't let it change; empty if nobody is seen."""
    marks = [texts for kind, texts in seen.markers.items() if kind not in seen.ours(owner)]
    marker = Marker.parse(marks[0][0]) if marks else None
    if marker:
        return f"{marker.resource or 'something'} of {marker.owner}"
    return NOBODY if marks or seen.records.keys() - seen.ours(owner).keys() else ""
