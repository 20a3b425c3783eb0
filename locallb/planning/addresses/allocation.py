"""Which address each Service gets: sticky, exact, fair, and the same for equal inputs in any order.

`allocate` is the only entrance. It knows Services, pools, pins, what is held and what the host allows; it neither
claims nor releases anything (`LoopbackAddress` does, when the plan is carried out) and knows nothing of ports.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

from locallb.config.candidates import Candidates, by_priority, candidates, listed, never, possible
from locallb.config.settings import Pool, Settings
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.reasons import Problem
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.spans import subtract
from locallb.planning.addresses import refusals
from locallb.planning.addresses.holders import ByGroup, ByService, Holdings, age, holdings, may_share
from locallb.planning.addresses.pools import Slots, allows
from locallb.planning.addresses.refusals import Asked

Answer = tuple[IPAddress, ...] | Problem


def allocate(snapshot: Snapshot, services: Sequence[Service], settings: Settings) -> Mapping[ObjectKey, Answer]:
    """Return the addresses of each of `services`, in the order of its families, or the reason why it gets none.

    `services` are those of `snapshot` that are ours, well-formed and not being deleted. The rules, strongest first:

    - An address that somebody holds goes to nobody else (see `holders`). That includes a claim of ours whose Service is
      gone: it is free only once it is released, because until then its data plane may stand.
    - A pinned or requested address is granted exactly or the Service is refused; a pin stands for the request of its
      family and keeps its address free for its Service. The older of two that ask for one gets it.
    - Who holds an address in a pool that it may use keeps it, unless it asks for another or the host can't bind it.
    - Services of one sharing key may have one address as long as they have no port in common and the same traffic
      policy; who comes later joins an address of its key that it fits, and where two no longer fit the younger moves.
    - The others, oldest first, get the free address next to their preferred one, which is a hash of their key.
    - SingleStack gets one family, RequireDualStack all or nothing, PreferDualStack whatever of its families can be had.
    """
    wishes = [_wish(service, settings) for service in sorted(services, key=age)]
    asking = [wish for wish in wishes if wish.asked]
    market = _AddressPools(settings.pools, holdings(snapshot, services, settings.pins), snapshot.host)
    # Who asks comes first, and leaves what others ask for alone as long as there is another address.
    market.open(reserved={asked.address for wish in asking for asked in wish.asked})
    early = {wish.service.key: _serve(wish, market) for wish in asking}
    market.open(reserved=frozenset())
    waiting = [wish for wish in asking if not _complete(wish, early[wish.service.key])]
    late = {wish.service.key: _serve(wish, market) for wish in [*waiting, *(w for w in wishes if not w.asked)]}
    answers = early | late
    return {wish.service.key: _in_the_end(wish, answers[wish.service.key], market) for wish in wishes}


@dataclass(frozen=True, slots=True)
class _Request:
    """What one Service may and wants to get."""

    service: Service
    families: tuple[Family, ...]
    asked: tuple[Asked, ...]
    preferred: int
    """The number of its preferred candidate, modulo the size of the pool."""


def _wish(service: Service, settings: Settings) -> _Request:
    pinned = settings.pins.get(f"{service.key.namespace}/{service.key.name}", ())
    asked = {Family.of(address): Asked(address) for address in service.requested}
    asked |= {Family.of(address): Asked(address, pinned=True) for address in pinned}
    single = service.family_policy is FamilyPolicy.SINGLE
    families = tuple(dict.fromkeys(service.families))[: 1 if single else None]
    return _Request(service, families, tuple(asked.values()), _preferred(service.key))


@lru_cache(maxsize=8192)
def _preferred(key: ObjectKey) -> int:
    return int.from_bytes(hashlib.sha256(str(key).encode()).digest(), "big")


def _complete(wish: _Request, answer: Answer) -> bool:
    return not isinstance(answer, Problem) and len(answer) == len(wish.families)


def _in_the_end(wish: _Request, answer: Answer, market: _AddressPools) -> Answer:
    """Have a refusal say what stands in the way once all is given, as every later plan will."""
    if not isinstance(answer, Problem):
        return answer
    again = _choose(wish, market)
    return again if isinstance(again, Problem) else answer


def _serve(wish: _Request, market: _AddressPools) -> Answer:
    """Choose all addresses of one Service and take them, or take none."""
    chosen = _choose(wish, market)
    if not isinstance(chosen, Problem):
        market.take(wish.service, chosen)
    return chosen


def _choose(wish: _Request, market: _AddressPools) -> Answer:
    chosen: dict[Family, IPAddress] = {}
    for asked in wish.asked:
        if problem := market.refusal(wish, asked):
            return problem
        chosen[Family.of(asked.address)] = asked.address
    missing: list[Problem] = []
    for family in (family for family in wish.families if family not in chosen):
        answer = market.find(wish, family)
        if isinstance(answer, Problem):
            missing.append(answer)
        else:
            chosen[family] = answer
    if missing and not (chosen and wish.service.family_policy is FamilyPolicy.PREFER_DUAL):
        return missing[0]
    return tuple(chosen[family] for family in wish.families if family in chosen)


class _FamilyPool:
    """What one pool has of one family, and what of it is still free."""

    def __init__(self, pool: Pool, candidates: Candidates, here: Candidates) -> None:
        self.pool = pool
        self.candidates = candidates
        self.here = here
        """Those that are this host's."""
        self.free = Slots(here)

    def next_free(self, preferred: int) -> IPAddress | None:
        """Return the free address next to the preferred one, which is the same on every host."""
        if self.here.size == self.candidates.size:
            return self.free.first_free(preferred)
        start = self.candidates[preferred % self.candidates.size]
        return self.free.first_free(self.here.following(start))

    def elsewhere(self, held: Collection[IPAddress]) -> IPAddress | None:
        """Find an address that nobody holds and that isn't this host's."""
        if self.here.size == self.candidates.size:
            return None
        missing = subtract(self.candidates.spans, self.here.spans)
        numbers = (number for first, last in missing for number in range(first, last + 1))
        return next((address for number in numbers if (address := self.candidates.address(number)) not in held), None)

    def open(self, taken: Iterable[IPAddress]) -> None:
        """Start again with `taken` taken."""
        self.free = Slots(self.here)
        for address in taken:
            self.free.take(address)


class _AddressPools:
    """The pools during one allocation: what is held, what was given, what is free."""

    def __init__(self, pools: Iterable[Pool], held: Holdings, host: HostFacts) -> None:
        self._pools = by_priority(pools)
        self._shelves = [
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

    def open(self, reserved: AbstractSet[IPAddress]) -> None:
        """Begin a round in which nobody is given an address of `reserved` without asking for it."""
        taken = {*self._held.holders, *self._given, *reserved}
        for shelf in self._shelves:
            shelf.open(taken)

    def take(self, service: Service, addresses: Iterable[IPAddress]) -> None:
        """Assign `addresses` to the Service."""
        self._mine[service.key] = tuple(addresses)
        for address in self._mine[service.key]:
            if service not in self._given[address]:
                self._given[address].append(service)
            if service.sharing_key:
                self._shared[service.sharing_key].setdefault(address)
            for shelf in self._shelves:
                shelf.free.take(address)

    def refusal(self, wish: _Request, asked: Asked) -> Problem | None:
        """Return why the Service can't have the very address that it asks for; None if it can."""
        service, address = wish.service, asked.address
        if Family.of(address) not in wish.families:
            return refusals.family_mismatch(service, asked)
        if what := never(address):
            return refusals.never_given(service, asked, what)
        having = [shelf.pool for shelf in self._shelves if address in shelf.candidates]
        if not having:
            pool = next((pool for pool in self._pools if listed(pool, address)), None)
            if pool:
                return refusals.excluded(service, asked, pool)
            return refusals.out_of_pool(service, asked, self._pools)
        if not any(allows(pool, service) for pool in having):
            return refusals.selector_mismatch(service, asked, having[0])
        return self._occupied(service, asked)

    def _occupied(self, service: Service, asked: Asked) -> Problem | None:
        holder = self._held.holders.get(asked.address)
        if holder and not holder.admits(service):
            return refusals.in_use(service, asked, holder)
        if rival := self._rival(service, asked.address):
            return refusals.in_use(service, asked, ByService(rival.key))
        here = any(asked.address in shelf.here for shelf in self._shelves if allows(shelf.pool, service))
        return None if here else refusals.not_on_host(service, asked, self._host)

    def _rival(self, service: Service, address: IPAddress) -> Service | None:
        """Find who has the address and can't share it with `service`: who got it before, or holds it more strongly."""
        holder = self._held.holders.get(address)
        stronger = holder.stronger(service) if isinstance(holder, ByGroup) else ()
        others = (*self._given.get(address, ()), *stronger)
        return next((other for other in others if other.key != service.key and not may_share(other, service)), None)

    def find(self, wish: _Request, family: Family) -> IPAddress | Problem:
        """Find the address of `family` that the Service keeps or, failing that, the free one next to its preferred."""
        all_shelves = [shelf for shelf in self._shelves if shelf.candidates.family is family]
        shelves = [shelf for shelf in all_shelves if allows(shelf.pool, wish.service)]
        if not shelves:
            return refusals.no_pool(wish.service, family, [shelf.pool for shelf in all_shelves])
        mine = [*self._mine.get(wish.service.key, ()), *self._held.held.get(wish.service.key, ())]
        had = next(
            (
                address
                for address in (*mine, *self._joinable(wish.service))
                if self._fits(wish.service, address, shelves)
            ),
            None,
        )
        given = had or next((address for shelf in shelves if (address := shelf.next_free(wish.preferred))), None)
        return given or self._shortage(wish.service, family, shelves)

    def _joinable(self, service: Service) -> Iterator[IPAddress]:
        """Return the addresses that others of its sharing key have and let it have as well."""
        for address in tuple(self._shared.get(service.sharing_key, ())) if service.sharing_key else ():
            holder = self._held.holders.get(address)
            if holder is None or holder.admits(service):
                yield address

    def _fits(self, service: Service, address: IPAddress, shelves: Sequence[_FamilyPool]) -> bool:
        return any(address in shelf.here for shelf in shelves) and self._rival(service, address) is None

    def _shortage(self, service: Service, family: Family, shelves: Sequence[_FamilyPool]) -> Problem:
        pools = [shelf.pool for shelf in shelves]
        known = self._host.addresses
        passed_over = {*self._held.holders, *(own for own, _ in (known.own if known else ()))}
        for shelf in shelves:
            missing = shelf.elsewhere(passed_over) or (None if shelf.here.size else shelf.elsewhere(self._held.holders))
            if missing:
                return refusals.none_on_host(service, family, pools, missing, self._host)
        return refusals.exhausted(service, family, pools)
