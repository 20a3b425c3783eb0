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
from locallb.planning.addresses.port_mapping import map_ports
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
    allocation = _allocate(inputs, memory)
    assigned = memory.assignments(
        [one for one in allocation.servable if one.key in allocation.given],
        inputs.snapshot,
        settings.proxies,
        memory.files(routed.bound, _files),
    )
    made = _place(inputs, allocation, assigned.assignments, memory)
    plan = Plan(
        placements=tuple(placed.placement for placed in made),
        proxies=(*(placed.own for placed in made if placed.own), *memory.of_stack(assigned, inputs.frame)),
        rejections=_rejections(inputs.snapshot, settings, allocation.refused, assigned.assignments),
        routes=_on_host(inputs.routing, snapshot.home, settings),
        notices=(*_notices(inputs, made), *routed.notices),
    )
    plan = with_names(plan, inputs.snapshot, routed.bound, inputs.frame)
    plan = with_statuses(plan, routed, inputs.snapshot, settings, memory.statuses)
    gain = routes_to_gain(plan, inputs.snapshot, settings, memory.routing)
    left = (*left_out(inputs.snapshot, plan, settings), *routed.left_out, *snapshot.hints, *gain)
    where = {one.placement.key: (number, assigned.assignments[one.placement.key]) for number, one in enumerate(made)}
    return LastPlan(snapshot, settings, replace(plan, left_out=left) if left else plan, tuple(made), where)


@dataclass(frozen=True, slots=True)
class _Allocation:
    """Which addresses Services of ours get."""

    servable: list[Service]
    given: Mapping[ObjectKey, tuple[IPAddress, ...]]
    refused: Mapping[ObjectKey, Answer]
    """All answers, and why no port can be served of those that aren't refused anyway."""
    problems: Mapping[ObjectKey, PortProblems]
    """Why single ports can't be served."""


def _allocate(inputs: _Inputs, memory: PlanMemory) -> _Allocation:
    """Select the Services that are ours and can be served here, and give them addresses."""
    snapshot, settings = inputs.snapshot, inputs.settings
    wanted = memory.ours(snapshot.services, settings)
    mapped = memory.mapped(map_ports(snapshot, wanted)) if settings.port_mapping else None
    wanted = list(mapped.services) if mapped else wanted
    problems = memory.problems(snapshot.host, wanted, inputs.ports.problems)
    servable, unservable = _by_servable_ports(wanted, problems)
    answers = mapped.answers if mapped else memory.allocate(snapshot, servable, settings)
    given = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
    unserved = {key: problem for key, problem in unservable.items() if not isinstance(answers.get(key), Problem)}
    return _Allocation(servable, given, {**answers, **unserved}, problems)


def _place(
    inputs: _Inputs, allocation: _Allocation, assignments: Mapping[ObjectKey, ProxyAssignment], memory: PlanMemory
) -> Sequence[Placed]:
    """Place all Services that have a proxy, in order."""
    in_order = sorted((one for one in allocation.servable if one.key in assignments), key=lambda service: service.key)
    addresses, gateways = allocation.given, inputs.gateways
    asked = [(one, addresses[one.key], assignments[one.key], _mapped(gateways.get(one.key), one)) for one in in_order]
    return memory.place(
        inputs.frame,
        beside(inputs.snapshot, inputs.settings),
        asked,
        lambda service, *others: inputs.given(allocation.problems[service.key], service, *others),
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


def _by_servable_ports(
    services: list[Service], problems: Mapping[ObjectKey, PortProblems]
) -> tuple[list[Service], Mapping[ObjectKey, Problem]]:
    """Set apart the Services of which no port can be served here."""
    servable, unservable = [], {}
    for service in services:
        mine = problems[service.key]
        if mine and all(port in mine for port in service.ports):
            unservable[service.key] = mine[service.ports[0]]
        else:
            servable.append(service)
    return servable, unservable


def _rejections(
    snapshot: Snapshot,
    settings: Settings,
    answers: Mapping[ObjectKey, Answer],
    assignments: Mapping[ObjectKey, ProxyAssignment],
) -> tuple[Rejection, ...]:
    """Return for every Service without a proxy why it has none."""
    without = {key: answer for key, answer in answers.items() if key not in assignments}
    uids = {service.key: service.uid for service in snapshot.services if service.key in without} if without else {}
    problems = [
        (key, answer if isinstance(answer, Problem) else _host_limit(key, snapshot, len(assignments)), uids[key])
        for key, answer in without.items()
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
