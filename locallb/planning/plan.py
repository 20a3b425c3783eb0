"""From a snapshot to a plan: for each Service a placement or a rejection, and the proxies that serve the placements.

The planner takes everything as arguments and returns data; equal inputs give equal plans, in any order. Three kinds of
result: what to run (`Plan.proxies`), what it serves (inside each proxy) and what to tell the user (placements' port
problems, rejections, notices). Not here: reading Services, choosing addresses, Envoy's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.envoy.http import watched_by_chains
from locallb.gateway.routes.bound import Bound
from locallb.model.identities import ClusterName, IPAddress, ObjectKey, Owner
from locallb.model.objects import Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.addresses.allocation import Answer
from locallb.planning.admission import Admission, admit
from locallb.planning.backends.index import BackendIndex
from locallb.planning.backends.nodes import eligible
from locallb.planning.gateways.gateways import Gateways, with_gateways, with_orders
from locallb.planning.gateways.serving import backends_of
from locallb.planning.last_plan import LastPlan
from locallb.planning.left_out import left_out, unused_pins
from locallb.planning.memory import PlanMemory
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
    memory.last = _place_only_changed(snapshot, settings, memory) or _plan_everything(snapshot, settings, memory)
    return memory.last.plan


def _plan_everything(snapshot: Snapshot, settings: Settings, memory: PlanMemory) -> LastPlan:
    """Give each Service addresses, then a proxy, place it there, and plan the statuses of all objects."""
    gateways = with_orders(memory.gateways(snapshot, settings), snapshot.orders)
    inputs = _Inputs.of(with_gateways(snapshot, gateways.bound), settings, memory, gateways.bound)
    admission = _admit(inputs, memory)
    placed = _place(inputs, admission, memory)
    plan = Plan(
        placements=tuple(placed_service.placement for placed_service in placed),
        proxies=(
            *(placed_service.own for placed_service in placed if placed_service.own),
            *memory.of_stack(admission.assigned, inputs.frame),
        ),
        rejections=_rejections(inputs.snapshot, settings, admission.refused, len(placed)),
        routes=_routes_of_host(inputs),
        notices=(*_notices(inputs, placed), *gateways.notices),
        refused=gateways.refused,
    )
    plan = with_names(plan, inputs.snapshot, gateways.bound, inputs.frame)
    plan = with_statuses(plan, gateways, inputs.snapshot, settings, memory.statuses)
    plan = replace(plan, left_out=_left_out(inputs, plan, gateways, memory))
    return LastPlan(snapshot, settings, plan, tuple(placed), admission.where)


def _place_only_changed(snapshot: Snapshot, settings: Settings, memory: PlanMemory) -> LastPlan | None:
    """Place again only the Services that may be placed otherwise; None where everything is to be planned."""
    last = memory.last
    changed = last.others(snapshot, settings) if last else None
    if last is None or changed is None or not memory.seats_the_same(last.snapshot, snapshot, settings):
        return None
    inputs = _Inputs.of(snapshot, settings, memory, {})
    if any(map(inputs.ports.problems, changed)):
        return None
    placed = [memory.place_alone(inputs.frame, inputs.given({}, *last.asked(service))) for service in changed]
    return last.with_others(snapshot, placed)


class _Inputs(Struct, frozen=True):
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
        """Index the backends of Services and this host's facts."""
        nodes, lone = eligible(snapshot.nodes)
        routing = memory.routing(snapshot, settings)
        slices = memory.slices.of(snapshot.slices)
        index = BackendIndex.within(snapshot, nodes, settings, routing.routes, slices)
        frame = PlanContext.of(snapshot.home, settings, snapshot.host)
        return cls(snapshot, settings, memory.ports(snapshot.host), routing, index, lone, gateways, frame)

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


def _admit(inputs: _Inputs, memory: PlanMemory) -> Admission:
    """Decide which Services are served, at which addresses and by which proxy."""
    watched = memory.files(inputs.gateways, _count_watched_files)
    return admit(inputs.snapshot, inputs.settings, watched, memory, inputs.ports.problems)


def _place(inputs: _Inputs, admission: Admission, memory: PlanMemory) -> Sequence[Placed]:
    """Place all Services that have a proxy, in order."""
    services, gateways = admission.services, inputs.gateways
    bound = [gateways.get(service.key) for service in services]
    bound = [*map(_mapped, bound, services)] if inputs.settings.port_mapping else bound
    return memory.place(
        inputs.frame,
        _beside(inputs.snapshot, inputs.settings),
        (services, admission.addresses, admission.assignments, bound),
        lambda service, *others: inputs.given(admission.problems[service.key], service, *others),
    )


def _beside(snapshot: Snapshot, settings: Settings) -> tuple[object, ...]:
    """Return all that a placement may depend on besides its own inputs.

    Except claims: they only name the owners of foreign addresses that its status lists.
    """
    reached = snapshot.host, snapshot.access, snapshot.health_ports, snapshot.node_routes
    world = snapshot.nodes, snapshot.slices, *reached
    return settings, snapshot.home, snapshot.authority, snapshot.orders, *world


def _notices(inputs: _Inputs, placed: Sequence[Placed]) -> tuple[str, ...]:
    """Return the notices of the stack, without those of Gateways."""
    notices = chain.from_iterable(placed_service.placement.notices for placed_service in placed)
    of_services = [notice.message for notice in notices if notice.reason in TOLD_OF_THE_STACK]
    pins = unused_pins(inputs.snapshot, inputs.settings)
    return (*inputs.lone.values(), *of_services, *inputs.routing.notices, *pins)


def _left_out(inputs: _Inputs, plan: Plan, gateways: Gateways, memory: PlanMemory) -> tuple[str, ...]:
    """Return what this stack doesn't serve, and what routes to pods would improve, for information."""
    snapshot, settings = inputs.snapshot, inputs.settings
    gain = routes_to_gain(plan, snapshot, settings, memory.routing)
    return (*left_out(snapshot, plan, settings), *gateways.left_out, *snapshot.hints, *gain)


def _mapped(gateway: Bound | None, service: Service) -> Bound | None:
    """Return the bound Gateway or Ingresses with the Service's ports, which may be mapped."""
    if gateway is None or gateway.want.ports == service.ports:
        return gateway
    return replace(gateway, want=replace(gateway.want, ports=service.ports))


def _count_watched_files(gateway: Bound) -> int:
    """Count what the proxy of a Gateway or of Ingresses wants to watch."""
    chains = [chain for served in gateway.chains.values() for chain in served]
    secured = [target.tls for target in gateway.targets.values() if target.tls]
    of_targets = len(gateway.targets) + sum(bool(tls.authorities) + 2 * bool(tls.client) for tls in secured)
    return of_targets + watched_by_chains(chains, len(gateway.want.families))


def _routes_of_host(inputs: _Inputs) -> tuple[PlannedRoutes, ...]:
    """Return the routes in this host's table; those of containers belong to their proxies."""
    if inputs.settings.pod_routes is not PodRouting.HOST:
        return ()
    home = inputs.snapshot.home
    return tuple(PlannedRoutes(cluster, home, routes) for cluster, routes in inputs.routing.routes.items())


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
    malformed = (service for service in snapshot.malformed if is_ours(service, settings) and not service.deleting)
    problems += [(service.key, service.problem, service.uid) for service in malformed]
    return tuple(
        Rejection(key, problem, Owner(snapshot.home, key, uid), _written_to(key, problem, snapshot))
        for key, problem, uid in sorted(problems)
    )


def _written_to(key: ObjectKey, problem: Problem, snapshot: Snapshot) -> Access | None:
    """Return where a Service is told why it has nothing; nothing is written to those of other controllers."""
    return None if problem.reason is Reason.SERVED_BY_ANOTHER else snapshot.access.get(key.cluster)


def _host_limit(key: ObjectKey, snapshot: Snapshot, running: int) -> Problem:
    return Problem(
        Reason.HOST_LIMIT,
        f"{key}: this host's {snapshot.host.watches} free inotify instances carry {running} proxies and no more; "
        "as root, `locallb host setup --yes` (or `sysctl -w fs.inotify.max_user_instances=8192`) makes room",
    )
