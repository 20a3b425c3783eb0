"""The address pools during one allocation: held, newly given and free addresses, family by family.

Everything is interval arithmetic: an IPv6 pool of 2**64 addresses costs as much as one of 32, because nothing is ever
enumerated. Not here: the order of Services and of their requests (`allocation`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from locallb.config.candidates import Candidates, by_priority, candidates, listed, never, possible
from locallb.config.settings import Pool
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.network.spans import subtract
from locallb.model.objects import Service
from locallb.model.reasons import Problem
from locallb.model.snapshot import HostFacts, Place
from locallb.planning.addresses import refusals
from locallb.planning.addresses.holder_kinds import ByGroup, ByService, may_share
from locallb.planning.addresses.holders import Holdings
from locallb.planning.addresses.refusals import RequestedAddress
from locallb.planning.addresses.slots import Slots
from locallb.planning.selection import selects

_FIRST_USER, _APART = 1000, 11
"""The usual number of a host's first user, and the distance between the first addresses of adjacent users."""


def _start_of(user: int) -> int:
    """Return how far from a Service's preferred address a user begins, so that two users get different ones.

    It is nothing for root and a host's first user.
    """
    return (user - _FIRST_USER) * _APART if user else 0


def allows(pool: Pool, service: Service) -> bool:
    """Return whether the pool's namespaces and selector let `service` use it."""
    return selects(service, pool.namespaces, pool.selector)


class Request(Struct, frozen=True):
    """Addresses that one Service may get and requests."""

    service: Service
    families: tuple[Family, ...]
    requested: tuple[RequestedAddress, ...]
    preferred: int
    """The number of its preferred candidate, modulo the size of the pool."""


class _FamilyPool:
    """Addresses of one family in one pool, and the free ones among them."""

    def __init__(self, pool: Pool, candidates: Candidates, here: Candidates) -> None:
        self.pool = pool
        self.candidates = candidates
        self.here = here
        """Addresses of this host."""
        self.free = Slots(here)

    def next_free(self, preferred: int) -> IPAddress | None:
        """Return the free address next to the preferred one, which is the same on every host."""
        if self.here.size == self.candidates.size:
            return self.free.first_free(preferred)
        start = self.candidates[preferred % self.candidates.size]
        return self.free.first_free(self.here.following(start))

    def elsewhere(self, held: Collection[IPAddress]) -> IPAddress | None:
        """Find an address that isn't held and isn't this host's."""
        if self.here.size == self.candidates.size:
            return None
        missing = subtract(self.candidates.spans, self.here.spans)
        numbers = (number for first, last in missing for number in range(first, last + 1))
        return next((address for number in numbers if (address := self.candidates.address(number)) not in held), None)

    def open(self, claimed: Iterable[IPAddress]) -> None:
        """Start again with `claimed` taken."""
        self.free = Slots(self.here)
        for address in claimed:
            self.free.take(address)


class AddressPools:
    """All pools of a stack; an address of one Service is free only for Services that can share it."""

    def __init__(self, pools: Iterable[Pool], held: Holdings, host: HostFacts) -> None:
        self._pools = by_priority(pools)
        self._parts = [
            _FamilyPool(pool, usable, possible(pool, family, host))
            for pool in self._pools
            for family in Family
            if (usable := candidates(pool, family)).size
        ]
        self._held = held
        self._host = host
        self._given: dict[IPAddress, list[Service]] = defaultdict(list)
        self._shared: dict[str, dict[IPAddress, None]] = defaultdict(dict)
        """By sharing key the addresses that may be shared, in the order in which they are tried."""
        for address, holder in sorted(held.holders.items(), key=lambda item: (item[0].version, int(item[0]))):
            if isinstance(holder, ByGroup):
                self._shared[holder.sharing_key][address] = None
        self._mine: dict[ObjectKey, tuple[IPAddress, ...]] = {}
        self._start = _start_of(host.user)
        self._in_foreign_use: dict[IPAddress, set[Place]] = defaultdict(set)
        """Ports that another user's processes have at addresses where nothing of this stack serves."""
        for socket in host.sockets:
            if socket.foreign and socket.alone:
                self._in_foreign_use[socket.address].add((socket.port, socket.protocol))

    def open(self, reserved: AbstractSet[IPAddress]) -> None:
        """Begin a round in which addresses in `reserved` go only to Services that request them."""
        claimed = {*self._held.holders, *self._given, *reserved}
        for part in self._parts:
            part.open(claimed)

    def take(self, service: Service, addresses: Iterable[IPAddress]) -> None:
        """Assign `addresses` to the Service."""
        self._mine[service.key] = tuple(addresses)
        for address in self._mine[service.key]:
            if service not in self._given[address]:
                self._given[address].append(service)
            if service.sharing_key:
                self._shared[service.sharing_key].setdefault(address)
            for part in self._parts:
                part.free.take(address)

    def keeps(self, service: Service, addresses: Iterable[IPAddress]) -> bool:
        """Return whether the Service holds one of `addresses` already."""
        held = self._held.held.get(service.key, ())
        return any(address in held for address in addresses)

    def refusal(self, request: Request, requested: RequestedAddress) -> Problem | None:
        """Return the reason that the Service can't have the requested address; None if it can."""
        service, address = request.service, requested.address
        if Family.of(address) not in request.families:
            return refusals.family_mismatch(service, requested)
        if what := never(address):
            return refusals.never_given(service, requested, what)
        having = [part.pool for part in self._parts if address in part.candidates]
        if not having:
            pool = next((pool for pool in self._pools if listed(pool, address)), None)
            if pool:
                return refusals.excluded(service, requested, pool)
            return refusals.out_of_pool(service, requested, self._pools)
        if not any(allows(pool, service) for pool in having):
            return refusals.selector_mismatch(service, requested, having[0])
        return self._occupied(service, requested)

    def _occupied(self, service: Service, requested: RequestedAddress) -> Problem | None:
        holder = self._held.holders.get(requested.address)
        if holder and not holder.admits(service):
            return refusals.in_use(service, requested, holder)
        if rival := self._rival(service, requested.address):
            return refusals.in_use(service, requested, ByService(rival.key))
        here = any(requested.address in part.here for part in self._parts if allows(part.pool, service))
        return None if here else refusals.not_on_host(service, requested, self._host)

    def _rival(self, service: Service, address: IPAddress) -> Service | None:
        """Find an earlier or stronger holder of the address that can't share it with `service`."""
        holder = self._held.holders.get(address)
        stronger = holder.stronger(service) if isinstance(holder, ByGroup) else ()
        others = (*self._given.get(address, ()), *stronger)
        return next((other for other in others if other.key != service.key and not may_share(other, service)), None)

    def find(self, request: Request, family: Family) -> IPAddress | Problem:
        """Find the address of `family` that the Service keeps or, failing that, the free one next to its preferred.

        It gives up an address if another user occupies one of its ports there, as long as another one is free.
        """
        of_family = [part for part in self._parts if part.candidates.family is family]
        parts = [part for part in of_family if allows(part.pool, request.service)]
        if not parts:
            return refusals.no_pool(request.service, family, [part.pool for part in of_family])
        mine = [*self._mine.get(request.service.key, ()), *self._held.held.get(request.service.key, ())]
        addresses = (*mine, *self._joinable(request.service))
        fitting = (address for address in addresses if self._fits(request.service, address, parts))
        had = next(fitting, None)
        if had and not self._is_lost(request.service, had):
            return had
        retained = next((address for address in fitting if not self._is_lost(request.service, address)), None)
        start = request.preferred + self._start
        given = retained or next((address for part in parts if (address := part.next_free(start))), None)
        return given or had or self._shortage(request.service, family, parts)

    def _is_lost(self, service: Service, address: IPAddress) -> bool:
        """Return whether another user's process has a port there of the Service, or of one that shares the address."""
        ports = self._in_foreign_use.get(address)
        if not ports:
            return False
        holder = self._held.holders.get(address)
        sharing = holder.members if isinstance(holder, ByGroup) else ()
        return any((port.number, port.protocol) in ports for user in (service, *sharing) for port in user.ports)

    def _joinable(self, service: Service) -> Iterator[IPAddress]:
        """Return the addresses of other Services of its sharing key that admit it."""
        for address in tuple(self._shared.get(service.sharing_key, ())) if service.sharing_key else ():
            holder = self._held.holders.get(address)
            if holder is None or holder.admits(service):
                yield address

    def _fits(self, service: Service, address: IPAddress, parts: Sequence[_FamilyPool]) -> bool:
        return any(address in part.here for part in parts) and self._rival(service, address) is None

    def _shortage(self, service: Service, family: Family, parts: Sequence[_FamilyPool]) -> Problem:
        pools = [part.pool for part in parts]
        existing = self._host.addresses
        passed_over = {*self._held.holders, *(own for own, _ in (existing.own if existing else ()))}
        for part in parts:
            missing = part.elsewhere(passed_over) or (None if part.here.size else part.elsewhere(self._held.holders))
            if missing:
                return refusals.none_on_host(service, family, pools, missing, self._host)
        return refusals.exhausted(service, family, pools)
