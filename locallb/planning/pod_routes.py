"""The routes to the pods of each cluster, those that this stack may add, its relays, and the paths of connections.

A Node's pods are in its spec.podCIDRs and are reached by its InternalIP; where the CNI has ranges of its own the source
names them, and the first Node forwards packets for pods of other Nodes. Service CIDRs are no destinations. Data of a
cluster isn't trusted: its pods must be in private networks, and no route of another owner is overridden. Other clusters
are reached through their API servers, by relays. Users read which path connections take, and a better one.

Not here: making routes (`runtimes.pod_routes`), the relay (`relay`), and the choice of backends (`backends`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, ObjectKey
from locallb.model.objects import BackendChoice, Node, Via, nodes_by_cluster
from locallb.model.ranges import span_of
from locallb.model.reasons import Reason
from locallb.model.relays import RIGHTS, ForwardingFacts, RelayedPort, RelayId, RelayWay, relay_id
from locallb.model.routes import LOOPBACK, POD_PROTOCOL, Diversion, HostRoute, PodRoute
from locallb.model.serving import Upstream
from locallb.model.snapshot import Snapshot
from locallb.model.texts import counted, metric_of
from locallb.planning.planned import Plan, PlannedPort, PlannedRelay, PlannedRoutes

_WIDEST = {Family.IPV4: 8, Family.IPV6: 16}
_SPECIAL = (
    *LOOPBACK,
    *map(ip_network, ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/8", "fe80::/10", "ff00::/8")),
)


class Claimed:
    """Destinations that have routes, with their owners; networks contain each other or are disjoint."""

    def __init__(self, routes: Iterable[HostRoute], diversions: Iterable[Diversion] = ()) -> None:
        self._by: dict[tuple[int, int, int], list[tuple[IPAddress | None, str]]] = {}
        self._firsts: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for route in routes:
            self._note(route.destination, route.gateway, f"{route.destination} is {route.owner}")
        for diversion in diversions:
            self._note(diversion.network, None, f"{diversion.network} is led elsewhere: {diversion.owner}")
        self._settle()

    def add(self, cluster: ClusterName, routes: Iterable[PodRoute]) -> None:
        """Note what a cluster of this stack gets."""
        for route in routes:
            self._note(route.destination, route.gateway, f"cluster {cluster} has pods in {route.destination} as well")
        self._settle()

    def against(self, route: PodRoute) -> str:
        """Return the conflicts with `route`; empty without any, or if the existing route has the same gateway."""
        network, version = route.destination, route.destination.version
        first, last = span_of(network)
        for bits in range(network.prefixlen + 1):
            start = first >> (network.max_prefixlen - bits) << (network.max_prefixlen - bits)
            for gateway, what in self._by.get((version, start, bits), ()):
                if bits < network.prefixlen or gateway != route.gateway:
                    return what
        inner = self._firsts[version]
        for start, bits in inner[bisect_left(inner, (first, network.prefixlen + 1)) :]:
            if start > last:
                break
            if bits > network.prefixlen:
                return self._by[version, start, bits][0][1]
        return ""

    def _note(self, network: IPNetwork, gateway: IPAddress | None, what: str) -> None:
        key = network.version, int(network[0]), network.prefixlen
        if key not in self._by:
            self._firsts[network.version].append(key[1:])
        self._by.setdefault(key, []).append((gateway, what))

    def _settle(self) -> None:
        for firsts in self._firsts.values():
            firsts.sort()


class Refusals(Struct, frozen=True):
    """Reasons that prevent a route."""

    others: Claimed
    near: Sequence[IPNetwork] | None
    """Networks with possible gateways; None if no host is known."""
    named: Mapping[ClusterName, tuple[IPNetwork, ...]]

    def why(self, cluster: ClusterName, route: PodRoute) -> str:
        """Return why `route` isn't made; empty if it is."""
        network = route.destination
        if network.prefixlen < _WIDEST[Family.of(network)] or any(_meet(network, special) for special in _SPECIAL):
            return f"{network} is no network of pods"
        if network.is_global and network not in self.named.get(cluster, ()):
            return f"{network} is public; name it in the source's podCIDRs if pods are there all the same"
        if what := self.others.against(route):
            return what
        if self.near is not None and not any(route.gateway in network for network in self.near):
            return f"{route.gateway} is in no network that this host or its proxies are members of"
        return ""


def _meet(network: IPNetwork, other: IPNetwork) -> bool:
    return network.version == other.version and network.overlaps(other)


def reported(cluster: ClusterName, refused: Mapping[PodRoute, str], remedy: str) -> Iterator[str]:
    """Explain which routes of one cluster aren't made, and why."""
    for route, why in [*refused.items()][:1]:
        more = f", nor {counted(len(refused) - 1, 'other')} of its routes" if len(refused) > 1 else ""
        yield f"{cluster}: the route {route} to its pods isn't made{more}: {why}; remove what is in the way{remedy}"


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
    mine = {way(route) for route in existing if _is_of(route, metric)}
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
    for cluster in sorted(wanted, key=lambda name: (not mine.intersection(map(parts, wanted[name])), name)):
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
    present = {way(route) for route in snapshot.host.addresses.routes if _is_of(route, metric)}
    return {planned.key for planned in plan.routes if not present.issuperset(map(parts, planned.routes))}


_BITS = {Family.IPV4: 32, Family.IPV6: 128}
_USUAL = {Family.IPV4: 16, Family.IPV6: 48}
"""The widest range that is routed without a key for it, alone and of all ranges of a cluster together.

Those of kind, k3d and minikube are this wide in all. A cluster draws no more of this host's connections to itself.
"""


def auto_routes(snapshot: Snapshot, settings: Settings) -> RoutePlan:
    """Return the routes to make in this host's table where no key asks for any: what can harm nothing.

    To pods of running clusters by Nodes that are containers or virtual machines of this host, as far as nothing is in
    the way, which is no warning then. Where nobody may change routes now, those that are there stay.
    """
    host = snapshot.host
    if settings.publishes or not host.inside:
        return RoutePlan()
    near = tuple(
        replace(
            node,
            addresses=tuple(address for address in node.addresses if any(address in net for net in host.inside)),
            pod_cidrs=tuple(filter(_is_usual, node.pod_cidrs)),
        )
        for node in snapshot.nodes
        if node.cluster in snapshot.access and node.cluster not in snapshot.node_routes
    )
    planned = host_routes(replace(snapshot, nodes=near, node_routes={}, host=replace(host, may_route=True)), settings)
    usual = {name: routes for name, routes in planned.routes.items() if not _is_much(routes)}
    if host.may_route or host.addresses is None:
        return RoutePlan(usual)
    metric = metric_of(snapshot.home)
    mine = {way(route) for route in host.addresses.routes if _is_of(route, metric)}
    present = {name: tuple(route for route in routes if parts(route) in mine) for name, routes in usual.items()}
    return RoutePlan({name: routes for name, routes in present.items() if routes})


def container_routes(snapshot: Snapshot, settings: Settings) -> RoutePlan:
    """Return the routes to make in the namespaces of proxies on a Docker network: each has those of one cluster."""
    near = [subnet.network for subnet in snapshot.host.subnets]
    refuse = Refusals(
        Claimed([HostRoute(network, "unicast", "its Docker network") for network in near]), near, _named(settings)
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
        PodRouting.AUTO: auto_routes,
        PodRouting.HOST: host_routes,
        PodRouting.CONTAINER: container_routes,
    }
    make = plans.get(settings.pod_routes)
    return make(snapshot, settings) if make else RoutePlan()


def wanted_routes(snapshot: Snapshot, settings: Settings) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes of each cluster, in order, regardless of conflicts: to pods, or as its source defines."""
    named, given = _named(settings), snapshot.node_routes
    by_cluster = nodes_by_cluster(sorted(snapshot.nodes, key=lambda node: (node.cluster, node.name)))
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
    """Return the ranges that the configuration names; without a key for routes only usual ones of them."""
    by_sources = {source.cluster: source.pod_cidrs for source in settings.sources if source.pod_cidrs}
    named = {**settings.pod_cidrs, **by_sources}
    if settings.pod_routes is not PodRouting.AUTO:
        return named
    usual = {cluster: tuple(filter(_is_usual, networks)) for cluster, networks in named.items()}
    return {cluster: networks for cluster, networks in usual.items() if networks}


def _is_usual(network: IPNetwork) -> bool:
    return network.prefixlen >= _USUAL[Family.of(network)] and not network.is_global


def _is_much(routes: Iterable[PodRoute]) -> bool:
    """Return whether routes lead to more together than a usual cluster has."""
    sizes: defaultdict[Family, int] = defaultdict(int)
    for route in routes:
        sizes[Family.of(route.destination)] += route.destination.num_addresses
    return any(size > 1 << (_BITS[family] - _USUAL[family]) for family, size in sizes.items())


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


def _is_of(route: HostRoute, metric: int) -> bool:
    return (route.protocol, route.metric) == (POD_PROTOCOL, metric)


def way(route: HostRoute) -> tuple[IPNetwork, IPAddress | None]:
    """Return what a route of this host has in common with one to pods."""
    return route.destination, route.gateway


def parts(route: PodRoute) -> tuple[IPNetwork, IPAddress | None]:
    """Return the same of a route to pods."""
    return route.destination, route.gateway


def relayed_clusters(snapshot: Snapshot, settings: Settings) -> Mapping[ClusterName, RelayWay]:
    """Return the relays of the clusters that are reached through their API servers, whether they have pods or not.

    Without a key for it only ports that have no other way take them, as far as this user has the right.
    """
    relays: dict[ClusterName, RelayWay] = {}
    for cluster in sorted(snapshot.access):
        facts, relay = snapshot.forwarding.get(cluster), relay_id(snapshot.home, cluster)
        if settings.pod_routes is PodRouting.API:
            relays[cluster] = RelayWay(relay)
        elif settings.pod_routes is PodRouting.AUTO and facts and (facts.everywhere or facts.namespaces):
            namespaces = None if facts.everywhere else facts.namespaces
            relays[cluster] = RelayWay(relay, only=False, nodes_answer=facts.nodes_answer, namespaces=namespaces)
    return relays


def with_relays(plan: Plan, relays: Mapping[ClusterName, RelayWay], snapshot: Snapshot) -> Plan:
    """Return the plan with a relay for each of these clusters that has backends."""
    if not relays:
        return plan
    ports: dict[RelayId, set[RelayedPort]] = {}
    for upstream in _upstreams(plan):
        for backend in upstream.backends:
            if backend.relayed:
                ports.setdefault(backend.relayed.relay, set()).add(backend.relayed.port)
    return replace(
        plan,
        relays=tuple(
            PlannedRelay(cluster, snapshot.home, snapshot.access[cluster], tuple(sorted(ports[way.relay])))
            for cluster, way in relays.items()
            if way.relay in ports
        ),
    )


def _upstreams(plan: Plan) -> Iterator[Upstream]:
    for planned in plan.proxies:
        yield from planned.proxy.upstreams
    for placement in plan.placements:
        if placement.part:
            yield from placement.part.part.upstreams


_OWN = "local-lb:podRoutes container, with local-lb:network publish,"
_FAR = "its Nodes are pods of another cluster, to which this host has no routes; {key} makes them"
_SLOW = (
    "connections go by NodePorts, which kube-proxy opens about a second later than pods answer; {key} makes routes"
    " straight to the pods"
)
_PORTS = "ports without a nodePort"
_RELAYED = f"connections of {_PORTS} go through the API server; {{key}} makes routes straight to the pods"
_SILENT = "none of its Nodes answers this host"
_NO_WAY = f"this host has no way to pods of {_PORTS}"
_UNANSWERED = (
    "none of its Nodes answers this host, so connections go to pods through the API server, of TCP only; a route to its"
    " Nodes is faster"
)
_LACKING = (
    "{why}; with the right to create pods/portforward ({rights}) TCP connections go to its pods through the API server"
)
_NONE = "this host has no route to pods that Gateways or Ingresses lead to; {key} makes routes straight to them"


class BackendPaths(Struct, frozen=True):
    """By which ways the connections of a cluster go, or of those Services of it that one proxy serves."""

    vias: frozenset[Via] = frozenset()
    unreached: bool = False
    """Whether this host has no way to what a port leads to."""

    @classmethod
    def of(cls, ports: Iterable[PlannedPort]) -> BackendPaths:
        ports = tuple(ports)
        unreached = any(port.problem is not None and port.problem.reason is Reason.UNREACHABLE for port in ports)
        return cls(frozenset(port.via for port in ports if port.via), unreached)

    @classmethod
    def together(cls, several: Iterable[tuple[ClusterName, BackendPaths]]) -> Mapping[ClusterName, BackendPaths]:
        """Return those of each cluster."""
        found: dict[ClusterName, BackendPaths] = {}
        for cluster, paths in several:
            other = found.get(cluster, _NOWHERE)
            found[cluster] = cls(paths.vias | other.vias, paths.unreached or other.unreached)
        return found


_NOWHERE = BackendPaths()


def straight(
    paths: Mapping[ClusterName, BackendPaths],
    routes: Iterable[PlannedRoutes],
    access: Container[ClusterName],
    forwarding: Mapping[ClusterName, ForwardingFacts],
) -> Iterator[str]:
    """Return a sentence for each running cluster of which connections go to pods."""
    made = {planned.cluster: len(planned.routes) for planned in routes}
    for cluster in sorted(paths):
        if cluster in access and Via.API in paths[cluster].vias:
            yield f"{cluster}: {_relayed(cluster, paths, forwarding)}"
        if cluster in access and paths[cluster].vias == {Via.PODS}:
            by = (
                f"by {counted(made[cluster], 'route')} of local-lb's"
                if cluster in made
                else "by this host's own routes"
            )
            yield f"{cluster}: connections go straight to pods, {by}"


def _relayed(
    cluster: ClusterName, paths: Mapping[ClusterName, BackendPaths], forwarding: Mapping[ClusterName, ForwardingFacts]
) -> str:
    if cluster in forwarding and not forwarding[cluster].nodes_answer:
        return _UNANSWERED
    some = f" of {_PORTS}" if paths[cluster].vias != {Via.API} else ""
    return f"connections{some} go to pods through the API server, of TCP only"


def rights_to_gain(
    paths: Mapping[ClusterName, BackendPaths], forwarding: Mapping[ClusterName, ForwardingFacts]
) -> Iterator[str]:
    """Return a sentence for each cluster with ports that would be reached with one right more."""
    for cluster in sorted(paths.keys() & forwarding.keys()):
        facts, found = forwarding[cluster], paths[cluster]
        if facts.requested and not facts.everywhere and (found.unreached or not facts.nodes_answer):
            why = _NO_WAY if facts.nodes_answer else _SILENT
            yield f"{cluster}: {_LACKING.format(why=why, rights=RIGHTS)}"


def routes_to_gain(
    paths: Mapping[ClusterName, BackendPaths],
    routes: Iterable[PlannedRoutes],
    snapshot: Snapshot,
    settings: Settings,
    find: Callable[[Snapshot, Settings], RoutePlan],
) -> Iterator[str]:
    """Return a sentence for each cluster that would gain from routes which aren't made: how, or what is in the way.

    `find` is `routes_of`, or knows its answers.
    """
    if settings.pod_routes not in {PodRouting.OFF, PodRouting.AUTO} or snapshot.host.addresses is None:
        return
    by_nodes = {cluster for cluster, each in paths.items() if each.vias - {Via.PODS, Via.API}}
    relayed = {cluster for cluster, each in paths.items() if Via.API in each.vias}
    unreached = {cluster for cluster, each in paths.items() if each.unreached}
    far = by_nodes & snapshot.node_routes.keys()
    if settings.backends is BackendChoice.NODE_PORTS:
        by_nodes = far
    if not by_nodes | unreached | relayed:
        return
    word = PodRouting.CONTAINER if settings.publishes else PodRouting.HOST
    could = find(replace(snapshot, host=replace(snapshot.host, may_route=True)), replace(settings, pod_routes=word))
    present = set() if settings.publishes else {way(route) for route in snapshot.host.routes}
    present |= {parts(route) for planned in routes for route in planned.routes}
    foreign = {source.cluster for source in settings.sources if source.nodes and source.nodes.is_foreign}
    for cluster in sorted(by_nodes | unreached | relayed):
        wanted = could.routes.get(cluster, ())
        if not present.issuperset(map(parts, wanted)):
            slow = _SLOW if cluster in by_nodes else _RELAYED if cluster in relayed else _NONE
            why = _FAR if cluster in far else slow
            key = _OWN if cluster in foreign and not settings.publishes else f"local-lb:podRoutes {word}"
            yield f"{cluster}: {why.format(key=key)} (as root, or through Docker)"
        elif not wanted and settings.pod_routes is PodRouting.AUTO and cluster in snapshot.access:
            yield from (notice for notice in could.notices if notice.startswith(f"{cluster}: "))
