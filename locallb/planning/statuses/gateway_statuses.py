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
from locallb.gateway.conditions import DRAINED, FAULT_ORDERED, INVALID, OF_PROGRAMMED, Failure, ordered
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
_Stated: TypeAlias = Mapping[Reference, tuple[ParentVerdict, ...]]
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
    report_to = _PublishContext(snapshot, memory or Memo())
    bound = [gateways.bound.get(placement.key) for placement in plan.placements]
    refused_bound = [gateways.bound.get(rejection.key) for rejection in plan.rejections]
    placed = _of_placements(plan.placements, bound, settings, report_to)
    refused = [_with_status(*pair, report_to) for pair in zip(plan.rejections, refused_bound, strict=True)]
    served = _served((*placed, *refused), (*bound, *refused_bound))
    served = sorted(served, key=lambda both: both[0].key) if refused else served
    others = (_others(objects, _of_cluster(objects, served, gateways), settings, report_to) for objects in live)
    with_published = replace(
        plan,
        placements=tuple(placement for placement, _ in placed),
        rejections=tuple(with_news(rejection, gateways.bound.get(rejection.key), snapshot) for rejection, _ in refused),
        statuses=tuple(chain.from_iterable(others)),
    )
    report_to.memory.evict_unused()
    return with_published


class _PublishContext(Struct, frozen=True):
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
        return Outcome(failure=_failure(planned.problem))
    if planned.withdrawn:
        return Outcome(failure=_failure(planned.withdrawn))
    blocked = {
        (port.port.port, port.port.protocol): Failure("PortUnavailable", port.problem.message)
        for port in planned.ports
        if port.problem and not port.listeners and port.problem.reason is not Reason.LISTENERS_NOT_VALID
    }
    overrides = tuple(ordered(_ORDERED[notice.reason], notice.message) for notice in ordered_of(planned.notices))
    places = {
        (port.port, port.protocol): " ".join(place(at, port.number) for at in planned.addresses)
        for port in planned.mapped
    }
    return Outcome(planned.addresses, ports=blocked, ordered=overrides, hostname=planned.hostname, places=places)


def _failure(problem: Problem) -> Failure:
    return Failure(OF_PROGRAMMED.get(problem.reason, INVALID), problem.message)


def _of_placements(
    placements: Sequence[Placement], bound: Sequence[Bound | None], settings: Settings, report_to: _PublishContext
) -> Sequence[tuple[Placement, Outcome | None]]:
    """Return placements with their statuses, and the outcomes of Gateways; most are unchanged."""
    existing: Memo[tuple[Placement, Outcome | None]] = report_to.memory.of("placed", Memo)
    existing.within(report_to.snapshot.home, report_to.snapshot.access, settings)

    def made(placement: Placement, bound: Bound | None) -> tuple[Placement, Outcome | None]:
        with_status, outcome = _with_status(placement, bound, report_to)
        return with_ingresses(with_status, bound, report_to.snapshot, settings), outcome

    return existing.each(made, placements, bound)


def _served(outcomes: Sequence[tuple[object, Outcome | None]], bound: Sequence[Bound | None]) -> _Served:
    """Return the Gateways among what is bound, each with its outcome."""
    pairs = zip(bound, (outcome for _, outcome in outcomes), strict=True)
    return [(gateway, outcome) for gateway, outcome in pairs if outcome and isinstance(gateway, BoundGateway)]


def _of_cluster(objects: GatewayObjects, served: _Served, gateways: Gateways) -> _Served:
    """Return the served objects of one cluster: mostly it is the only one."""
    if len(gateways.clusters) == 1:
        return served
    return [(gateway, outcome) for gateway, outcome in served if gateway.key.cluster == objects.cluster]


def _with_status(planned: _Planned, bound: Bound | None, report_to: _PublishContext) -> tuple[_Planned, Outcome | None]:
    """Add the status of a Gateway of a running cluster; return its outcome, too."""
    if not isinstance(bound, BoundGateway):
        return planned, None
    key, outcome = planned.key, outcome_of(planned)
    if not planned.access:
        return planned, outcome
    status = report_to.planned(key.cluster, key, gateway_status, bound, outcome)
    with_published: _Planned = report_to.memory.of(
        (key, "told"), lambda it, status: replace(it, status=status), planned, status
    )
    return with_published, outcome


def _others(
    objects: GatewayObjects, served: _Served, settings: Settings, report_to: _PublishContext
) -> Sequence[PlannedStatus]:
    """Return the statuses of all but Gateways in one cluster, of which those are `served`."""
    cluster = objects.cluster
    shared = shared_objects(objects, report_to.memory)
    backends, bound = Backends(shared), [gateway for gateway, _ in served]
    policies = gateways_by_policy(bound, backends.policies) if shared.policies else ()
    of_policy = partial(_of_policy, policies=backends.policies)
    return [
        *(
            report_to.planned(cluster, gateway_class.meta.key, class_status, gateway_class)
            for gateway_class in our_classes(objects, settings.gateway_classes)
        ),
        *_of_sets(objects, served, shared, report_to),
        *_of_routes(cluster, bound, backends, shared, report_to),
        *(report_to.planned(cluster, policy.reference, of_policy, policy, names, shared) for policy, names in policies),
    ]


def _of_sets(
    objects: GatewayObjects, served: _Served, shared: GatewayObjects, report_to: _PublishContext
) -> Iterator[PlannedStatus]:
    """Return the statuses of ListenerSets of Gateways."""
    sets: dict[Reference, list[ListenerSet]] = {}
    for listener_set in objects.listener_sets:
        sets.setdefault(listener_set.parent, []).append(listener_set)
    for gateway, outcome in served if sets else ():
        for set_ in sets.get(gateway.gateway.reference, ()):
            yield report_to.planned(
                objects.cluster, set_.reference, listener_set_status, set_, gateway, outcome, shared
            )


def _of_routes(
    cluster: ClusterName,
    bound: Sequence[BoundGateway],
    backends: Backends,
    shared: GatewayObjects,
    report_to: _PublishContext,
) -> Iterable[PlannedStatus]:
    """Return the statuses of routes in the order of names; routes of a single Gateway are computed together."""
    memory = report_to.memory
    stated = _each(memory, cluster, "said").each(verdicts_of, bound)
    named = _each(memory, cluster, "named").each(tuple, stated)
    several = memory.of((cluster, "several"), _several, *named)
    shares = _each(memory, cluster, "shares", several).each(several.intersection, stated)
    of_gateways: Memo[AnyMemo] = memory.of((cluster, "known"), Memo)
    existing = [
        of_gateways.of(gateway.key, Memo) for gateway in bound
    ]  # of each of its routes, while the Gateway changes
    of_gateways.evict_unused()

    def planned(reporting: _PublishContext, reference: Reference, verdicts: tuple[ParentVerdict, ...]) -> PlannedStatus:
        return reporting.planned(cluster, reference, lambda stated, _: route_status(stated, backends), verdicts, shared)

    def together(existing: AnyMemo, stated: _Stated, several: frozenset[Reference]) -> _Statuses:
        reporting = _PublishContext(report_to.snapshot, existing)
        made = {name: planned(reporting, name, verdicts) for name, verdicts in stated.items() if name not in several}
        existing.evict_unused()
        return tuple(made), tuple(made.values())

    frame = shared, report_to.snapshot.home, report_to.snapshot.access[cluster]
    groups = [*_each(memory, cluster, "routes", *frame).each(together, existing, stated, shares)]
    if several:
        made = {
            name: planned(report_to, name, verdicts) for name, verdicts in verdicts_by_route(bound) if name in several
        }
        groups.append((tuple(made), tuple(made.values())))
    names, status_groups = zip(*groups, strict=True) if groups else ((), ())
    statuses = tuple(chain.from_iterable(status_groups))
    in_order: _InOrder = memory.of((cluster, "order"), _order, *names)
    return in_order(statuses)


def _each(memory: AnyMemo, cluster: ClusterName, what: str, *frame: object) -> AnyMemo:
    """Return the cache of each Gateway of a cluster within a frame."""
    existing: AnyMemo = memory.of((cluster, what), Memo)
    existing.within(*frame)
    return existing


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
