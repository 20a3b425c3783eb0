"""The statuses and events in a plan for live clusters: of Gateway API objects and of Ingresses. Manifests get none.

A Gateway's status goes with its placement or rejection, an Ingress' with its placement, all others with the plan.
Events are of Ingresses only, with the placement or the rejection.

Two functions change a plan by what proxies report, `withdraw` and `mark_unanswered`: addresses stay claimed and the
proxies wanted, so that a repair goes on. Not here: the content of a status (`gateway.statuses`, `ingress.translation`),
which proxies are down, and how long a port must be silent (`watch.failures`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.gateway.attachment import ParentVerdict
from locallb.gateway.backend_tls import BackendTlsPolicies, policy_status
from locallb.gateway.routes import Backends, Bound
from locallb.gateway.statuses import (
    ApiStatus,
    GatewayResult,
    class_status,
    gateway_status,
    gateways_by_policy,
    listener_set_status,
    route_status,
    verdicts_by_route,
    verdicts_of,
)
from locallb.gateway.translation import BoundGateway, our_classes, shared_objects
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.ingress.translation import BoundIngresses, IngressFailure, ingress_statuses, served_text
from locallb.model.gateway_objects import BackendTlsPolicy, ListenerSet, Named, Reference
from locallb.model.gateway_of_cluster import GatewayObjects
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, ObjectKind, Owner, UpstreamName, place
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import ServicePort
from locallb.model.reasons import (
    DRAINED,
    FAULT_ORDERED,
    INVALID,
    OF_PROGRAMMED,
    Condition,
    Failure,
    Problem,
    Reason,
    ordered,
)
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.gateways import Gateways
from locallb.planning.names import published_hosts
from locallb.planning.notices import DRAIN, FAULT, ordered_of
from locallb.planning.planned import Placement, Plan, PlannedNews, PlannedPort, PlannedStatus, Rejection
from locallb.planning.service_rows import Observation


def withdraw(plan: Plan, down: Collection[str]) -> Plan:
    """Return the plan in which statuses of live clusters' Services behind these proxies are withdrawn.

    While a proxy can't be restarted its Services stay planned, and their statuses lose the addresses.
    """
    if not down:
        return plan
    placements = (
        _withdrawn(placement) if placement.access and placement.proxy in down else placement
        for placement in plan.placements
    )
    return replace(plan, placements=tuple(placements))


def _withdrawn(placement: Placement) -> Placement:
    sentence = (
        f"{placement.key}: its proxy ended or hangs, and isn't back yet; run `locallb doctor` on its host to see why"
    )
    return replace(placement, withdrawn=Problem(Reason.PROXY_DOWN, sentence), statuses=())


SILENCES = frozenset({Reason.BACKENDS_DOWN, Reason.UNREACHABLE})
"""Reasons of what may be published of such a port."""


class SilentPort(Struct, frozen=True):
    """A port, and an upstream of it of which no backend takes connections."""

    key: ObjectKey
    port: ServicePort
    upstream: UpstreamName


def published_silence(placement: Placement, condition: Condition) -> frozenset[SilentPort]:
    """Return the ports of a Service that a condition in its cluster calls silent; all that may be where it names none.

    What was published stands until the proxy reports otherwise, whatever has been restarted. A Service is unreachable
    for want of a route as well, which is over once it has one.
    """
    silence = {
        SilentPort(placement.key, port.port, name): problem
        for port in placement.ports
        for name, problem in port.silence.items()
    }
    if condition.status != "False" or condition.reason not in SILENCES:
        return frozenset()
    named = frozenset(port for port, problem in silence.items() if problem.message in condition.message)
    return named or (frozenset(silence) if condition.reason == Reason.BACKENDS_DOWN else frozenset())


def is_answered(placement: Placement, observed: Observation | None) -> bool:
    """Return whether every port serves by what its proxy reports, and by what is published."""
    names = [name for port in placement.ports for name in port.silence]
    served = not placement.withdrawn and not any(port.problem or port.unanswered for port in placement.ports)
    return observed is not None and served and bool(names) and all(observed.healthy.get(name) for name in names)


def mark_unanswered(plan: Plan, silent: Collection[SilentPort]) -> Plan:
    """Return the plan in which ports of objects of live clusters report that they are silent.

    A silent port has had no backend that takes connections for a while, as its proxy reported. Addresses stay: the port
    is served as soon as a backend answers.
    """
    keys = {each.key for each in silent}
    if not keys:
        return plan
    placements = (
        _marked(placement, silent) if placement.access and placement.key in keys else placement
        for placement in plan.placements
    )
    return replace(plan, placements=tuple(placements))


def _marked(placement: Placement, silent: Collection[SilentPort]) -> Placement:
    ports = tuple(_marked_port(placement.key, port, silent) for port in placement.ports)
    return replace(placement, ports=ports) if ports != placement.ports else placement


def _marked_port(key: ObjectKey, port: PlannedPort, silent: Collection[SilentPort]) -> PlannedPort:
    problems = (problem for name, problem in port.silence.items() if SilentPort(key, port.port, name) in silent)
    problem = None if port.problem else next(problems, None)
    return replace(port, unanswered=problem) if problem else port


def with_ingresses(placement: Placement, bound: Bound | None, snapshot: Snapshot, settings: Settings) -> Placement:
    """Add the statuses and events of Ingresses of a running cluster that are served at these addresses."""
    if not isinstance(bound, BoundIngresses) or not placement.access:
        return placement
    ports = tuple(planned.port for planned in placement.ports if planned.listeners)
    hosts = published_hosts(bound.ingresses, placement, settings.dns)
    statuses = ingress_statuses(bound, placement.addresses, ports, hosts) if ports else ()
    return replace(
        placement,
        statuses=tuple(planned_status(status, placement.key.cluster, snapshot) for status in statuses),
        news=tuple(_news(bound, snapshot, _Outcome(placement.addresses, ports, placement.unreached))),
    )


def with_news(rejection: Rejection, bound: Bound | None, snapshot: Snapshot) -> Rejection:
    """Add the events of Ingresses of a running cluster that get no address."""
    if not isinstance(bound, BoundIngresses) or not rejection.access:
        return rejection
    return replace(rejection, news=tuple(_news(bound, snapshot, _Outcome(why=rejection.problem.message))))


class _Outcome(NamedTuple):
    """Where Ingresses are served, and the Services that this host has no route to; `why` if nowhere."""

    addresses: Sequence[IPAddress] = ()
    ports: Sequence[ServicePort] = ()
    unreached: Mapping[Named, Problem] = MappingProxyType({})
    why: str = ""


def _news(bound: BoundIngresses, snapshot: Snapshot, outcome: _Outcome) -> Iterator[PlannedNews]:
    """Return the events of each Ingress."""
    cluster, failures = bound.key.cluster, dict[Named, list[IngressFailure]]()
    for failure in bound.failures:
        failures.setdefault(failure.of, []).append(failure)
    for ingress in bound.ingresses:
        key = ObjectKey(cluster, *ingress.meta.key, ObjectKind.INGRESS)
        of_it = failures.get(ingress.meta.key, ())
        refused = tuple(failure.message for failure in of_it if failure.is_own)
        services = ingress.services if outcome.unreached else frozenset()
        unreached = sorted(services & outcome.unreached.keys())
        others = (
            *([outcome.why] if outcome.why else []),
            *(failure.message for failure in of_it if not failure.is_own),
            *(str(outcome.unreached[service]) for service in unreached),
        )
        answers = outcome.ports and not (unreached and len(unreached) == len(services))
        is_served = answers and not ingress.problem and ingress.meta.key not in bound.shadowed
        serving = served_text(bound, ingress, outcome.addresses, outcome.ports) if is_served else ""
        owner = Owner(snapshot.home, key, ingress.meta.uid)
        yield PlannedNews(owner, snapshot.access[cluster], serving, refused, others)


def planned_status(status: ApiStatus, cluster: ClusterName, snapshot: Snapshot) -> PlannedStatus:
    """Return the status of an object of a cluster, as its resource gets it."""
    key = ObjectKey(cluster, *status.of.key, ObjectKind(ROUTED_KINDS[status.of.kind].plural))
    text = json.dumps(status.status, sort_keys=True)
    owner = Owner(snapshot.home, key, status.meta.uid)
    gateway = ObjectKey(cluster, *status.gateway, ObjectKind.GATEWAY) if status.gateway else None
    return PlannedStatus(owner, snapshot.access[cluster], text, status.meta.generation, gateway)


_Served: TypeAlias = Sequence[tuple[BoundGateway, GatewayResult]]
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
    others = (_others(objects, served, settings, report_to) for objects in live)
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


def outcome_of(planned: Placement | Rejection) -> GatewayResult:
    """Return what became of a Gateway, in the specification's reasons."""
    if isinstance(planned, Rejection):
        return GatewayResult(failure=_failure(planned.problem))
    if planned.withdrawn:
        return GatewayResult(failure=_failure(planned.withdrawn))
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
    return GatewayResult(planned.addresses, ports=blocked, ordered=overrides, hostname=planned.hostname, places=places)


def _failure(problem: Problem) -> Failure:
    return Failure(OF_PROGRAMMED.get(problem.reason, INVALID), problem.message)


def _of_placements(
    placements: Sequence[Placement], bound: Sequence[Bound | None], settings: Settings, report_to: _PublishContext
) -> Sequence[tuple[Placement, GatewayResult | None]]:
    """Return placements with their statuses, and the outcomes of Gateways; most are unchanged."""
    frame = report_to.snapshot.home, report_to.snapshot.access, settings
    existing: Memo[tuple[Placement, GatewayResult | None]] = report_to.memory.rows("placed", *frame)

    def made(placement: Placement, bound: Bound | None) -> tuple[Placement, GatewayResult | None]:
        with_status, outcome = _with_status(placement, bound, report_to)
        return with_ingresses(with_status, bound, report_to.snapshot, settings), outcome

    return existing.each(made, placements, bound)


def _served(outcomes: Sequence[tuple[object, GatewayResult | None]], bound: Sequence[Bound | None]) -> _Served:
    """Return the Gateways among what is bound, each with its outcome."""
    pairs = zip(bound, (outcome for _, outcome in outcomes), strict=True)
    return [(gateway, outcome) for gateway, outcome in pairs if outcome and isinstance(gateway, BoundGateway)]


def _with_status(
    planned: _Planned, bound: Bound | None, report_to: _PublishContext
) -> tuple[_Planned, GatewayResult | None]:
    """Add the status of a Gateway of a running cluster; return its outcome, too."""
    if not isinstance(bound, BoundGateway):
        return planned, None
    key, outcome = planned.key, outcome_of(planned)
    if not planned.access:
        return planned, outcome
    status = report_to.planned(key.cluster, key, gateway_status, bound, outcome)
    with_published: _Planned = report_to.memory.of(
        (key, "published"), lambda it, status: replace(it, status=status), planned, status
    )
    return with_published, outcome


def _others(
    objects: GatewayObjects, served: _Served, settings: Settings, report_to: _PublishContext
) -> Sequence[PlannedStatus]:
    """Return the statuses of all but Gateways in one cluster; `served` are the Gateways of all."""
    cluster = objects.cluster
    served = [each for each in served if each[0].key.cluster == cluster]
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
    stated = memory.rows((cluster, "said")).each(verdicts_of, bound)
    named = memory.rows((cluster, "named")).each(tuple, stated)
    several = memory.of((cluster, "several"), _several, *named)
    shares = memory.rows((cluster, "shares"), several).each(several.intersection, stated)
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
    groups = [*memory.rows((cluster, "routes"), *frame).each(together, existing, stated, shares)]
    if several:
        made = {
            name: planned(report_to, name, verdicts) for name, verdicts in verdicts_by_route(bound) if name in several
        }
        groups.append((tuple(made), tuple(made.values())))
    names, status_groups = zip(*groups, strict=True) if groups else ((), ())
    statuses = tuple(chain.from_iterable(status_groups))
    in_order: _InOrder = memory.of((cluster, "order"), _order, *names)
    return in_order(statuses)


def _several(*names: tuple[Reference, ...]) -> frozenset[Reference]:
    return frozenset(name for name, count in Counter(chain.from_iterable(names)).items() if count > 1)


def _order(*names: tuple[Reference, ...]) -> _InOrder:
    """Return what puts statuses into the order in which all names together are sorted."""
    every = tuple(chain.from_iterable(names))
    order = sorted(range(len(every)), key=every.__getitem__)
    return itemgetter(*order) if len(order) > 1 else tuple


def _of_policy(
    policy: BackendTlsPolicy, gateways: tuple[Named, ...], _shared: GatewayObjects, policies: BackendTlsPolicies
) -> ApiStatus:
    return ApiStatus(policy.reference, policy.meta, policy_status(policy, policies, gateways))
