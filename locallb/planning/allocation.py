"""Assigns an address to each Service: sticky, exact, fair, and the same for equal inputs in any order.

`allocate` is the only entrance. It knows Services, pools, pins, held addresses and the host's limits; it neither
claims nor releases anything (`LoopbackAddress` does, when the plan is applied) and knows nothing of ports. Everything
is interval arithmetic: an IPv6 pool of 2**64 addresses costs as much as one of 32, because nothing is ever enumerated.
A refusal says the request, the reason and the remedy.

Not here: the objects that hold addresses (`planning.address_holders`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from ipaddress import IPv6Network

from msgspec import Struct

from locallb.config.candidates import Candidates, by_priority, candidates, listed, never, possible
from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import Pool, Settings
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.ranges import subtract
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import HostFacts, PortKey, Snapshot
from locallb.planning.address_holders import ByGroup, ByService, Holdings, Pins, age, holdings, may_share
from locallb.planning.pool_routes import pool_routes
from locallb.planning.selection import selects


class RequestedAddress(Struct, frozen=True):
    """The only address that a Service may get: by its own request, or pinned in the configuration."""

    address: IPAddress
    pinned: bool = False

    @property
    def elsewhere(self) -> str:
        """Return how to ask for another one."""
        return "pin another address in local-lb:pins" if self.pinned else "ask for another address"


def _refused(reason: Reason, service: Service, requested: RequestedAddress, why: str) -> Problem:
    verb = "is pinned to" if requested.pinned else "asks for"
    return Problem(reason, f"{service.key} {verb} {requested.address}, {why}")


def family_mismatch(service: Service, requested: RequestedAddress) -> Problem:
    """Explain that the address isn't of a family that the Service wants."""
    family = Family.of(requested.address)
    wanted = " and ".join(service.families)
    why = f"an {family} address, but it wants {wanted}; {requested.elsewhere}"
    if service.family_policy is FamilyPolicy.SINGLE:
        why += f" or set spec.ipFamilyPolicy to {FamilyPolicy.PREFER_DUAL}"
    return _refused(Reason.FAMILY_MISMATCH, service, requested, why)


def never_given(service: Service, requested: RequestedAddress, what: str) -> Problem:
    """Explain that the address is of a kind that no pool may hand out."""
    return _refused(Reason.EXCLUDED, service, requested, f"which is never handed out ({what}); {requested.elsewhere}")


def excluded(service: Service, requested: RequestedAddress, pool: Pool) -> Problem:
    """Explain that the pool of the address excludes it."""
    why = f"which the pool {pool.name} excludes; {requested.elsewhere} or take it out of the pool's `exclude`"
    return _refused(Reason.EXCLUDED, service, requested, why)


def out_of_pool(service: Service, requested: RequestedAddress, pools: Sequence[Pool]) -> Problem:
    """Explain that no pool has the address."""
    why = f"which isn't in {described(pools)}; {requested.elsewhere} or add it to local-lb:pools"
    return _refused(Reason.OUT_OF_POOL, service, requested, why)


def selector_mismatch(service: Service, requested: RequestedAddress, pool: Pool) -> Problem:
    """Explain that the pool of the address isn't for this Service."""
    why = f"which is in the pool {pool.name}, only for {audience(pool)}; {requested.elsewhere} or let the pool allow it"
    return _refused(Reason.SELECTOR_MISMATCH, service, requested, why)


def in_use(service: Service, requested: RequestedAddress, holder: object) -> Problem:
    """Return who else has the address: `holder`, as the rest of a sentence that begins with "which"."""
    return _refused(Reason.IN_USE, service, requested, f"which {holder}; {requested.elsewhere} or release it there")


def not_on_host(service: Service, requested: RequestedAddress, host: HostFacts) -> Problem:
    """Return why the address can't be had: it isn't this host's, or faces a network and isn't listed by itself."""
    if device := host.addresses.interface(requested.address) if host.addresses else "":
        why = f"this host's own address on {device}, which never comes out of a range; list it by itself in"
        return _refused(Reason.EXCLUDED, service, requested, f"{why} local-lb:pools, or {requested.elsewhere}")
    if network := _network(requested.address, host):
        return on_link(service, requested.address, network)
    why = "which isn't this host's: no local route has it; as root, `locallb host setup --yes` makes its pool local,"
    return _refused(Reason.NOT_ON_HOST, service, requested, f"{why} or {requested.elsewhere}")


def on_link(service: Service, address: IPAddress, network: IPv6Network) -> Problem:
    """Explain that no neighbour would ever find the address, because this host is part of its network."""
    why = (
        f"{address} lies in {network}, a network that this host is connected to, where neighbours would never find it;"
        " give local-lb:pools an IPv6 prefix outside of it"
    )
    return Problem(Reason.POOL_ON_LINK, f"{service.key} gets no IPv6 address: {why}")


def no_pool(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Explain that the Service may use no pool of this family; `pools` are those of the family."""
    if pools:
        audiences = ", ".join(f"{pool.name} is for {audience(pool)}" for pool in pools)
        why = f"no {family} pool is for it ({audiences}); let one allow it or add a pool to local-lb:pools"
    else:
        why = f"there is no {family} pool; add one to local-lb:pools"
        if family in service.families[1:]:  # the first one can't be changed
            why += f" or set spec.ipFamilyPolicy to {FamilyPolicy.SINGLE}"
    return Problem(Reason.NO_POOL, f"{service.key} gets no {family} address: {why}")


def exhausted(service: Service, family: Family, pools: Sequence[Pool]) -> Problem:
    """Explain that every address allowed for the Service is taken."""
    more = "add addresses to local-lb:pools"
    if DEFAULT_POOL in pools:  # naming any pool replaces it, and all its addresses would move
        more = "list this pool and another one in local-lb:pools"
    why = f"all of {described(pools)} is taken; {more} or delete a Service that has one"
    return Problem(Reason.POOL_EXHAUSTED, f"{service.key} gets no {family} address: {why}")


def none_on_host(
    service: Service, family: Family, pools: Sequence[Pool], example: IPAddress, host: HostFacts
) -> Problem:
    """Explain that no free and allowed address is this host's, with an example and the remedy."""
    if network := _network(example, host):
        return on_link(service, example, network)
    if device := host.addresses.interface(example) if host.addresses else "":
        own = f"{example} is this host's own address on {device}, which is only given where it is listed by itself"
        return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {family} address: {own} in local-lb:pools")
    judged = (route for route in pool_routes(pools, host.addresses) if example in route.prefix)
    obstacle = next((part.problem.message for part in judged if part.problem), "")
    remedy = obstacle or "as root, `locallb host setup --yes` makes it local"
    why = f"nothing that is free in {described(pools)} is this host's: no local route has {example}; {remedy}"
    return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {family} address: {why}")


def _network(address: IPAddress, host: HostFacts) -> IPv6Network | None:
    """Find the network of this host that an IPv6 address lies in."""
    return next((network for network in (host.addresses.on_link if host.addresses else ()) if address in network), None)


def described(pools: Sequence[Pool]) -> str:
    """Write pools with their ranges."""
    several = [f"{pool.name} ({', '.join(str(addresses) for addresses in pool.ranges)})" for pool in pools]
    return f"pool{'s' if len(several) > 1 else ''} {', '.join(several)}" if several else "any pool: there is none"


def audience(pool: Pool) -> str:
    """Return for which Services a pool is."""
    namespaces = f"namespace {' or '.join(sorted(pool.namespaces))}" if pool.namespaces else ""
    labels = ",".join(f"{label}={value}" for label, value in sorted(pool.selector.items()))
    clusters = f"cluster {' or '.join(sorted(pool.clusters))}" if pool.clusters else ""
    parts = [clusters, namespaces, f"label {labels}" if labels else ""]
    return " and ".join(part for part in parts if part) or "every Service"


class Slots:
    """Free candidates. Taking and finding are near constant time, however full or large the pool is.

    Each taken number points to a later one that may be free; `first_free` follows and shortens these paths.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._later: dict[int, int] = {}

    def take(self, address: IPAddress) -> bool:
        """Take `address`; return whether it was a free candidate."""
        number = self._candidates.number(address)
        if number is None or number in self._later:
            return False
        self._later[number] = number + 1
        return True

    def first_free(self, preferred: int) -> IPAddress | None:
        """Return the first free candidate from `preferred` (modulo size) on, going round; None if all are taken."""
        size = self._candidates.size
        if len(self._later) >= size:
            return None
        number = self._follow(preferred % size)
        return self._candidates[number if number < size else self._follow(0)]

    def _follow(self, start: int) -> int:
        end = start
        while end in self._later:
            end = self._later[end]
        while start != end:
            self._later[start], start = end, self._later[start]
        return end


_FIRST_USER, _APART = 1000, 11
"""The usual number of a host's first user, and the distance between the first addresses of adjacent users."""


def _start_of(user: int) -> int:
    """Return how far from a Service's preferred address a user begins, so that two users get different ones.

    It is nothing for root and a host's first user.
    """
    return (user - _FIRST_USER) * _APART if user else 0


def allows(pool: Pool, service: Service) -> bool:
    """Return whether `service` may use the pool, by its namespaces, selector and clusters."""
    is_there = not pool.clusters or service.key.cluster in pool.clusters
    return is_there and selects(service, pool.namespaces, pool.selector)


class AddressRequest(Struct, frozen=True):
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
        self._in_foreign_use: dict[IPAddress, set[PortKey]] = defaultdict(set)
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

    def refusal(self, request: AddressRequest, requested: RequestedAddress) -> Problem | None:
        """Return the reason that the Service can't have the requested address; None if it can."""
        service, address = request.service, requested.address
        if Family.of(address) not in request.families:
            return family_mismatch(service, requested)
        if what := never(address):
            return never_given(service, requested, what)
        having = [part.pool for part in self._parts if address in part.candidates]
        if not having:
            pool = next((pool for pool in self._pools if listed(pool, address)), None)
            if pool:
                return excluded(service, requested, pool)
            return out_of_pool(service, requested, self._pools)
        if not any(allows(pool, service) for pool in having):
            return selector_mismatch(service, requested, having[0])
        return self._occupied(service, requested)

    def _occupied(self, service: Service, requested: RequestedAddress) -> Problem | None:
        holder = self._held.holders.get(requested.address)
        if holder and not holder.admits(service):
            return in_use(service, requested, holder)
        if rival := self._rival(service, requested.address):
            return in_use(service, requested, ByService(rival.key))
        here = any(requested.address in part.here for part in self._parts if allows(part.pool, service))
        return None if here else not_on_host(service, requested, self._host)

    def _rival(self, service: Service, address: IPAddress) -> Service | None:
        """Find an earlier or stronger holder of the address that can't share it with `service`."""
        holder = self._held.holders.get(address)
        stronger = holder.stronger(service) if isinstance(holder, ByGroup) else ()
        others = (*self._given.get(address, ()), *stronger)
        return next((other for other in others if other.key != service.key and not may_share(other, service)), None)

    def find(self, request: AddressRequest, family: Family) -> IPAddress | Problem:
        """Find the address of `family` that the Service keeps or, failing that, the free one next to its preferred.

        It gives up an address if another user occupies one of its ports there, as long as another one is free.
        """
        of_family = [part for part in self._parts if part.candidates.family is family]
        parts = [part for part in of_family if allows(part.pool, request.service)]
        if not parts:
            return no_pool(request.service, family, [part.pool for part in of_family])
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
                return none_on_host(service, family, pools, missing, self._host)
        return exhausted(service, family, pools)


Answer = tuple[IPAddress, ...] | Problem


def allocate(snapshot: Snapshot, services: Sequence[Service], settings: Settings) -> Mapping[ObjectKey, Answer]:
    """Return the addresses of each of `services`, in the order of its families, or the reason that it gets none.

    `services` are the well-formed Services of `snapshot` that are ours and not being deleted. Rules, strongest first:

    - A held address goes to no Service but its holder (see `address_holders`). That includes a claim of ours for a
      removed Service: it is free only once it is released, because until then its data plane may stand.
    - A pinned or requested address is granted exactly or the Service is refused; a pin stands for the request of its
      family and keeps its address free for its Service. The older of two that request one gets it.
    - A Service keeps its address in a pool that it may use, unless it requests another, the host can't bind it, or
      another user's process has one of its ports there while nothing of this stack serves at the address, and another
      address is free.
    - Services of one sharing key may have one address as long as they have no port in common and the same traffic
      policy; a later one joins an address of its key that it fits, and where two no longer fit the younger moves.
    - The remaining ones, oldest first, get the free address next to their preferred one: a hash of their key, offset
      by the number of the user.
    - SingleStack gets one family, RequireDualStack all or nothing, PreferDualStack every available one of its families.
      A served Service keeps its addresses when it requests an unavailable family.
    """
    pins = Pins(settings.pins)
    requests = [
        request_of(service, pins.addresses.get(pins.of(service.key), ())) for service in sorted(services, key=age)
    ]
    asking = [request for request in requests if request.requested]
    pools = AddressPools(settings.pools, holdings(snapshot, services, pins), snapshot.host)
    # Who asks comes first, and leaves what others ask for alone as long as there is another address.
    pools.open(reserved={requested.address for request in asking for requested in request.requested})
    early = {request.service.key: serve(request, pools) for request in asking}
    pools.open(reserved=frozenset())
    waiting = [request for request in asking if not is_complete(request, early[request.service.key])]
    late = {
        request.service.key: serve(request, pools) for request in [*waiting, *(w for w in requests if not w.requested)]
    }
    answers = early | late
    return {request.service.key: _in_the_end(request, answers[request.service.key], pools) for request in requests}


def request_of(service: Service, pinned: Iterable[IPAddress] = ()) -> AddressRequest:
    """Return what a Service may and wants to get; `pinned` are addresses of its own by the configuration."""
    requested = {Family.of(address): RequestedAddress(address) for address in service.requested}
    requested |= {Family.of(address): RequestedAddress(address, pinned=True) for address in pinned}
    single = service.family_policy is FamilyPolicy.SINGLE
    families = tuple(dict.fromkeys(service.families))[: 1 if single else None]
    return AddressRequest(service, families, tuple(requested.values()), _preferred(service.key))


@lru_cache(maxsize=8192)  # all are asked for when one Service comes or goes
def _preferred(key: ObjectKey) -> int:
    return int.from_bytes(hashlib.sha256(str(key).encode()).digest(), "big")


def is_complete(request: AddressRequest, answer: Answer) -> bool:
    """Return whether the Service has an address of each family that it wants."""
    return not isinstance(answer, Problem) and len(answer) == len(request.families)


def _in_the_end(request: AddressRequest, answer: Answer, pools: AddressPools) -> Answer:
    """Explain refusals by the obstacles after the whole allocation, as every later plan will."""
    if not isinstance(answer, Problem):
        return answer
    retry = _choose(request, pools)
    return retry if isinstance(retry, Problem) else answer


def serve(request: AddressRequest, pools: AddressPools) -> Answer:
    """Choose all addresses of one Service and take them, or take none."""
    chosen = _choose(request, pools)
    if not isinstance(chosen, Problem):
        pools.take(request.service, chosen)
    return chosen


def _choose(request: AddressRequest, pools: AddressPools) -> Answer:
    chosen: dict[Family, IPAddress] = {}
    for requested in request.requested:
        if problem := pools.refusal(request, requested):
            return problem
        chosen[Family.of(requested.address)] = requested.address
    missing: list[Problem] = []
    for family in (family for family in request.families if family not in chosen):
        answer = pools.find(request, family)
        if isinstance(answer, Problem):
            missing.append(answer)
        else:
            chosen[family] = answer
    may_lack = request.service.family_policy is FamilyPolicy.PREFER_DUAL or pools.keeps(
        request.service, chosen.values()
    )
    if missing and not (chosen and may_lack):
        return missing[0]
    return tuple(chosen[family] for family in request.families if family in chosen)
