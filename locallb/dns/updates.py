"""Updates (RFC 2136) of names in a zone that is shared with other owners, and the markers of ownership. Pure.

Each record set of ours has a marker in the format of external-dns: a TXT record with a name that begins with the type
(`a-web.lab.example`) and a text with the owning stack and object. A record set without our marker is foreign and never
changed.

Prerequisites make the server verify the state that was read: our markers are unchanged, and where we have none, no such
records exist.

Not here: queries and messages (`rfc2136`), and the records of each name (`records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from locallb.model.identities import Home, ObjectKey, OwnerId, ZoneName
from locallb.model.texts import digest

TYPES = ("A", "AAAA", "CNAME")
"""Types of records that are ever ours."""
_HERITAGE = "heritage=external-dns"
_PREFIX = "external-dns/"
_DIGITS = 12


def marker_name(name: str, kind: str) -> str:
    """Return the name of the marker of a record set."""
    return f"{kind.lower()}-{name}"


def marker_fault(name: str, zone: ZoneName) -> str:
    """Return why a name can't have markers; empty if it can."""
    if name == zone:
        return f"{name} is the zone itself, whose records are its server's own; choose a name below it"
    longest = 63 - len(marker_name("", "CNAME"))
    if len(name.partition(".")[0]) > longest or len(name) > 253 - len(marker_name("", "CNAME")):
        return f"{name} leaves no room for the mark of its owner; use at most {longest} characters before the first dot"
    return ""


class Marker(Struct, frozen=True):
    """Owner of a record set."""

    owner: OwnerId
    """Which stack, in one word."""
    resource: str
    """Which object of it."""

    @classmethod
    def of(cls, owner: OwnerId, key: ObjectKey) -> Marker:
        """Mark what an object of a stack has."""
        kind = key.kind.removesuffix("s")
        return cls(owner, f"{kind}/{key.cluster}/{key.namespace}/{key.name}")

    @classmethod
    def parse(cls, text: str) -> Marker | None:
        """Read what anybody wrote; None where it is no marker."""
        heritage, *labels = text.strip('"').split(",")
        if heritage != _HERITAGE:
            return None
        existing = dict(
            label.removeprefix(_PREFIX).partition("=")[::2] for label in labels if label.startswith(_PREFIX)
        )
        return cls(OwnerId(existing.get("owner", "")), existing.get("resource", ""))

    def __str__(self) -> str:
        return f"{_HERITAGE},{_PREFIX}owner={self.owner},{_PREFIX}resource={self.resource}"


def early_owner_id(home: Home) -> OwnerId:
    """Return how the markers of a stack name it that has no id of its own."""
    return OwnerId(f"local-lb-{digest([home.project, home.stack, home.root])[:_DIGITS]}")


_CLASSIC = ("A", "CNAME")
"""Types that external-dns' marks of old are about."""
UNMARKED = "somebody who left no mark"
Records = Mapping[str, tuple[str, ...]]
"""Values by type."""


class ServerAnswer(Struct, frozen=True):
    """What a server answers for a name. Whatever isn't ours may be a wildcard's."""

    records: Records
    markers: Mapping[str, tuple[str, ...]]
    """Texts of TXT records at the markers' names, by the type that they are about."""
    ttl: int = 0
    classic: tuple[str, ...] = ()
    """Texts of TXT records at the name itself, where external-dns has its marks of old; asked for where it matters."""

    def ours(self, owner: OwnerId) -> Mapping[str, Marker]:
        """Return the markers of a stack, by type."""
        parsed = {kind: Marker.parse(texts[0]) for kind, texts in self.markers.items() if len(texts) == 1}
        return {kind: marker for kind, marker in parsed.items() if marker and marker.owner == owner}

    def adopted(self, name: str, owner: OwnerId) -> Mapping[str, Set]:
        """Return the marks of another owner, by the type that they are about, as they stand there."""
        texts = {kind: texts for kind, texts in self.markers.items() if _is_of(texts, owner)}
        marks = {kind: Set(marker_name(name, kind), "TXT", text) for kind, text in texts.items()}
        if not _is_of(self.classic, owner):
            return marks
        unmarked = (kind for kind in _CLASSIC if kind in self.records and kind not in self.markers)
        return {**dict.fromkeys(unmarked, Set(name, "TXT", self.classic)), **marks}

    def having(self, marker: Marker) -> Mapping[str, Marker]:
        """Return the markers that are just this one, by type."""
        return {kind: existing for kind, existing in self.ours(marker.owner).items() if existing == marker}


def _is_of(texts: tuple[str, ...], owner: OwnerId) -> bool:
    marker = Marker.parse(texts[0]) if len(texts) == 1 else None
    return bool(owner) and marker is not None and marker.owner == owner


class Set(Struct, frozen=True):
    """A record set: its name, type and values."""

    name: str
    kind: str
    values: tuple[str, ...] = ()


class Update(Struct, frozen=True):
    """One message: all of it happens, or nothing."""

    present: tuple[Set, ...] = ()
    """Must be there, with these values."""
    absent: tuple[Set, ...] = ()
    """Must not be there."""
    put: tuple[Set, ...] = ()
    """Replace what is there."""
    removed: tuple[Set, ...] = ()


class Former(Struct, frozen=True):
    """Former owner of records that become ours."""

    marker: Marker | None = None
    """What we marked them with before."""
    owner: OwnerId = OwnerId("")
    """Another owner, from which all records of the name are taken over."""


ONLY_OURS = Former()


def putting(name: str, wanted: Records, marker: Marker, observed: ServerAnswer, former: Former = ONLY_OURS) -> Update:
    """Return how the name gets these records and no others of ours, among which are those of a `former` owner.

    A mark of somebody else's may be a wildcard's answer: whether it stands there only the server can tell.
    """
    ours = {**(observed.having(former.marker) if former.marker else {}), **observed.ours(marker.owner)}
    marks = {**observed.adopted(name, former.owner), **{kind: _mark(name, kind, ours[kind]) for kind in ours}}
    classic = (Set(name, "TXT", observed.classic),) if _is_of(observed.classic, former.owner) else ()
    free = tuple(kind for kind in TYPES if kind not in marks)
    # A CNAME where a mark is to be would make servers leave the mark out silently (RFC 2136, 3.4.2.2).
    unmarked = (kind for kind in wanted if kind in free or marks[kind].name == name)
    return Update(
        present=tuple(dict.fromkeys((*marks.values(), *classic))),
        absent=(
            *(Set(name, kind) for kind in free),
            *(Set(marker_name(name, kind), held) for kind in unmarked for held in ("TXT", "CNAME")),
        ),
        put=tuple(
            record_set
            for kind, values in wanted.items()
            for record_set in (Set(name, kind, values), Set(marker_name(name, kind), "TXT", (str(marker),)))
        ),
        removed=(
            *_sets(name, (kind for kind in marks if kind not in wanted and marks[kind].name != name)),
            *(Set(name, kind) for kind in marks if kind not in wanted and marks[kind].name == name),
            *(Set(name, "TXT") for _ in classic),
        ),
    )


def removing(name: str, marker: Marker, observed: ServerAnswer) -> Update | None:
    """Return how what this object has of the name goes; None where it has nothing any more."""
    ours = observed.having(marker)
    marks = tuple(_mark(name, kind, ours[kind]) for kind in ours)
    return Update(present=marks, removed=_sets(name, ours)) if ours else None


def _mark(name: str, kind: str, marker: Marker) -> Set:
    return Set(marker_name(name, kind), "TXT", (str(marker),))


def _sets(name: str, kinds: Iterable[str]) -> tuple[Set, ...]:
    return tuple(record_set for kind in kinds for record_set in (Set(name, kind), Set(marker_name(name, kind), "TXT")))


def holder(owner: OwnerId, observed: ServerAnswer) -> str:
    """Return the owner of records that the server protects from the stack; empty if none is seen."""
    marks = [texts for kind, texts in observed.markers.items() if kind not in observed.ours(owner)]
    marks += [observed.classic] if Marker.parse("".join(observed.classic)) else []
    marker = Marker.parse(marks[0][0]) if marks else None
    if marker:
        return f"{marker.resource or 'something'} of {marker.owner}"
    return UNMARKED if marks or observed.records.keys() - observed.ours(owner).keys() else ""
