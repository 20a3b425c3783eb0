"""From a snapshot to a plan: for each Service a placement or a rejection, and the proxies that serve the placements.

The planner takes everything as arguments and returns data; equal inputs give equal plans, in any order. Three kinds of
result: what to run (`Plan.proxies`), what it serves (inside each proxy) and reports to the user (placements' port
problems, rejections, notices). Not here: reading Services, choosing addresses, Envoy's configuration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.envoy.http_chains import watched_by_chains
from locallb.gateway.routes import Bound
from locallb.model.faults import NO_ORDER
from locallb.model.identities import LOCALHOST, ClusterName, Home, IPAddress, ObjectKey, Owner, ProxyName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import EndpointSlice, Node, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.relays import RelayWay
from locallb.model.serving import HeapBounds
from locallb.model.snapshot import Access, Claim, HostFacts, Snapshot, Socket
from locallb.planning.admission import Admitted, admit, occupied_ports
from locallb.planning.allocation import Answer
from locallb.planning.endpoints import BackendIndex, by_service, eligible
from locallb.planning.gateways import Gateways, gateways_of, with_gateways, with_overrides
from locallb.planning.localhost import LocalNames, local_names, local_urls
from locallb.planning.names import with_names
from locallb.planning.notices import STACK_NOTICES, notices_of, of_faults
from locallb.planning.own_classes import with_classes
from locallb.planning.own_nodes import with_nodes
from locallb.planning.planned import LocalUrl, Placement, Plan, PlannedProxy, PlannedRoutes, Rejection
from locallb.planning.pod_routes import (
    BackendPaths,
    RoutePlan,
    relayed_clusters,
    rights_to_gain,
    routes_of,
    routes_to_gain,
    straight,
    with_relays,
)
from locallb.planning.proxy_assignment import ProxyAssignments
from locallb.planning.proxy_placing import Placed, PlacementInputs, PlanContext, place, proxy_of_stack
from locallb.planning.refused import left_out, unused_pins
from locallb.planning.selection import is_internal, is_ours, with_unserved
from locallb.planning.statuses import with_statuses


def make_plan(snapshot: Snapshot, settings: Settings, memo: AnyMemo | None = None) -> Plan:
    """Give each Service addresses, then a proxy, place it there, and plan the statuses of all objects.

    `memo` of earlier plans saves the work for whatever hasn't changed.
    """
    memo = memo or Memo()
    gateways = with_overrides(_gateways(snapshot, settings, memo), snapshot.overrides)
    names = _local_names(snapshot, settings, gateways, memo)
    bound = {**gateways.bound, LOCALHOST: names.bound} if names and _has_names(names, snapshot) else gateways.bound
    snapshot = with_gateways(snapshot, bound)
    frame = PlanContext.of(snapshot.home, settings, snapshot.host)
    routing = _routes(snapshot, settings, memo)
    nodes, lone = memo.of("eligible", eligible, snapshot.nodes)
    admission = admit(snapshot, settings, _watched_files(bound, memo), memo)
    relays = relayed_clusters(snapshot, settings)
    around = _Around(snapshot, settings, nodes, lone, routing, relays)
    placed, paths = _place(admission.admitted, around, bound, frame, memo)
    plan = Plan(
        placements=tuple([each.placement for each in placed]),
        proxies=(*(each.own for each in placed if each.own), *_proxies_of_stack(admission.assigned, frame, memo)),
        rejections=_rejections(snapshot, settings, admission.refused, len(placed)),
        routes=_routes_of_host(snapshot.home, settings, routing),
        notices=(
            *lone.values(),
            *_notices_of_stack(placed),
            *routing.notices,
            *unused_pins(snapshot, settings),
            *gateways.notices,
            *(names.notices if names else ()),
        ),
        refused=gateways.refused,
    )
    plan = with_relays(plan, relays, snapshot)
    plan = with_names(_with_local_urls(plan, names, memo), snapshot, bound, frame)
    plan = with_nodes(with_classes(plan, snapshot, settings), snapshot, settings)
    plan = with_statuses(plan, gateways, snapshot, settings, memo.of("statuses", Memo))
    gain = routes_to_gain(paths, plan.routes, snapshot, settings, partial(_routes, memo=memo))
    plan = replace(
        plan,
        left_out=(
            *left_out(snapshot, plan, settings),
            *gateways.left_out,
            *snapshot.hints,
            *gain,
            *rights_to_gain(paths, snapshot.forwarding),
        ),
        straight=tuple(straight(paths, plan.routes, snapshot.access, snapshot.forwarding)),
    )
    plan = with_unserved(plan, gateways.clusters, snapshot, settings, memo)
    memo.evict_unused()
    return plan


def _gateways(snapshot: Snapshot, settings: Settings, memo: AnyMemo) -> Gateways:
    """Return the Gateways and Ingresses that the objects of a snapshot bind."""
    bind = partial(gateways_of, memory=memo.of("bound", Memo))
    gateways: Gateways = memo.of("gateways", bind, snapshot.gateway_api, settings, snapshot.authority)
    return gateways


def _local_names(snapshot: Snapshot, settings: Settings, gateways: Gateways, memo: AnyMemo) -> LocalNames | None:
    """Return the names below `localhost`; None where the stack serves none."""
    if not settings.localhost:
        return None
    live, order = frozenset(snapshot.access), snapshot.overrides.get(LOCALHOST, NO_ORDER)
    arguments = snapshot.services, gateways.bound, settings, live, snapshot.authority, order
    names: LocalNames = memo.of("localhost", partial(local_names, memory=memo.of("offers", Memo)), *arguments)
    return names


def _has_names(names: LocalNames, snapshot: Snapshot) -> bool:
    """Return whether there are names, or were: then their ports are kept."""
    held = any(each.owner.service == LOCALHOST for each in snapshot.claims if each.owner.home == snapshot.home)
    return bool(names.plain or names.secured) or held


def _with_local_urls(plan: Plan, names: LocalNames | None, memo: AnyMemo) -> Plan:
    """Return the plan with URLs below `localhost`, as far as these are served."""
    serving = next((placement.ports for placement in plan.placements if placement.key == LOCALHOST), ())
    ports = {planned.port.port: planned.port.number for planned in serving if planned.listeners}
    if names is None or not ports:
        return plan
    urls = memo.of("local urls", local_urls, names, ports)
    return replace(
        plan,
        placements=tuple(
            memo.of(("found", key), _with_urls, each, urls[key]) if (key := each.key) in urls else each
            for each in plan.placements
        ),
        rejections=tuple(replace(each, local_urls=urls.get(each.key, ())) for each in plan.rejections),
    )


def _with_urls(placement: Placement, urls: tuple[LocalUrl, ...]) -> Placement:
    return replace(placement, local_urls=urls)


def _routes(snapshot: Snapshot, settings: Settings, memo: AnyMemo) -> RoutePlan:
    """Return the routes to pods, by what decides about them."""
    host = snapshot.host
    facts = HostFacts(
        addresses=host.addresses,
        routes=host.routes,
        diversions=host.diversions,
        subnets=host.subnets,
        may_route=host.may_route,
        inside=host.inside,
    )
    observed = Snapshot(
        snapshot.home, nodes=snapshot.nodes, node_routes=snapshot.node_routes, host=facts, access=snapshot.access
    )
    routing: RoutePlan = memo.of(("routes", settings.pod_routes), routes_of, observed, settings)
    return routing


def _watched_files(gateways: Mapping[ObjectKey, Bound], memo: AnyMemo) -> Mapping[ObjectKey, int]:
    """Return the number of files that the proxy of each Gateway watches."""
    return {key: memo.of(("files", key), _count_watched_files, gateway) for key, gateway in gateways.items()}


class _Around(NamedTuple):
    """Inputs of placements other than their Services."""

    snapshot: Snapshot
    settings: Settings
    nodes: tuple[Node, ...]
    """Nodes that may be backends."""
    lone: Mapping[ClusterName, str]
    """Sentences about clusters of which every Node is used although all are excluded."""
    routing: RoutePlan
    relays: Mapping[ClusterName, RelayWay]


class _World(Struct, frozen=True):
    """Common inputs of all placements of a cluster."""

    index: BackendIndex
    lone: str
    access: Access | None


class _Surroundings(NamedTuple):
    """What the questions of all Services are made from."""

    worlds: Mapping[ClusterName, _World]
    gateways: Mapping[ObjectKey, Bound]
    slices: Mapping[ObjectKey, tuple[EndpointSlice, ...]]
    drained: Mapping[ObjectKey, frozenset[str]]
    sockets: Mapping[IPAddress, Sequence[Socket]]
    claimed: Mapping[ObjectKey, frozenset[IPAddress]]
    keeping: frozenset[ClusterName]
    """Clusters in which foreign entries of a status stay."""


_GroupName: TypeAlias = tuple[ClusterName, ProxyName]
"""Of the Services of a cluster that one proxy serves."""


class _Question(NamedTuple):
    """Inputs of one placement besides the frame: equal ones give equal placements."""

    admitted: Admitted
    world: _World
    behind: tuple[tuple[ObjectKey, tuple[EndpointSlice, ...]], ...]
    """The EndpointSlices of each of its backend Services."""
    drained: Mapping[ObjectKey, frozenset[str]]
    """Drained backends of these Services."""
    sockets: tuple[Socket, ...]
    """Sockets that listen at its addresses."""
    held: frozenset[IPAddress] | None
    """Its claimed addresses; None if its status has no foreign ones."""
    gateway: Bound | None


def _place(
    admitted: Sequence[Admitted],
    around: _Around,
    gateways: Mapping[ObjectKey, Bound],
    frame: PlanContext,
    memo: AnyMemo,
) -> tuple[Sequence[Placed], Mapping[ClusterName, BackendPaths]]:
    """Place all Services that have a proxy; return by which ways connections go, too."""
    snapshot, settings = around.snapshot, around.settings
    worlds = _worlds(around, {each.service.key.cluster for each in admitted}, memo)
    surroundings = _Surroundings(
        worlds,
        gateways,
        memo.of("slices", by_service, snapshot.slices),
        {key: override.drained for key, override in snapshot.overrides.items()},
        memo.of("sockets", _by_address, snapshot.host.sockets),
        memo.of("claimed", _claimed, snapshot.home, snapshot.claims, snapshot.remembered),
        frozenset(() if settings.take_over else snapshot.access),
    )
    questions = memo.rows("questions", *surroundings).each(partial(_question, surroundings), admitted)
    groups: Mapping[_GroupName, Sequence[int]] = memo.of("groups", _grouped, tuple([name for name, _ in questions]))
    placed: dict[int, Placed] = {}
    paths: list[tuple[ClusterName, BackendPaths]] = []
    for name, indexes in groups.items():
        of_group = tuple([questions[index][1] for index in indexes])
        place_all = partial(_placed_together, memo=memo.of(("placing", name), Memo))
        together, paths_of_group = memo.of(("placed", name), place_all, of_group, frame)
        placed.update(zip(indexes, together, strict=True))
        paths.append((name[0], paths_of_group))
    return [*map(placed.__getitem__, range(len(placed)))], BackendPaths.together(paths)


def _grouped(names: Iterable[_GroupName]) -> Mapping[_GroupName, Sequence[int]]:
    """Return the indexes of each name."""
    groups: defaultdict[_GroupName, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        groups[name].append(index)
    return groups


_NONE: frozenset[IPAddress] = frozenset()


def _question(around: _Surroundings, admitted: Admitted) -> tuple[_GroupName, _Question]:
    """Return the inputs of a placement, and the proxy by which it is served."""
    service, key = admitted.service, admitted.service.key
    gateway, keys = around.gateways.get(key), tuple[ObjectKey, ...]((key,))
    if gateway:
        gateway = _with_mapped_ports(gateway, service.ports)
        keys = tuple(dict.fromkeys(target.service for target in gateway.targets.values()))
    sockets, drained = around.sockets, around.drained
    question = _Question(
        admitted,
        around.worlds[key.cluster],
        tuple([(behind, around.slices.get(behind, ())) for behind in keys]),
        {behind: drained[behind] for behind in keys if behind in drained},
        tuple([socket for at in admitted.addresses for socket in sockets.get(at, ())]),
        around.claimed.get(key, _NONE) if service.ingress and key.cluster in around.keeping else None,
        gateway,
    )
    return (key.cluster, admitted.assignment.proxy), question


def _placed_together(
    questions: Sequence[_Question], frame: PlanContext, *, memo: AnyMemo
) -> tuple[Sequence[Placed], BackendPaths]:
    """Place the Services of one proxy: where nothing of them changes, none of a thousand is looked at by itself."""
    parts = [memo.of(("parts", each.admitted.service.key), Memo) if each.gateway else None for each in questions]
    placed: Sequence[Placed] = memo.rows("placed", frame).each(partial(_placed, frame), questions, parts)
    memo.evict_unused()
    paths = BackendPaths.of(port for each in placed for port in each.placement.ports)
    return placed, paths


def _placed(frame: PlanContext, question: _Question, parts: AnyMemo | None) -> Placed:
    (service, addresses, assignment, problems), world, gateway = question.admitted, question.world, question.gateway
    inputs = PlacementInputs(
        service,
        addresses,
        assignment,
        replace(world.index, slices=dict(question.behind), drained=question.drained),
        problems,
        occupied_ports(service, addresses, question.sockets),
        None if is_internal(service) else world.access,
        (
            *notices_of(service, addresses, world.lone, question.held),
            *(of_faults(service, gateway.faults) if gateway else ()),
        ),
        gateway,
    )
    return place(inputs, frame, parts or Memo())


def _worlds(around: _Around, clusters: Iterable[ClusterName], memo: AnyMemo) -> Mapping[ClusterName, _World]:
    """Return what the placements of each cluster have in common: another one's Nodes are no reason to place again."""
    snapshot, host = around.snapshot, around.snapshot.host
    observed = Snapshot(
        snapshot.home,
        nodes=snapshot.nodes,
        health_ports=snapshot.health_ports,
        host=HostFacts(routed=host.routed, routes=host.routes, diversions=host.diversions),
    )
    with_slices = memo.of("listed", _clusters_of, snapshot.slices)
    listed = with_slices & snapshot.access.keys()
    index: BackendIndex = memo.of(
        "backends",
        BackendIndex.within,
        observed,
        around.nodes,
        around.settings,
        around.routing.routes,
        listed,
        around.relays,
    )
    return {
        cluster: memo.of(
            ("world", cluster),
            lambda index, *others, cluster=cluster: _World(_index_of(index, cluster), *others),
            index,
            around.lone.get(cluster, ""),
            snapshot.access.get(cluster),
        )
        for cluster in clusters
    }


def _index_of(index: BackendIndex, cluster: ClusterName) -> BackendIndex:
    """Return the possible backends in a cluster, for `localhost` in every one."""
    return replace(index, slices={}, drained={}) if cluster == LOCALHOST.cluster else index.of_cluster(cluster)


def _clusters_of(slices: Iterable[EndpointSlice]) -> frozenset[ClusterName]:
    """Return the clusters of which any EndpointSlice is read: every API server has one for itself, if we may see it."""
    return frozenset(endpoint_slice.service.cluster for endpoint_slice in slices)


def _claimed(
    home: Home, claims: Iterable[Claim], remembered: Iterable[Claim]
) -> Mapping[ObjectKey, frozenset[IPAddress]]:
    """Return the addresses that claims of this stack name, by Service."""
    by_key: dict[ObjectKey, list[IPAddress]] = {}
    for claim in chain(claims, remembered):
        if claim.owner.home == home:
            by_key.setdefault(claim.owner.service, []).append(claim.address)
    return {key: frozenset(addresses) for key, addresses in by_key.items()}


def _by_address(sockets: Iterable[Socket]) -> Mapping[IPAddress, Sequence[Socket]]:
    by_address: dict[IPAddress, list[Socket]] = {}
    for socket in sockets:
        if not socket.address.is_unspecified:
            by_address.setdefault(socket.address, []).append(socket)
    return by_address


def _proxies_of_stack(assigned: ProxyAssignments, frame: PlanContext, memo: AnyMemo) -> Iterator[PlannedProxy]:
    """Return the stack's proxies, except the ones that serve one Service exclusively."""

    def planned(name: ProxyName, frame: PlanContext, http: bool, heap: HeapBounds | None) -> PlannedProxy:  # noqa: FBT001 - as `Memo` gives it
        return proxy_of_stack(name, frame, may_serve_http=http, heap=heap)

    for name in assigned.proxies:
        yield memo.of(("stack", name), planned, name, frame, name in assigned.http, assigned.heaps.get(name))


def _notices_of_stack(placed: Iterable[Placed]) -> Iterator[str]:
    """Return the notices of single Services that are the stack's as well."""
    notices = chain.from_iterable(each.placement.notices for each in placed)
    return (notice.message for notice in notices if notice.reason in STACK_NOTICES)


def _with_mapped_ports(gateway: Bound, ports: tuple[ServicePort, ...]) -> Bound:
    """Return the bound Gateway or Ingresses with ports that may be mapped."""
    return gateway if gateway.want.ports == ports else replace(gateway, want=replace(gateway.want, ports=ports))


def _count_watched_files(gateway: Bound) -> int:
    """Count what the proxy of a Gateway or of Ingresses wants to watch."""
    chains = [chain for served in gateway.chains.values() for chain in served]
    secured = [target.tls for target in gateway.targets.values() if target.tls]
    of_targets = len(gateway.targets) + sum(bool(tls.authorities) + 2 * bool(tls.client) for tls in secured)
    return of_targets + watched_by_chains(chains, len(gateway.want.families))


def _routes_of_host(home: Home, settings: Settings, routing: RoutePlan) -> tuple[PlannedRoutes, ...]:
    """Return the routes in this host's table; those of containers belong to their proxies."""
    if settings.pod_routes not in {PodRouting.AUTO, PodRouting.HOST}:
        return ()
    return tuple(PlannedRoutes(cluster, home, routes) for cluster, routes in routing.routes.items())


def _rejections(
    snapshot: Snapshot,
    settings: Settings,
    refused: Mapping[ObjectKey, Answer],
    running: int,
) -> tuple[Rejection, ...]:
    """Return for every Service without a proxy why it has none."""
    concerned = {service.key: service for service in snapshot.services if service.key in refused} if refused else {}
    uids = {key: service.uid for key, service in concerned.items()}
    internal = {key for key, service in concerned.items() if is_internal(service)}
    internal |= {service.key for service in snapshot.malformed if is_internal(service)}
    problems = [
        (key, answer if isinstance(answer, Problem) else _host_limit(key, snapshot, running), uids[key])
        for key, answer in refused.items()
    ]
    malformed = (service for service in snapshot.malformed if is_ours(service, settings) and not service.deleting)
    problems += [(service.key, service.problem, service.uid) for service in malformed]
    return tuple(
        Rejection(
            key,
            problem,
            Owner(snapshot.home, key, uid),
            None if key in internal else _written_to(key, problem, snapshot),
        )
        for key, problem, uid in sorted(problems)
    )


def _written_to(key: ObjectKey, problem: Problem, snapshot: Snapshot) -> Access | None:
    """Return the access to report a problem in a Service's status; None for Services of other controllers."""
    return None if problem.reason is Reason.SERVED_BY_ANOTHER else snapshot.access.get(key.cluster)


def _host_limit(key: ObjectKey, snapshot: Snapshot, running: int) -> Problem:
    return Problem(
        Reason.HOST_LIMIT,
        f"{key}: this host's {snapshot.host.watches} free inotify instances carry {running} proxies and no more; "
        "as root, `locallb host setup --yes` (or `sysctl -w fs.inotify.max_user_instances=8192`) makes room",
    )
