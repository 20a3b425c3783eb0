"""The routes to the pods of each cluster: which are wanted, and which of them this stack may add.

A Node's pods are in its spec.podCIDRs and are reached by its InternalIP; where the CNI has ranges of its own the source
names them, and the first Node forwards what isn't its own. Service CIDRs are no destinations. Data of a cluster isn't
trusted: its pods must be in private networks, and no route of others is overridden. Not here: how routes are made, and
which Services use them (`backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, ObjectKey
from locallb.model.naming import metric_of
from locallb.model.network.routes import POD_PROTOCOL, PodRoute, Route
from locallb.model.objects import BackendChoice, Node
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Plan, Via
from locallb.planning.routes.conflicts import Claimed, Refusals, reported


class RoutePlan(Struct, frozen=True):
    """The routes of each cluster that may be made, and a sentence for each cluster of which some may not."""

    routes: Mapping[ClusterName, tuple[PodRoute, ...]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def host_routes(snapshot: Snapshot, settings: Settings) -> RoutePlan:
    """Return the routes to make in this host's table; of two clusters the one that has some keeps them."""
    wanted = wanted_routes(snapshot, settings)
    host = snapshot.host.addresses
    existing = host.routes if host else ()
    metric = metric_of(snapshot.home)
    mine = {_way(route) for route in existing if _is_of(route, metric)}
    claimed = (*existing, *(route for route in snapshot.host.routes if route.is_dead_end))
    diverted = [diversion for diversion in snapshot.host.diversions if not diversion.yields]
    others = Claimed([route for route in claimed if not _is_of(route, metric) and not route.is_default], diverted)
    near = [route.destination for route in existing if route.is_connected]
    refuse = Refusals(others, near if host else None, _named(settings))
    wanted = _without(wanted, {address for address, _ in host.own}, near) if host else wanted
    made: dict[ClusterName, tuple[PodRoute, ...]] = {}
    notices: list[str] = []
    if wanted and not snapshot.host.may_route:
        return RoutePlan(notices=(_NO_RIGHT,))
    for cluster in sorted(wanted, key=lambda name: (not mine.intersection(map(_parts, wanted[name])), name)):
        refused = {route: why for route in wanted[cluster] if (why := refuse.why(cluster, route))}
        made[cluster] = tuple(route for route in wanted[cluster] if route not in refused)
        refuse.others.add(cluster, made[cluster])
        notices += reported(cluster, refused, _CONTAINER)
    return RoutePlan({name: routes for name, routes in sorted(made.items()) if routes}, tuple(notices))


_CONTAINER = ", or use local-lb:podRoutes container, with which each proxy has routes of its own"
_NO_RIGHT = (
    "local-lb:podRoutes host: this user may change no routes, and Docker, which could, doesn't answer; run as root, let"
    " this user use Docker, or remove the key"
)


def lost_routes(plan: Plan, snapshot: Snapshot) -> set[ObjectKey]:
    """Return the clusters of which routes are missing in this host's table: not made yet, or removed by others."""
    if not plan.routes or snapshot.host.addresses is None:
        return set()
    metric = metric_of(snapshot.home)
    present = {_way(route) for route in snapshot.host.addresses.routes if _is_of(route, metric)}
    return {planned.key for planned in plan.routes if not present.issuperset(map(_parts, planned.routes))}


def routes_to_gain(
    plan: Plan, snapshot: Snapshot, settings: Settings, find: Callable[[Snapshot, Settings], RoutePlan]
) -> Iterator[str]:
    """Return a sentence for each cluster that would gain from routes which aren't made, where they could be.

    `find` is `routes_of`, or knows its answers.
    """
    if settings.pod_routes is not PodRouting.OFF or snapshot.host.addresses is None:
        return
    by_nodes = set[ClusterName]()
    for placement in plan.placements:  # of a cluster that one is enough of the others aren't asked
        cluster = placement.key.cluster
        if cluster not in by_nodes and any(port.via not in {None, Via.PODS} for port in placement.ports):
            by_nodes.add(cluster)
    far = by_nodes & snapshot.node_routes.keys()
    if settings.backends is BackendChoice.NODE_PORTS:
        by_nodes = far
    if not by_nodes:
        return
    word = PodRouting.CONTAINER if settings.publishes else PodRouting.HOST
    could = find(snapshot, replace(settings, pod_routes=word)).routes
    present = set() if settings.publishes else {_way(route) for route in snapshot.host.routes}
    foreign = {source.cluster for source in settings.sources if source.nodes and source.nodes.is_foreign}
    for cluster in sorted(by_nodes):
        if not present.issuperset(map(_parts, could.get(cluster, ()))):
            why = _FAR if cluster in far else _SLOW
            key = _OWN if cluster in foreign and not settings.publishes else f"local-lb:podRoutes {word}"
            yield f"{cluster}: {why.format(key=key)} (as root, or through Docker)"


_OWN = "local-lb:podRoutes container, with local-lb:network publish,"
_FAR = "its Nodes are pods of another cluster, to which this host has no routes; {key} makes them"
_SLOW = (
    "connections go by NodePorts, which kube-proxy opens about a second later than pods answer; {key} makes routes"
    " straight to the pods"
)


def container_routes(snapshot: Snapshot, settings: Settings) -> RoutePlan:
    """Return the routes to make in the namespaces of proxies on a Docker network: each has those of one cluster."""
    near = [subnet.network for subnet in snapshot.host.subnets]
    refuse = Refusals(
        Claimed([Route(network, "unicast", "its Docker network") for network in near]), near, _named(settings)
    )
    made: dict[ClusterName, tuple[PodRoute, ...]] = {}
    notices: list[str] = []
    for cluster, routes in sorted(_without(wanted_routes(snapshot, settings), (), near).items()):
        refused = {route: why for route in routes if (why := refuse.why(cluster, route))}
        made[cluster] = tuple(route for route in routes if route not in refused)
        notices += reported(cluster, refused, "")
    return RoutePlan({name: routes for name, routes in made.items() if routes}, tuple(notices))


def routes_of(snapshot: Snapshot, settings: Settings) -> RoutePlan:
    """Return the routes that the configuration asks for."""
    plans: Mapping[PodRouting, Callable[[Snapshot, Settings], RoutePlan]] = {
        PodRouting.HOST: host_routes,
        PodRouting.CONTAINER: container_routes,
    }
    make = plans.get(settings.pod_routes)
    return make(snapshot, settings) if make else RoutePlan()


def wanted_routes(snapshot: Snapshot, settings: Settings) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes of each cluster, in order, regardless of conflicts: to pods, or as its source defines."""
    named, given = _named(settings), snapshot.node_routes
    by_cluster: dict[ClusterName, list[Node]] = {}
    for node in sorted(snapshot.nodes, key=lambda node: (node.cluster, node.name)):
        by_cluster.setdefault(node.cluster, []).append(node)
    return {
        cluster: tuple(sorted(routes, key=lambda route: route.order))
        for cluster, nodes in by_cluster.items()
        if cluster not in given
        if (routes := [*(_by_first(nodes, named[cluster]) if cluster in named else _by_each(nodes))])
    } | {cluster: routes for cluster, routes in given.items() if routes}


def _without(
    wanted: Mapping[ClusterName, tuple[PodRoute, ...]], own: Collection[IPAddress], near: Sequence[IPNetwork]
) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Leave out the pods of a Node that is this host, which has them already, and a family that isn't spoken here."""
    versions = {network.version for network in near}
    return {
        name: tuple(route for route in routes if route.gateway not in own and route.gateway.version in versions)
        for name, routes in wanted.items()
    }


def _named(settings: Settings) -> Mapping[ClusterName, tuple[IPNetwork, ...]]:
    by_sources = {source.cluster: source.pod_cidrs for source in settings.sources if source.pod_cidrs}
    return {**settings.pod_cidrs, **by_sources}


def _by_each(nodes: Sequence[Node]) -> Iterator[PodRoute]:
    """Return the route to the pods of each Node by that Node; a range of two Nodes belongs to the first one."""
    observed = set()
    for node in nodes:
        for network in node.pod_cidrs:
            gateway = _address(node, Family.of(network))
            if gateway and network not in observed:
                observed.add(network)
                yield PodRoute(network, gateway)


def _by_first(nodes: Sequence[Node], ranges: Sequence[IPNetwork]) -> Iterator[PodRoute]:
    for network in dict.fromkeys(ranges):
        gateways = (address for node in nodes if (address := _address(node, Family.of(network))))
        if gateway := next(gateways, None):
            yield PodRoute(network, gateway)


def _address(node: Node, family: Family) -> IPAddress | None:
    return next((address for address in node.addresses if Family.of(address) is family), None)


def _is_of(route: Route, metric: int) -> bool:
    return (route.protocol, route.metric) == (POD_PROTOCOL, metric)


def _way(route: Route) -> tuple[IPNetwork, IPAddress | None]:
    return route.destination, route.gateway


def _parts(route: PodRoute) -> tuple[IPNetwork, IPAddress | None]:
    return route.destination, route.gateway
