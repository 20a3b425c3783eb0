"""Current holders of addresses: by the ledger, this stack's own state, the status of Services, and the host itself.

An address has at most one holder, and only its holder may get it in this plan. So a holder never loses an address to
somebody else's request, and an address whose Service is gone goes to nobody before it is released: its data plane may
still stand. Whether a holder keeps what it holds (a pool may have changed) is decided in `allocation`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Claim, Snapshot
from locallb.planning.addresses.holder_kinds import ByGroup, ByOther, ByPin, ByService, Holder
from locallb.planning.addresses.pins import Pins

Age = tuple[str, ObjectKey]


def age(service: Service) -> Age:
    """Return what sorts Services from the oldest to the youngest: creation time, then key."""
    return service.created, service.key


@dataclass(frozen=True, slots=True)
class Holdings:
    """All addresses that are held."""

    holders: Mapping[IPAddress, Holder]
    held: Mapping[ObjectKey, Sequence[IPAddress]]
    """What each Service holds, the strongest hold first: ledger, state, status, then the lower address."""


def holdings(snapshot: Snapshot, services: Sequence[Service], pins: Pins) -> Holdings:
    """Find the one holder of every address that has any.

    In rising order of strength: a pin, a process, Node or spec.externalIPs that has it, a Service's status (the oldest
    Service that lists it), our own state, the ledger. `services` are those of `snapshot` that get an address from us;
    only those can keep one. Claims are matched by key, not by uid: who is recreated under its name keeps its address.
    Ours in the ledger are the claims of this stack's home, and those that our state has word for word: after a move of
    the project both still name the old place (the ledger itself refuses a copy of a project that lives on). A claim of
    nobody knows whom, damaged or not to be read just now, takes nothing from who holds the address by the ledger or our
    state, but nobody joins them.
    """
    ages = {service.key: age(service) for service in (*snapshot.services, *services)}
    ours = {service.key: service for service in services}
    status = _listed(snapshot.services)
    state, ledger = _claimed(snapshot.remembered), _claimed(snapshot.claims)
    holders: dict[IPAddress, Holder] = {
        address: ByPin(name, pins) for name, addresses in pins.addresses.items() for address in addresses
    }
    holders |= _of_host(snapshot)
    holders |= {address: _oldest(keys, ages, ours) for address, keys in status.items()}
    remembered = frozenset(snapshot.remembered)
    for claims in (state, ledger):
        for address, claimed in claims.items():
            known = [claim for claim in claimed if claim.owner.service.name]
            if doubted := len(known) < len(claimed):
                known += state.get(address, [])
            foreign = [claim.owner for claim in known if claim.owner.home != snapshot.home and claim not in remembered]
            keys = {claim.owner.service for claim in known}
            if foreign:
                holders[address] = ByOther(f"belongs to Service {min(foreign)}")
            elif keys:
                holders[address] = _claimant(keys, ages, ours, doubted=doubted)
            else:
                holders[address] = _somebody(claimed[0])
    return Holdings(holders, _ranked(holders, (ledger, state, status)))


def _of_host(snapshot: Snapshot) -> dict[IPAddress, Holder]:
    holders: dict[IPAddress, Holder] = {
        address: ByOther(f"is the address of Node {node.name} in {node.cluster}")
        for node in snapshot.nodes
        for address in node.addresses
    }
    holders |= {address: ByOther("is in spec.externalIPs of a Service") for address in snapshot.external_ips}
    if known := snapshot.host.addresses:
        broadcast = ByOther("is the broadcast address of a network of this host")
        holders |= dict.fromkeys(known.broadcast, broadcast)
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


def _oldest(keys: Iterable[ObjectKey], ages: Mapping[ObjectKey, Age], ours: Mapping[ObjectKey, Service]) -> Holder:
    """Decide which of the Services that list an address holds it: the oldest, with whom it shares."""
    listing = sorted(keys, key=ages.__getitem__)
    if listing[0] in ours:
        return _together([ours[key] for key in listing if key in ours], leaving=False)
    return ByService(listing[0], "stands in the status of")


def _claimant(
    keys: AbstractSet[ObjectKey], ages: Mapping[ObjectKey, Age], ours: Mapping[ObjectKey, Service], *, doubted: bool
) -> Holder:
    """Decide which of our claimants holds an address: the oldest one that is there, with whom it shares.

    `doubted`: nobody knows whether there is another one.
    """
    there = sorted(filter(ours.__contains__, keys), key=ages.__getitem__)
    if there:
        return _together([ours[key] for key in there], leaving=doubted or len(there) < len(keys))
    return ByService(min(keys), "is not yet released by")


def _together(services: Sequence[Service], *, leaving: bool) -> Holder:
    """Make the holder of the first of `services`, and of those that share with it."""
    first = services[0]
    if not first.sharing_key:
        return ByService(first.key)
    members = [service for service in services if service.sharing_key == first.sharing_key]
    return ByGroup(tuple(members), leaving or len(members) < len(services))


def _somebody(claim: Claim) -> ByOther:
    what = "claim in the ledger that can't be read just now" if claim.unread else "damaged claim in the ledger"
    return ByOther(f"is held by a {what}{f' ({claim.problem})' if claim.problem else ''}")


def _ranked(
    holders: Mapping[IPAddress, Holder], sources: Sequence[Mapping[IPAddress, Sequence[Claim | ObjectKey]]]
) -> dict[ObjectKey, Sequence[IPAddress]]:
    held: dict[ObjectKey, list[IPAddress]] = defaultdict(list)
    for address, holder in holders.items():
        for key in _keepers(holder):
            held[key].append(address)

    def rank(key: ObjectKey, address: IPAddress) -> tuple[object, ...]:
        return (*(not _among(key, source.get(address, ())) for source in sources), address.version, int(address))

    several = ((key, addresses) for key, addresses in held.items() if len(addresses) > 1)
    return {**held, **{key: sorted(some, key=lambda address: rank(key, address)) for key, some in several}}


def _keepers(holder: Holder) -> Sequence[ObjectKey]:
    match holder:
        case ByService(key):
            return (key,)
        case ByGroup(members):
            return [member.key for member in members]
        case _:
            return ()


def _among(key: ObjectKey, holders: Iterable[Claim | ObjectKey]) -> bool:
    return any((holder.owner.service if isinstance(holder, Claim) else holder) == key for holder in holders)
