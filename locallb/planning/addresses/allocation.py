"""Assigns an address to each Service: sticky, exact, fair, and the same for equal inputs in any order.

`allocate` is the only entrance. It knows Services, pools, pins, held addresses and the host's limits; it neither
claims nor releases anything (`LoopbackAddress` does, when the plan is applied) and knows nothing of ports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from locallb.config.settings import Settings
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.reasons import Problem
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses.address_pools import AddressPools, Request
from locallb.planning.addresses.holders import age, holdings
from locallb.planning.addresses.pins import Pins
from locallb.planning.addresses.refusals import RequestedAddress

Answer = tuple[IPAddress, ...] | Problem


def allocate(snapshot: Snapshot, services: Sequence[Service], settings: Settings) -> Mapping[ObjectKey, Answer]:
    """Return the addresses of each of `services`, in the order of its families, or the reason that it gets none.

    `services` are the well-formed Services of `snapshot` that are ours and not being deleted. Rules, strongest first:

    - A held address goes to no Service but its holder (see `holders`). That includes a claim of ours for a removed
      Service: it is free only once it is released, because until then its data plane may stand.
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


def request_of(service: Service, pinned: Iterable[IPAddress] = ()) -> Request:
    """Return what a Service may and wants to get; `pinned` are addresses of its own by the configuration."""
    requested = {Family.of(address): RequestedAddress(address) for address in service.requested}
    requested |= {Family.of(address): RequestedAddress(address, pinned=True) for address in pinned}
    single = service.family_policy is FamilyPolicy.SINGLE
    families = tuple(dict.fromkeys(service.families))[: 1 if single else None]
    return Request(service, families, tuple(requested.values()), _preferred(service.key))


@lru_cache(maxsize=8192)  # all are asked for when one Service comes or goes
def _preferred(key: ObjectKey) -> int:
    return int.from_bytes(hashlib.sha256(str(key).encode()).digest(), "big")


def is_complete(request: Request, answer: Answer) -> bool:
    """Return whether the Service has an address of each family that it wants."""
    return not isinstance(answer, Problem) and len(answer) == len(request.families)


def _in_the_end(request: Request, answer: Answer, pools: AddressPools) -> Answer:
    """Explain refusals by the obstacles after the whole allocation, as every later plan will."""
    if not isinstance(answer, Problem):
        return answer
    retry = _choose(request, pools)
    return retry if isinstance(retry, Problem) else answer


def serve(request: Request, pools: AddressPools) -> Answer:
    """Choose all addresses of one Service and take them, or take none."""
    chosen = _choose(request, pools)
    if not isinstance(chosen, Problem):
        pools.take(request.service, chosen)
    return chosen


def _choose(request: Request, pools: AddressPools) -> Answer:
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
