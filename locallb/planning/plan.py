"""From a snapshot to a plan: for each Service a placement or a rejection, and the proxies that serve the placements.

The planner takes everything as arguments and returns data; equal inputs give equal plans, in any order. Three kinds of
result: what to run (`Plan.proxies`), what it serves (inside each proxy) and what to tell the user (placements' port
problems, rejections, notices). Not here: how a Service is read, where an address comes from, how Envoy is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from locallb.config.settings import PodRouting, Settings
from locallb.envoy.http import watched_by_chains
from locallb.gateway.routes.bound import Bound
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner
from locallb.model.objects import Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses.allocation import Answer
from locallb.planning.admission import Admission, admit
from locallb.planning.backends.index import BackendIndex
from locallb.planning.backends.nodes import eligible
from locallb.planning.gateways.gateways import with_gateways, with_orders
from locallb.planning.gateways.serving import backends_of
from locallb.planning.last_plan import LastPlan
from locallb.planning.left_out import left_out, unused_pins
from locallb.planning.memory import PlanMemory, beside
from locallb.planning.names import with_names
from locallb.planning.notices import TOLD_OF_THE_STACK, notices_of, of_faults
from locallb.planning.planned import Plan, Rejection
from locallb.planning.planned_for_clusters import PlannedRoutes
from locallb.planning.ports import HostPorts, PortProblems
from locallb.planning.proxies.assignment import ProxyAssignment
from locallb.planning.proxies.placing import Placed, PlacementInputs, PlanContext
from locallb.planning.routes.pod_routes import RoutePlan, routes_to_gain
from locallb.planning.selection import is_ours
from locallb.planning.statuses.gateway_statuses import with_statuses


def make_plan(snapshot: Snapshot, settings: Settings, memory: PlanMemory | None = None) -> Plan:
    """Decide for every Service of the snapshot what it gets; `memory` of earlier plans saves work."""
    memory = memory or PlanMemory()
    memory.last = _with_few_others(snapshot, settings, memory) or _planned(snapshot, settings, memory)
    return memory.last.plan


def _with_few_others(snapshot: Snapshot, settings: Settings, memory: PlanMemory) -> LastPlan | None:
    """Place again who alone may be placed otherwise than in the last plan; None where all is to be planned."""
    last = memory.last
    others = last.others(snapshot, settings) if last else None
    if last is None or others is None:
        return None
    inputs = _Inputs.of(snapshot, settings, memory, {})
    if any(map(inputs.ports.problems, others)):
        return None
    some = [memory.place_alone(inputs.frame, inputs.given({}, *last.asked(service))) for service in others]
    return last.with_others(snapshot, some)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What all placements are made from besides their Services."""

    snapshot: Snapshot
    settings: Settings
    ports: HostPorts
    routing: RoutePlan
    index: BackendIndex
    lone: Mapping[ClusterName, str]
    """Sentences about clusters of which every Node is used although all are excluded."""
    gateways: Mapping[ObjectKey, Bound]
    frame: PlanContext

    @classmethod
    def of(
        cls, snapshot: Snapshot, settings: Settings, memory: PlanMemory, gateways: Mapping[ObjectKey, Bound]
    ) -> _Inputs:
        """Look up what is behind Services, and what this host has."""
        nodes, lone = eligible(snapshot.nodes)
        routing = memory.routing(snapshot, settings)
        index = BackendIndex.within(snapshot, nodes, settings, routing.routes)
        frame = PlanContext.of(snapshot.home, settings, snapshot.host)
        return cls(snapshot, settings, HostPorts(snapshot.host), routing, index, lone, gateways, frame)

    def given(
        self,
        problems: PortProblems,
        service: Service,
        addresses: tuple[IPAddress, ...],
        assignment: ProxyAssignment,
        gateway: Bound | None,
    ) -> PlacementInputs:
        """Return all that decides about the placement of one Service."""
        return PlacementInputs(
            service,
            addresses,
            assignment,
            backends_of(gateway, self.index) if gateway else self.index.of_service(service),
            problems,
            self.ports.taken(service, addresses),
            self.snapshot.access.get(service.key.cluster),
            (
                *notices_of(service, addresses, self.lone, self.snapshot, self.settings),
                *(of_faults(service, gateway.faults) if gateway else ()),
            ),
            gateway,
        )


def _planned(snapshot: Snapshot, settings: Settings, memory: PlanMemory) -> LastPlan:
    """Plan all of it: Services of ours get addresses, then proxies, then are placed; then everybody is told."""
    routed = with_orders(memory.gateways(snapshot, settings), snapshot.orders)
    inputs = _Inputs.of(with_gateways(snapshot, routed.bound), settings, memory, routed.bound)
    admitted = admit(inputs.snapshot, settings, memory.files(routed.bound, _files), memory, inputs.ports.problems)
    made = _place(inputs, admitted, memory)
    plan = Plan(
        placements=tuple(placed.placement for placed in made),
        proxies=(*(placed.own for placed in made if placed.own), *memory.of_stack(admitted.assigned, inputs.frame)),
        rejections=_rejections(inputs.snapshot, settings, admitted.refused, len(made)),
        routes=_on_host(inputs.routing, snapshot.home, settings),
        notices=(*_notices(inputs, made), *routed.notices),
    )
    plan = with_names(plan, inputs.snapshot, routed.bound, inputs.frame)
    plan = with_statuses(plan, routed, inputs.snapshot, settings, memory.statuses)
    gain = routes_to_gain(plan, inputs.snapshot, settings, memory.routing)
    left = (*left_out(inputs.snapshot, plan, settings), *routed.left_out, *snapshot.hints, *gain)
    return LastPlan(snapshot, settings, replace(plan, left_out=left) if left else plan, tuple(made), admitted.where)


def _place(inputs: _Inputs, admitted: Admission, memory: PlanMemory) -> Sequence[Placed]:
    """Place all Services that have a proxy, in order."""
    services, gateways = admitted.services, inputs.gateways
    bound = [gateways.get(one.key) for one in services]
    bound = [*map(_mapped, bound, services)] if inputs.settings.port_mapping else bound
    return memory.place(
        inputs.frame,
        beside(inputs.snapshot, inputs.settings),
        (services, admitted.addresses, admitted.assignments, bound),
        lambda service, *others: inputs.given(admitted.problems[service.key], service, *others),
    )


def _notices(inputs: _Inputs, made: Sequence[Placed]) -> tuple[str, ...]:
    """Return what the stack's user is told besides Gateways' notices."""
    of_services = [n.message for placed in made for n in placed.placement.notices if n.reason in TOLD_OF_THE_STACK]
    pins = unused_pins(inputs.snapshot, inputs.settings)
    return (*inputs.lone.values(), *of_services, *inputs.routing.notices, *pins)


def _mapped(gateway: Bound | None, service: Service) -> Bound | None:
    """Return what is bound for a Service, with its ports where those are mapped."""
    if gateway is None or gateway.want.ports == service.ports:
        return gateway
    return replace(gateway, want=replace(gateway.want, ports=service.ports))


def _files(gateway: Bound) -> int:
    """Count what the proxy of a Gateway or of Ingresses wants to watch."""
    chains = [chain for served in gateway.chains.values() for chain in served]
    secured = [target.tls for target in gateway.targets.values() if target.tls]
    of_targets = len(gateway.targets) + sum(bool(tls.authorities) + 2 * bool(tls.client) for tls in secured)
    return of_targets + watched_by_chains(chains, len(gateway.want.families))


def _on_host(routing: RoutePlan, home: Home, settings: Settings) -> tuple[PlannedRoutes, ...]:
    """Return the routes in this host's table; those of containers belong to their proxies."""
    if settings.pod_routes is not PodRouting.HOST:
        return ()
    return tuple(PlannedRoutes(cluster, home, routes) for cluster, routes in routing.routes.items())


def _rejections(
    snapshot: Snapshot,
    settings: Settings,
    refused: Mapping[ObjectKey, Answer],
    running: int,
) -> tuple[Rejection, ...]:
    """Return for every Service without a proxy why it has none."""
    uids = {service.key: service.uid for service in snapshot.services if service.key in refused} if refused else {}
    problems = [
        (key, answer if isinstance(answer, Problem) else _host_limit(key, snapshot, running), uids[key])
        for key, answer in refused.items()
    ]
    malformed = (one for one in snapshot.malformed if is_ours(one, settings) and not one.deleting)
    problems += [(one.key, one.problem, one.uid) for one in malformed]
    return tuple(
        Rejection(key, problem, Owner(snapshot.home, key, uid), snapshot.access.get(key.cluster))
        for key, problem, uid in sorted(problems)
    )


def _host_limit(key: ObjectKey, snapshot: Snapshot, running: int) -> Problem:
    return Problem(
        Reason.HOST_LIMIT,
        f"{key}: this host's {snapshot.host.watches} free inotify instances carry {running} proxies and no more; "
        "as root, `locallb host setup --apply` (or `sysctl -w fs.inotify.max_user_instances=8192`) makes room",
    )
