"""Assignment of requested names: each to one owner, in one zone, with valid records.

The oldest requester keeps a name; each refused one gets a reason, in a sentence. Not here: the source of requests
(`planning.names`), and updates of a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from msgspec import Struct, field

from locallb.dns.updates import marker_fault
from locallb.dns.zones import DnsSettings, Zone, is_wildcard, name_fault, normal, zone_of
from locallb.model.identities import ClusterName, IPAddress, ObjectKey
from locallb.model.texts import clipped, shown

MAX_TTL = 7 * 24 * 3600
"""Maximum TTL in seconds: a greater one is a mistaken unit."""


MAX_OF_OBJECT, MAX_OF_CLUSTER = 1_000, 10_000
"""Maximum names of one object, and of a cluster, in zones of servers with updates for each name."""
MAX_TARGETS = 32
"""Addresses of one name, which all are to fit into one datagram."""


class Name(Struct, frozen=True):
    """A name that is given: the addresses that it stands for or, in their place, another name."""

    name: str
    zone: Zone
    ttl: int
    addresses: tuple[IPAddress, ...] = ()
    alias: str = ""

    @property
    def records(self) -> Mapping[str, tuple[str, ...]]:
        """Return the values of its records by their type."""
        if self.alias:
            return {"CNAME": (f"{self.alias}.",)}
        return {
            kind: tuple(str(address) for address in self.addresses if address.version == version)
            for kind, version in (("A", 4), ("AAAA", 6))
            if any(address.version == version for address in self.addresses)
        }

    def __str__(self) -> str:
        return f"{self.name} {self.alias or ' '.join(map(str, self.addresses))}"


class NameRequest(Struct, frozen=True):
    """Names that one object asks for, all with the same targets."""

    key: ObjectKey | None
    """Owner of the records; None for the stack's own."""
    names: tuple[str, ...]
    targets: tuple[str, ...]
    ttl: int
    strict: bool = True
    """Explain that a name is in no zone; some have names that others answer for."""
    zone: Zone | None = None
    """The zone with the server that answers for them; None for the one in which each lies."""

    @property
    def owned_by(self) -> str:
        """Return how a sentence names the owner."""
        return str(self.key) if self.key else "local-lb:dns.records"


class Refusal(Struct, frozen=True):
    """A name that its owner doesn't get."""

    key: ObjectKey | None
    message: str


class Names(Struct, frozen=True):
    """What is given to whom, and what isn't."""

    given: Mapping[ObjectKey | None, tuple[Name, ...]]
    refused: tuple[Refusal, ...]


def assign(wishes: Iterable[NameRequest], settings: DnsSettings) -> Names:
    """Assign names to `wishes`, which come in the order in which they go: the stack's own, then those of the oldest."""
    given: dict[str, tuple[NameRequest, Name]] = {}
    refused, room = [], _Room()
    for wish in wishes:
        for name in dict.fromkeys(normal(text) for text in wish.names):
            made = _name(name, wish, settings.zones)
            if isinstance(made, Name):
                first = given[name][0] if name in given else None
                if first:
                    made = "" if first.key == wish.key else _claimed(name, first)
                elif room.takes(made, wish):
                    given[name] = wish, made
            if isinstance(made, str) and made:
                refused.append(Refusal(wish.key, f"{wish.owned_by}: {made}"))
    refused += room.refusals()
    by_owner: dict[ObjectKey | None, list[Name]] = {}
    for wish, made in given.values():
        by_owner.setdefault(wish.key, []).append(made)
    return Names(
        {key: tuple(sorted(names, key=lambda name: name.name)) for key, names in by_owner.items()}, tuple(refused)
    )


class _Room(Struct):
    """Limits the names that servers get, so that no owner's objects flood them."""

    _claimed: Counter[ObjectKey | ClusterName] = field(default_factory=Counter)
    _left_out: Counter[ObjectKey] = field(default_factory=Counter)

    def takes(self, name: Name, wish: NameRequest) -> bool:
        key = wish.key
        if key is None or not name.zone.updated:
            return True
        if self._claimed[key] >= MAX_OF_OBJECT or self._claimed[key.cluster] >= MAX_OF_CLUSTER:
            self._left_out[key] += 1
            return False
        self._claimed.update((key, key.cluster))
        return True

    def refusals(self) -> Iterator[Refusal]:
        """Return who didn't get all names for want of room."""
        for key, count in self._left_out.items():
            sentence = (
                f"{key}: {count} names aren't given: servers that take updates are told of at most {MAX_OF_OBJECT}"
            )
            yield Refusal(
                key, f"{sentence} of an object and {MAX_OF_CLUSTER} of a cluster; use wildcards, or fewer names"
            )


def _name(name: str, wish: NameRequest, zones: Sequence[Zone]) -> Name | str:
    """Return the name with its records, or the reason of its refusal; empty for one that isn't reported."""
    if fault := name_fault(name):
        return f"{shown(name)} can't be a name: {fault}"
    zone = wish.zone or zone_of(name, zones)
    if zone is None:
        listed = ", ".join(configured.name for configured in zones)
        return f"the name {name} is in no zone of this stack ({listed}); choose one below it" if wish.strict else ""
    made = _with_targets(name, zone, wish)
    return (isinstance(made, Name) and _unanswerable(made)) or made


def _with_targets(name: str, zone: Zone, wish: NameRequest) -> Name | str:
    if len(wish.targets) > MAX_TARGETS:
        return f"the name {name} has {len(wish.targets)} targets; give at most {MAX_TARGETS} addresses"
    addresses = tuple(address for text in wish.targets if (address := _address(text)))
    others = [normal(text) for text in wish.targets if not _address(text)]
    if not others:
        return Name(name, zone, wish.ttl, addresses)
    if addresses or len(others) > 1:
        return f"the name {name} has the targets {clipped(', '.join(wish.targets))}; give addresses, or one other name"
    if fault := name_fault(others[0]):
        return f"the name {name} can't lead to {shown(others[0])}: {fault}"
    return Name(name, zone, wish.ttl, alias=others[0])


def _unanswerable(made: Name) -> str:
    """Return what the zone's server can't have; empty if it can."""
    if made.zone.updated:
        return marker_fault(made.name, made.zone.name)
    if made.alias:
        return f"the name {made.name} leads to {made.alias}, which the embedded server can't say; give addresses"
    if is_wildcard(made.name) and made.name.count(".") == 1:
        below = f"a wildcard below {made.zone.name}, such as *.apps.{made.zone.name}"
        return f"the embedded server doesn't answer for {made.name}; use {below}"
    return ""


def _claimed(name: str, first: NameRequest) -> str:
    owned_by = f"that of {first.key}, which is older" if first.key else f"one of {first.owned_by}"
    return f"the name {name} is {owned_by}; choose another one"


def _address(text: str) -> IPAddress | None:
    try:
        return None if "%" in text else ip_address(text.strip())
    except ValueError:
        return None


def ttl_of(text: str) -> int | None:
    """Read a TTL: seconds, or a duration such as `5m`; None if it is neither."""
    units = {"s": 1, "m": 60, "h": 3600}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "s")
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(MAX_TTL)):
        return None
    seconds = int(number) * units[unit]
    return seconds if 0 < seconds <= MAX_TTL else None
