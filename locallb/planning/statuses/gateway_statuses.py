"""Statuses of Gateway API objects and Ingresses in live clusters, added to the plan.

A Gateway's goes with its placement or rejection, an Ingress' with its placement, all others with the plan. Manifests
get none. Not here: the content of a status (`gateway.status`), and writing it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.gateway.backend_tls.policies import Policies
from locallb.gateway.backend_tls.statuses import policy_status
from locallb.gateway.conditions import DRAINED, FAULT_ORDERED, INVALID, OF_PROGRAMMED, Trouble, ordered
from locallb.gateway.routes.attachment import ParentVerdict
from locallb.gateway.routes.backends import Backends
from locallb.gateway.routes.bound import Bound
from locallb.gateway.status.statuses import (
    ApiStatus,
    Outcome,
    class_status,
    gateway_status,
    gateways_by_policy,
    listener_set_status,
    route_status,
    verdicts_by_route,
    verdicts_of,
)
from locallb.gateway.translation import BoundGateway, our_classes, shared_objects
from locallb.model.gateway.objects import ListenerSet, Named, Reference
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.gateway.policies import BackendTlsPolicy
from locallb.model.identities import ClusterName, Home, place
from locallb.model.memory import AnyMemo, Memo
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.gateways.gateways import Gateways
from locallb.planning.notices import DRAIN, FAULT, ordered_of
from locallb.planning.planned import Placement, Plan, PlannedStatus, Rejection
from locallb.planning.statuses.ingress_statuses import planned_status, with_ingresses, with_news

_Served: TypeAlias = Sequence[tuple[BoundGateway, Outcome]]
"""Gateways in the order of keys, and what became of each."""
_Said: TypeAlias = Mapping[Reference, tuple[ParentVerdict, ...]]
_Statuses: TypeAlias = tuple[tuple[Reference, ...], tuple[PlannedStatus, ...]]
"""The routes, and the status of each."""
_InOrder: TypeAlias = Callable[[tuple[PlannedStatus, ...]], tuple[PlannedStatus, ...]]
_Planned = TypeVar("_Planned", Placement, Rejection)
_Make: TypeAlias = Callable[..., ApiStatus]
_ORDERED = {FAULT: FAULT_ORDERED, DRAIN: DRAINED}


def with_statuses(
    plan: Plan, gateways: Gateways, snapshot: Snapshot, settings: Settings, memory: AnyMemo | None = None
) -> Plan:
    """Return the plan with the statuses of Gateway API objects in running clusters; `memory` has the former ones."""
    live = [objects for cluster, objects in sorted(gateways.clusters.items()) if cluster in snapshot.access]
    if not live:
        return plan
    tell = _Telling(snapshot, memory or Memo())
    bound = [gateways.bound.get(placement.key) for placement in plan.placements]
    refused_bound = [gateways.bound.get(rejection.key) for rejection in plan.rejections]
    placed = _of_placements(plan.placements, bound, settings, tell)
    refused = [_with_status(*pair, tell) for pair in zip(plan.rejections, refused_bound, strict=True)]
    served = _served((*placed, *refused), (*bound, *refused_bound))
    served = sorted(served, key=lambda both: both[0].key) if refused else served
    others = (_others(objects, _of_cluster(objects, served, gateways), settings, tell) for objects in live)
    with_told = replace(
        plan,
        placements=tuple(placement for placement, _ in placed),
        rejections=tuple(with_news(rejection, gateways.bound.get(rejection.key), snapshot) for rejection, _ in refused),
        statuses=tuple(chain.from_iterable(others)),
    )
    tell.memory.evict_unused()
    return with_told


class _Telling(Struct, frozen=True):
    """Makes statuses, each once for identical inputs."""

    snapshot: Snapshot
    memory: AnyMemo

    def planned(self, cluster: ClusterName, name: Hashable, make: _Make, *given: object) -> PlannedStatus:
        """Return the status of an object of a cluster, which `make` computes from `given` and nothing else."""

        def made(_home: Home, _access: Access, *given: object) -> PlannedStatus:
            return planned_status(make(*given), cluster, self.snapshot)

        where = self.snapshot.home, self.snapshot.access[cluster]
        status: PlannedStatus = self.memory.of((cluster, name), made, *where, *given)
        return status


def outcome_of(planned: Placement | Rejection) -> Outcome:
    """Return what became of a Gateway, in the specification's reasons."""
    if isinstance(planned, Rejection):
        return Outcome(trouble=_trouble(planned.problem))
    if planned.withdrawn:
        return Outcome(trouble=_trouble(planned.withdrawn))
    blocked = {
        (port.port.port, port.port.protocol): Trouble("PortUnavailable", port.problem.message)
        for port in planned.ports
        if port.problem and not port.listeners and port.problem.reason is not Reason.LISTENERS_NOT_VALID
    }
    orders = tuple(ordered(_ORDERED[notice.reason], notice.message) for notice in ordered_of(planned.notices))
    places = {
        (port.port, port.protocol): " ".join(place(at, port.number) for at in planned.addresses)
        for port in planned.mapped
    }
    return Outcome(planned.addresses, ports=blocked, ordered=orders, hostname=planned.hostname, places=places)


def _trouble(problem: Problem) -> Trouble:
    return Trouble(OF_PROGRAMMED.get(problem.reason, INVALID), problem.message)


def _of_placements(
    placements: Sequence[Placement], bound: Sequence[Bound | None], settings: Settings, tell: _Telling
) -> Sequence[tuple[Placement, Outcome | None]]:
    """Return placements with their statuses, and the outcomes of Gateways; most are unchanged."""
    known: Memo[tuple[Placement, Outcome | None]] = tell.memory.of("placed", Memo)
    known.within(tell.snapshot.home, tell.snapshot.access, settings)

    def made(placement: Placement, bound: Bound | None) -> tuple[Placement, Outcome | None]:
        with_status, outcome = _with_status(placement, bound, tell)
        return with_ingresses(with_status, bound, tell.snapshot, settings), outcome

    return known.each(made, placements, bound)


def _served(outcomes: Sequence[tuple[object, Outcome | None]], bound: Sequence[Bound | None]) -> _Served:
    """Return the Gateways among what is bound, each with its outcome."""
    pairs = zip(bound, (outcome for _, outcome in outcomes), strict=True)
    return [(gateway, outcome) for gateway, outcome in pairs if outcome and isinstance(gateway, BoundGateway)]


def _of_cluster(objects: GatewayObjects, served: _Served, gateways: Gateways) -> _Served:
    """Return the served objects of one cluster: mostly it is the only one."""
    if len(gateways.clusters) == 1:
        return served
    return [(gateway, outcome) for gateway, outcome in served if gateway.key.cluster == objects.cluster]


def _with_status(planned: _Planned, bound: Bound | None, tell: _Telling) -> tuple[_Planned, Outcome | None]:
    """Add the status of a Gateway of a running cluster; return its outcome, too."""
    if not isinstance(bound, BoundGateway):
        return planned, None
    key, outcome = planned.key, outcome_of(planned)
    if not planned.access:
        return planned, outcome
    status = tell.planned(key.cluster, key, gateway_status, bound, outcome)
    with_told: _Planned = tell.memory.of((key, "told"), lambda it, status: replace(it, status=status), planned, status)
    return with_told, outcome


def _others(objects: GatewayObjects, served: _Served, settings: Settings, tell: _Telling) -> Sequence[PlannedStatus]:
    """Return the statuses of all but Gateways in one cluster, of which those are `served`."""
    cluster = objects.cluster
    shared = shared_objects(objects, tell.memory)
    backends, bound = Backends(shared), [gateway for gateway, _ in served]
    policies = gateways_by_policy(bound, backends.policies) if shared.policies else ()
    of_policy = partial(_of_policy, policies=backends.policies)
    return [
        *(
            tell.planned(cluster, gateway_class.meta.key, class_status, gateway_class)
            for gateway_class in our_classes(objects, settings.gateway_classes)
        ),
        *_of_sets(objects, served, shared, tell),
        *_of_routes(cluster, bound, backends, shared, tell),
        *(tell.planned(cluster, policy.reference, of_policy, policy, names, shared) for policy, names in policies),
    ]


def _of_sets(
    objects: GatewayObjects, served: _Served, shared: GatewayObjects, tell: _Telling
) -> Iterator[PlannedStatus]:
    """Return the statuses of ListenerSets of Gateways."""
    sets: dict[Reference, list[ListenerSet]] = {}
    for listener_set in objects.listener_sets:
        sets.setdefault(listener_set.parent, []).append(listener_set)
    for gateway, outcome in served if sets else ():
        for set_ in sets.get(gateway.gateway.reference, ()):
            yield tell.planned(objects.cluster, set_.reference, listener_set_status, set_, gateway, outcome, shared)


def _of_routes(
    cluster: ClusterName, bound: Sequence[BoundGateway], backends: Backends, shared: GatewayObjects, tell: _Telling
) -> Iterable[PlannedStatus]:
    """Return the statuses of routes in the order of names; routes of a single Gateway are computed together."""
    memory = tell.memory
    said = _each(memory, cluster, "said").each(verdicts_of, bound)
    named = _each(memory, cluster, "named").each(tuple, said)
    several = memory.of((cluster, "several"), _several, *named)
    shares = _each(memory, cluster, "shares", several).each(several.intersection, said)
    of_gateways: Memo[AnyMemo] = memory.of((cluster, "known"), Memo)
    known = [of_gateways.of(gateway.key, Memo) for gateway in bound]  # of each of its routes, while the Gateway changes
    of_gateways.evict_unused()

    def planned(telling: _Telling, reference: Reference, verdicts: tuple[ParentVerdict, ...]) -> PlannedStatus:
        return telling.planned(cluster, reference, lambda said, _: route_status(said, backends), verdicts, shared)

    def together(known: AnyMemo, said: _Said, several: frozenset[Reference]) -> _Statuses:
        telling = _Telling(tell.snapshot, known)
        made = {name: planned(telling, name, verdicts) for name, verdicts in said.items() if name not in several}
        known.evict_unused()
        return tuple(made), tuple(made.values())

    frame = shared, tell.snapshot.home, tell.snapshot.access[cluster]
    groups = [*_each(memory, cluster, "routes", *frame).each(together, known, said, shares)]
    if several:
        made = {name: planned(tell, name, verdicts) for name, verdicts in verdicts_by_route(bound) if name in several}
        groups.append((tuple(made), tuple(made.values())))
    names, status_groups = zip(*groups, strict=True) if groups else ((), ())
    statuses = tuple(chain.from_iterable(status_groups))
    in_order: _InOrder = memory.of((cluster, "order"), _order, *names)
    return in_order(statuses)


def _each(memory: AnyMemo, cluster: ClusterName, what: str, *frame: object) -> AnyMemo:
    """Return the cache of each Gateway of a cluster within a frame."""
    known: AnyMemo = memory.of((cluster, what), Memo)
    known.within(*frame)
    return known


def _several(*names: tuple[Reference, ...]) -> frozenset[Reference]:
    """Return the names that are in several of these."""
    return frozenset(name for name, count in Counter(chain.from_iterable(names)).items() if count > 1)


def _order(*names: tuple[Reference, ...]) -> _InOrder:
    """Return what puts statuses into the order in which all names together are sorted."""
    every = tuple(chain.from_iterable(names))
    order = sorted(range(len(every)), key=every.__getitem__)
    return itemgetter(*order) if len(order) > 1 else tuple


def _of_policy(
    policy: BackendTlsPolicy, gateways: tuple[Named, ...], _shared: GatewayObjects, policies: Policies
) -> ApiStatus:
    return ApiStatus(policy.reference, policy.meta, policy_status(policy, policies, gateways))
