"""The current holder of each address: by the ledger, this stack's own state, the status of Services, a pin or the host.

A holder is a Service of this stack, several Services that share the address, a pin of the configuration, or a foreign
one. Each decides which Services it admits, and explains refusals. An address has at most one holder, and only its
holder may get it in this plan. So a holder never loses an address to another request, and the address of a removed
Service is reused only after its release: its data plane may still stand.

Not here: whether a holder keeps its address, because a pool may have changed, and which of several candidates gets it
(`allocation`); the syntax of pins (`config/parsing`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Protocol as Interface

from msgspec import Struct

from locallb.model.identities import Home, IPAddress, ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Claim, Snapshot


class AddressHolder(Interface):
    """A holder of an address."""

    def admits(self, service: Service) -> bool:
        """Return whether `service` may get the address, as far as its holder goes."""

    def __str__(self) -> str:
        """Return it as the rest of a sentence that begins with "which"."""


class ByService(Struct, frozen=True):
    """Held by a Service of this stack, or listed in the status of any Service."""

    key: ObjectKey
    why: str = "belongs to"

    def admits(self, service: Service) -> bool:
        """Admit this very Service, whatever its uid."""
        return service.key == self.key

    def __str__(self) -> str:
        return f"{self.why} Service {self.key}"


class ByGroup(Struct, frozen=True):
    """Held by Services of this stack with one sharing key, the oldest first."""

    members: tuple[Service, ...]
    leaving: bool = False
    """Another holder hasn't released it: its data plane may still stand, so none joins."""

    @property
    def sharing_key(self) -> str:
        """The sharing key that they have in common."""
        return self.members[0].sharing_key

    def admits(self, service: Service) -> bool:
        """Admit members, and who has the same key."""
        return service in self.members or (service.sharing_key == self.sharing_key and not self.leaving)

    def stronger(self, service: Service) -> tuple[Service, ...]:
        """Return the members with a stronger hold than `service`: older ones, or all if it holds nothing."""
        return self.members[: self.members.index(service)] if service in self.members else self.members

    def __str__(self) -> str:
        return f"is shared by {', '.join(str(member.key) for member in self.members)}"


def may_share(service: Service, other: Service) -> bool:
    """Return whether two Services may have one address: one key, no port in common, the same traffic policy."""
    return (
        bool(service.sharing_key)
        and service.sharing_key == other.sharing_key
        and service.traffic_policy is other.traffic_policy
        and not {(port.port, port.protocol) for port in service.ports}
        & {(port.port, port.protocol) for port in other.ports}
    )


class ByPin(Struct, frozen=True):
    """Kept free by the configuration for Services of one name or pattern, in whichever cluster they are."""

    service: str
    """`<namespace>/<name>`, either with `*`."""
    pins: Pins

    def admits(self, service: Service) -> bool:
        return self.pins.of(service.key) == self.service

    def __str__(self) -> str:
        return f"is pinned to {self.service}"


class ByOther(Struct, frozen=True):
    """Held by what no plan of this stack can move: another stack, a process, a Node."""

    why: str

    def admits(self, _service: Service) -> bool:
        return False

    def __str__(self) -> str:
        return self.why


ANY = "*"
"""Stands for any text within a namespace or a name."""


class Pins:
    """All pins of the configuration by name: `<namespace>/<name>`, either with `*`.

    A pin is a fixed address for one Service by its name, or for any Service that matches the pattern.
    """

    def __init__(self, addresses: Mapping[str, Iterable[IPAddress]]) -> None:
        self.addresses = addresses
        self._patterns = tuple(name for name in addresses if ANY in name)

    def of(self, key: ObjectKey) -> str:
        """Return the pin for a Service: its very name or the first pattern that fits; empty: none."""
        if not self.addresses:
            return ""
        name = f"{key.namespace}/{key.name}"
        if name in self.addresses:
            return name
        return next((pattern for pattern in self._patterns if _fits(key, pattern)), "")


def _fits(key: ObjectKey, pattern: str) -> bool:
    namespace, _, name = pattern.partition("/")
    return fnmatchcase(key.namespace, namespace) and fnmatchcase(key.name, name)


Age = tuple[str, ObjectKey]


def age(service: Service) -> Age:
    """Return what sorts Services from the oldest to the youngest: creation time, then key."""
    return service.created, service.key


class Holdings(Struct, frozen=True):
    """All addresses that are held."""

    holders: Mapping[IPAddress, AddressHolder]
    held: Mapping[ObjectKey, Sequence[IPAddress]]
    """Held addresses by Service, the strongest hold first: ledger, state, status, then the lower address."""


def holdings(snapshot: Snapshot, services: Sequence[Service], pins: Pins) -> Holdings:
    """Find the one holder of every address that has any.

    In rising order of strength: a pin, a process, Node or spec.externalIPs that has it, a Service's status (the oldest
    Service that lists it), our own state, the ledger. `services` are the Services of `snapshot` that get an address
    from us; only they can keep one. Claims are matched by key, not by uid: a Service that is recreated under its name
    keeps its address. Ours in the ledger are the claims of this stack's home, and claims that our state has word for
    word: after a move of the project both still name the old place (the ledger itself refuses a copy of a project that
    lives on). A claim with an unknown owner, damaged or unreadable just now, takes nothing from a holder by the ledger
    or our state, but no other Service joins that holder.
    """
    return Evidence.of(snapshot, services, pins).holdings()


class Evidence(Struct):
    """All evidence of holders."""

    home: Home
    weakest: Mapping[IPAddress, AddressHolder]
    """By pins and by facts of the host: of addresses without a claim or a status."""
    ages: dict[ObjectKey, Age]
    ours: dict[ObjectKey, Service]
    """Services that can keep an address."""
    listed: dict[IPAddress, list[ObjectKey]]
    """By statuses."""
    state: dict[IPAddress, list[Claim]]
    ledger: dict[IPAddress, list[Claim]]

    @classmethod
    def of(cls, snapshot: Snapshot, services: Sequence[Service], pins: Pins) -> Evidence:
        """Sort what a snapshot says by address."""
        pinned = {address: ByPin(name, pins) for name, addresses in pins.addresses.items() for address in addresses}
        return cls(
            snapshot.home,
            {**pinned, **_of_host(snapshot)},
            {service.key: age(service) for service in (*snapshot.services, *services)},
            {service.key: service for service in services},
            _listed(snapshot.services),
            _claimed(snapshot.remembered),
            _claimed(snapshot.claims),
        )

    def holdings(self) -> Holdings:
        holders = {**self.weakest}
        holders |= {address: self._oldest(keys) for address, keys in self.listed.items() if keys}
        for claims in (self.state, self.ledger):
            holders |= {address: self._of_claims(address, some) for address, some in claims.items() if some}
        held: dict[ObjectKey, list[IPAddress]] = defaultdict(list)
        for address, holder in holders.items():
            for key in keepers(holder):
                held[key].append(address)
        several = ((key, addresses) for key, addresses in held.items() if len(addresses) > 1)
        return Holdings(holders, {**held, **{key: self.ranked(key, some) for key, some in several}})

    def ranked(self, key: ObjectKey, addresses: Iterable[IPAddress]) -> list[IPAddress]:
        """Sort what a Service holds, the strongest hold first."""
        sources = (self.ledger, self.state, self.listed)

        def rank(address: IPAddress) -> tuple[object, ...]:
            return (*(not _among(key, source.get(address, ())) for source in sources), address.version, int(address))

        return sorted(addresses, key=rank)

    def _of_claims(self, address: IPAddress, claims: Sequence[Claim]) -> AddressHolder:
        """Return the holder of a claimed address: a foreign one, or the oldest existing one of our claimants."""
        remembered = self.state.get(address, [])
        existing = [claim for claim in claims if claim.owner.service.name]
        if doubtful := len(existing) < len(claims):
            existing += remembered
        others = [claim for claim in existing if claim.owner.home != self.home]
        if foreign := [claim.owner for claim in others if claim not in remembered]:
            return ByOther(f"belongs to Service {min(foreign)}")
        keys = {claim.owner.service for claim in existing}
        return self._claimant(keys, doubtful=doubtful) if keys else _another_owner(claims[0])

    def _claimant(self, keys: AbstractSet[ObjectKey], *, doubtful: bool) -> AddressHolder:
        """Return the holder among our claimants: the oldest existing one, with the Services that share it.

        `doubtful`: another claimant may exist.
        """
        present = self._by_age(keys)
        if present:
            return _together(present, leaving=doubtful or len(present) < len(keys))
        return ByService(min(keys), "is not yet released by")

    def _oldest(self, keys: Sequence[ObjectKey]) -> AddressHolder:
        """Return the holder of an address in several statuses: the oldest Service, with the ones that share it."""
        first = min(keys, key=self.ages.__getitem__)
        if first in self.ours:
            return _together(self._by_age(keys), leaving=False)
        return ByService(first, "stands in the status of")

    def _by_age(self, keys: Iterable[ObjectKey]) -> Sequence[Service]:
        """Return those of ours, the oldest first."""
        present = sorted(filter(self.ours.__contains__, keys), key=self.ages.__getitem__)
        return [self.ours[key] for key in present]


def keepers(holder: AddressHolder | None) -> Sequence[ObjectKey]:
    """Return the Services that may keep an address that is held so."""
    match holder:
        case ByService(key):
            return (key,)
        case ByGroup(members):
            return [member.key for member in members]
        case _:
            return ()


def _of_host(snapshot: Snapshot) -> dict[IPAddress, AddressHolder]:
    holders: dict[IPAddress, AddressHolder] = {
        address: ByOther(f"is the address of Node {node.name} in {node.cluster}")
        for node in snapshot.nodes
        for address in node.addresses
    }
    holders |= {address: ByOther("is in spec.externalIPs of a Service") for address in snapshot.external_ips}
    if existing := snapshot.host.addresses:
        broadcast = ByOther("is the broadcast address of a network of this host")
        holders |= dict.fromkeys(existing.broadcast, broadcast)
    for socket in snapshot.host.sockets:
        if not socket.address.is_unspecified:
            holders[socket.address] = ByOther(f"the process {socket.process or 'of another user'} listens on")
    return holders


def _listed(services: Iterable[Service]) -> dict[IPAddress, list[ObjectKey]]:
    listers: dict[IPAddress, list[ObjectKey]] = defaultdict(list)
    for service in services:
        for entry in service.ingress:
            listers[entry.address].append(service.key)
    return listers


def _claimed(claims: Iterable[Claim]) -> dict[IPAddress, list[Claim]]:
    by_address: dict[IPAddress, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_address[claim.address].append(claim)
    return by_address


def _together(services: Sequence[Service], *, leaving: bool) -> AddressHolder:
    """Make the holder of the first of `services` and the ones that share with it."""
    first = services[0]
    if not first.sharing_key:
        return ByService(first.key)
    members = [service for service in services if service.sharing_key == first.sharing_key]
    return ByGroup(tuple(members), leaving or len(members) < len(services))


def _another_owner(claim: Claim) -> ByOther:
    what = "claim in the ledger that can't be read just now" if claim.unread else "damaged claim in the ledger"
    return ByOther(f"is held by a {what}{f' ({claim.problem})' if claim.problem else ''}")


def _among(key: ObjectKey, holders: Collection[Claim | ObjectKey]) -> bool:
    return any((holder.owner.service if isinstance(holder, Claim) else holder) == key for holder in holders)
