"""Nodes and endpoints that take connections, and pods that this host reaches, indexed by cluster and Service.

Endpoints go by the rules of kube-proxy, Nodes by those of Kubernetes' own service controller. Drained ones are left
out: they get no new connections, and open connections stay. A pod address counts as reached only if the routes of this
host and the cluster's Nodes prove it (`reach_of`). Health checks of Nodes use kube-proxy's health ports or, without
any, the NodePort itself (`Health`).

Not here: which of them become backends (`backends`), drains as data (`model/faults`), and the checks: Envoy checks
Nodes and pods, and the source finds which health ports answer (`kubernetes/api/health_ports`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.model.faults import ALL
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, NodeName, ObjectKey, Protocol
from locallb.model.objects import (
    BackendChoice,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Node,
    Service,
    ServicePort,
    TrafficPolicy,
    nodes_by_cluster,
)
from locallb.model.ranges import span_of
from locallb.model.relays import RelayWay
from locallb.model.routes import POD_PROTOCOL, Diversion, HostRoute, PodRoute, inside
from locallb.model.serving import Backend, HealthCheck, HttpCheck
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.texts import counted


def nodes_without(nodes: Iterable[Node], names: Collection[str]) -> Sequence[Node]:
    """Return the Nodes that none of these names means."""
    return [*nodes] if not names else [node for node in nodes if not _node_is_among(node, names)]


def endpoints_without(endpoints: Iterable[Usable], names: Collection[str]) -> tuple[Usable, ...]:
    """Return which endpoints that take connections none of these names means, nor those of their Nodes."""
    if not names:
        return tuple(endpoints)
    return tuple(endpoint for endpoint in endpoints if not _is_among(endpoint.endpoint, names))


def names_of(nodes: Iterable[Node]) -> frozenset[str]:
    """Return all that Nodes may be called by."""
    return frozenset(name for node in nodes for name in (node.name, *map(str, node.addresses)))


def names_of_endpoints(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return all that endpoints may be called by, those of their Nodes apart."""
    endpoints = (endpoint for slice_ in slices for endpoint in slice_.endpoints)
    called = (name for endpoint in endpoints for name in (endpoint.pod, *map(str, endpoint.addresses)))
    return frozenset(filter(None, called))


def _node_is_among(node: Node, names: Collection[str]) -> bool:
    return ALL in names or not names_of([node]).isdisjoint(names)


def _is_among(endpoint: Endpoint, names: Collection[str]) -> bool:
    called = {endpoint.pod, endpoint.node, *map(str, endpoint.addresses)}
    return ALL in names or not called.isdisjoint(names)


class Usable(Struct, frozen=True):
    """An endpoint that takes connections, and the slice's port for a Service's port."""

    endpoint: Endpoint
    port: EndpointPort


def usable(
    port: ServicePort, family: Family, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> tuple[Usable, ...]:
    """Return the usable endpoints of one of a Service's `ports`, which slices' ports match by name and protocol.

    Usable are the ready ones; if none is ready, terminating ones that still serve (KEP-1669), so that the last pod of a
    Service drains.
    """
    here = [endpoint_slice for endpoint_slice in slices if endpoint_slice.family is family]
    match_of = _matching(port, here, ports)
    matching = [
        Usable(endpoint, match)
        for endpoint_slice in here
        if (match := match_of(endpoint_slice))
        for endpoint in endpoint_slice.endpoints
    ]
    ready = tuple(match for match in matching if match.endpoint.ready)
    return ready or tuple(match for match in matching if match.endpoint.draining)


def _matching(
    port: ServicePort, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> Callable[[EndpointSlice], EndpointPort | None]:
    """Return a function that finds a port in a slice: by its name, or by its previous name.

    The slices' controller writes the new name a moment after the Service has it. Until then a numeric targetPort finds
    the port by its number; a named one as the only port that the Service no longer names.
    """
    if any(_named(port.name, port.protocol, each) for each in slices):
        return lambda each: _named(port.name, port.protocol, each)
    if isinstance(port.target_port, str):
        former = _former_name(port, slices, ports)
        return lambda each: None if former is None else _named(former, port.protocol, each)
    number = port.port if port.target_port is None else port.target_port
    return lambda each: _numbered(number, port.protocol, each)


def _named(name: str, protocol: Protocol, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    return next((p for p in endpoint_slice.ports if (p.name, p.protocol) == (name, protocol)), None)


def _numbered(number: int, protocol: Protocol, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    if not endpoint_slice.managed:
        return None
    return next((p for p in endpoint_slice.ports if (p.port, p.protocol) == (number, protocol)), None)


def _former_name(port: ServicePort, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]) -> str | None:
    """Return the name that slices still have for a port, if one port has changed its name and nothing else could be.

    Where ports were added or removed as well, the pods behind another port could be taken for this one's.
    """
    protocol = port.protocol
    named_by_slices = {p.name for each in slices for p in each.ports if p.protocol is protocol}
    named_by_service = {p.name for p in ports if p.protocol is protocol}
    changed = len(named_by_slices - named_by_service) == len(named_by_service - named_by_slices) == 1
    if not changed or not all(each.managed for each in slices):
        return None
    return next(iter(named_by_slices - named_by_service))


def why_none_is(
    port: ServicePort, family: Family, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> str:
    """Return why there is no usable endpoint: half a sentence, with a remedy."""
    here = [endpoint_slice for endpoint_slice in slices if endpoint_slice.family is family]
    existing = sum(len(endpoint_slice.endpoints) for endpoint_slice in here)
    named = f' named "{port.name}"' if port.name else ""
    if existing and not any(map(_matching(port, here, ports), here)):
        return f"no EndpointSlice has a {port.protocol} port{named or ' without a name'}; look at its targetPort"
    state = (
        f"none of its {counted(existing, family + ' endpoint')} is ready"
        if existing
        else f"it has no {family} endpoint"
    )
    return f"{state}; look at its pods and selector"


class Destination(NamedTuple):
    """A destination of this host's routes, as numbers, and whether it leads to the cluster."""

    version: int
    first: int
    last: int
    leads: bool


class Reach(Struct, frozen=True):
    """The pod addresses of one cluster that this host reaches."""

    destinations: tuple[Destination, ...] = ()
    """Longest prefixes first; empty if no route leads to the cluster."""

    def has(self, address: IPAddress) -> bool:
        """Return whether packets to `address` reach the cluster."""
        version, number = address.version, int(address)
        return next(
            (leads for v, first, last, leads in self.destinations if v == version and first <= number <= last), False
        )


def reach_of(nodes: Sequence[Node], routes: Iterable[HostRoute], diversions: tuple[Diversion, ...] = ()) -> Reach:
    """Return the reach of the cluster that has `nodes`: the identical object if nothing has changed.

    A route names the next hop, not the owner of the destination: a VPN's 10.0.0.0/8, Docker's bridge and another
    cluster's Node all lead away from pods with such addresses here. So only these count, unless a longer prefix leads
    elsewhere: a route by one of the cluster's own Nodes, a network of the Nodes themselves except the pod ranges behind
    each (spec.podCIDRs), and any route but the default one if this host is one of the Nodes. Destinations of a rule
    (`ip rule`) never count.
    """
    addresses = frozenset(address for node in nodes for address in node.addresses)
    behind = frozenset(network for node in nodes for network in node.pod_cidrs)
    return _reach(addresses, behind, tuple(routes), diversions)


@lru_cache(maxsize=64)  # all routes are gone through: not for each Node or EndpointSlice that changes
def _reach(
    nodes: frozenset[IPAddress],
    behind: frozenset[IPNetwork],
    routes: tuple[HostRoute, ...],
    diversions: tuple[Diversion, ...],
) -> Reach:
    """Compute the reach; `behind` are networks behind Nodes: their addresses don't answer in the Nodes' own network."""
    by_destination: dict[IPNetwork, list[HostRoute]] = {}
    for route in routes:
        by_destination.setdefault(route.destination, []).append(route)
    is_node = any(route.is_own and route.destination[0] in nodes for route in routes)
    destinations = [
        Destination(
            where.version, *span_of(where), all(_leads(route, nodes, is_node=is_node) for route in existing_routes)
        )
        for where, existing_routes in by_destination.items()
    ]
    links = (
        []
        if is_node
        else [where for where, existing_routes in by_destination.items() if any(map(_is_link, existing_routes))]
    )
    destinations += [_nowhere(route) for route in behind if _is_passed_on(route, links, by_destination)]
    destinations += [
        _nowhere(diversion.network)
        for diversion in diversions
        if diversion.yields and diversion.network not in by_destination
    ]
    destinations.sort(key=lambda destination: (destination.last - destination.first, destination))
    destinations[:0] = [_nowhere(diversion.network) for diversion in diversions if not diversion.yields]
    return Reach(tuple(destinations)) if any(destination.leads for destination in destinations) else Reach()


def _nowhere(network: IPNetwork) -> Destination:
    return Destination(network.version, *span_of(network), leads=False)


def _is_link(route: HostRoute) -> bool:
    return route.gateway is None and not route.is_local


def _is_passed_on(network: IPNetwork, links: Iterable[IPNetwork], routes: Collection[IPNetwork]) -> bool:
    around = max((link.prefixlen for link in links if network != link and inside(network, link)), default=None)
    if around is None:
        return False
    return not any(network.supernet(new_prefix=bits) in routes for bits in range(network.prefixlen, around, -1))


def _leads(route: HostRoute, nodes: Iterable[IPAddress], *, is_node: bool) -> bool:
    if route.is_default or not (route.is_local or route.kind == "unicast"):
        return False
    if is_node and not route.is_local:
        return True
    if route.gateway is not None:
        return route.gateway in nodes
    return (route.is_local or (route.is_connected and bool(route.device))) and any(
        node in route.destination for node in nodes
    )


EXCLUSION_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""Texts that Go's strconv.ParseBool takes as false. Everything else, also a text that isn't a boolean, excludes."""


def eligible(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], Mapping[ClusterName, str]]:
    """Return the Nodes of every cluster that may be backends, sorted, and a notice where only excluded are left.

    NotReady Nodes stay in: the proxy's health check decides.
    """
    staying = sorted((node for node in nodes if _remains(node)), key=lambda node: (node.cluster, node.name))
    retained: list[Node] = []
    notices: dict[ClusterName, str] = {}
    for cluster, alive in nodes_by_cluster(staying).items():
        included = [node for node in alive if not _excluded(node)]
        retained.extend(included or alive)
        if not included:
            notices[cluster] = _all_excluded(cluster, alive)
    return tuple(retained), notices


def _remains(node: Node) -> bool:
    return not node.deleting and AUTOSCALER_TAINT not in node.taints


def _excluded(node: Node) -> bool:
    return EXCLUSION_LABEL in node.labels and node.labels[EXCLUSION_LABEL] not in _FALSE


def _all_excluded(cluster: str, nodes: Sequence[Node]) -> str:
    return (
        f"{cluster}: the label {EXCLUSION_LABEL} excludes every Node ({counted(len(nodes), 'Node')}), so all are used; "
        "remove it from those that shall be backends"
    )


KUBE_PROXY_PORT = 10256
"""kube-proxy's healthzBindAddress; set to an address of its own, it answers in that family only."""


class NodePorts(Struct, frozen=True):
    """One port of a Service on the Nodes of a cluster, in one family, and its health check."""

    number: int
    family: Family
    check: HttpCheck | None = None
    """None: by a connection to the NodePort itself, where the protocol allows one."""
    requested: frozenset[Family] = frozenset()
    """The families in which `check` is answered; empty means the NodePort's own."""
    by_connecting: bool = False
    """Pods may serve as well: all are checked by a connection, to `check`'s port where that is kube-proxy's."""

    @property
    def health(self) -> HealthCheck:
        """The health check that Envoy makes by HTTP; None where it only connects."""
        return None if self.by_connecting else self.check

    def backends(self, nodes: Iterable[Node]) -> list[Backend]:
        """Return the NodePort on each of `nodes` that has an address of the family."""
        return [
            Backend.at(address, self.number, self._requested(node), self._port)
            for node in nodes
            for address in node.addresses
            if Family.of(address) is self.family
        ]

    @property
    def _port(self) -> int:
        """The port that is asked instead of the check's own."""
        return KUBE_PROXY_PORT if self.by_connecting and self.check == HttpCheck(KUBE_PROXY_PORT) else 0

    def _requested(self, node: Node) -> IPAddress | None:
        """Find the address on which a Node answers, if it isn't any of the NodePort's family."""
        if not self.requested or self.family in self.requested:
            return None
        return next((address for address in node.addresses if Family.of(address) in self.requested), None)


class Health(Struct, frozen=True):
    """A cluster's health ports: the families in which port 10256 answers; empty where it answers in none.

    kube-proxy answers on port 10256 if it works, and on a Service's healthCheckNodePort if it works and has an endpoint
    there (externalTrafficPolicy Local). Such a check costs the application no connection and works for UDP as well.
    Clusters that have replaced it may answer on neither; there a TCP connection to the NodePort must do. The choice
    holds for a whole cluster, because Envoy has one kind of check for all backends of an upstream. Pods can only be
    checked by a connection, so NodePorts on standby for pods are checked by connections too: to kube-proxy's port, or
    under policy Local to the NodePort, which answers only where an endpoint is.
    """

    families: frozenset[Family]

    def of(self, service: Service, port: ServicePort, family: Family, *, excluding_pods: bool = False) -> NodePorts:
        """Decide how the NodePorts of a port are checked. Where 10256 answers, healthCheckNodePorts do as well.

        A UDP port is never checked by connecting, pods or not.
        """
        connecting = excluding_pods and port.protocol is Protocol.TCP
        if not self.families:
            return NodePorts(port.node_port, family)
        if service.traffic_policy is TrafficPolicy.LOCAL:
            check = HttpCheck(service.health_check_node_port) if service.health_check_node_port else None
            return NodePorts(port.node_port, family, check, by_connecting=connecting)
        return NodePorts(port.node_port, family, HttpCheck(KUBE_PROXY_PORT), self.families, connecting)


def by_service(slices: Iterable[EndpointSlice]) -> Mapping[ObjectKey, tuple[EndpointSlice, ...]]:
    """Sort EndpointSlices by what they belong to."""
    sorted_out: dict[ObjectKey, list[EndpointSlice]] = {}
    for endpoint_slice in slices:
        sorted_out.setdefault(endpoint_slice.service, []).append(endpoint_slice)
    return {key: tuple(each) for key, each in sorted_out.items()}


class BackendIndex(Struct, frozen=True):
    """Nodes, EndpointSlices and the routes to them."""

    nodes: Mapping[ClusterName, Sequence[Node]]
    slices: Mapping[ObjectKey, Sequence[EndpointSlice]]
    health_ports: Mapping[ClusterName, frozenset[Family]] = field(default_factory=dict)
    routed: Sequence[IPNetwork] | None = None
    reaches: Mapping[ClusterName, Reach] = field(default_factory=dict)
    """Reachable pod addresses of each cluster."""
    node_addresses: Mapping[ClusterName, Mapping[NodeName, tuple[IPAddress, ...]]] = field(default_factory=dict)
    """The addresses of all Nodes, whether they may be backends or not."""
    choice: BackendChoice = BackendChoice.AUTO
    """The stack's default for Services without a choice."""
    routes_to_pods: Mapping[ClusterName, Sequence[PodRoute]] = field(default_factory=dict)
    """Routes of ours to pods, there or about to be."""
    drained: Mapping[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """Backends of Services that get no new connections."""
    awaiting: Mapping[ClusterName, frozenset[Family]] = field(default_factory=dict)
    """The families in which all pods of running clusters are reached: EndpointSlices, which each Service gets, are
    waited for."""
    relays: Mapping[ClusterName, RelayWay] = field(default_factory=dict)
    """The relays of clusters with pods that are reached through the API server."""

    @classmethod
    def of(cls, nodes: Iterable[Node], slices: Iterable[EndpointSlice]) -> BackendIndex:
        """Sort eligible Nodes and all EndpointSlices by what they belong to."""
        return cls(nodes_by_cluster(nodes), by_service(slices))

    @classmethod
    def within(  # noqa: PLR0913, PLR0917 - what an index is made from
        cls,
        snapshot: Snapshot,
        nodes: Iterable[Node],
        settings: Settings | None = None,
        routes_to_pods: Mapping[ClusterName, Sequence[PodRoute]] = MappingProxyType({}),
        listed: Collection[ClusterName] = (),
        relays: Mapping[ClusterName, RelayWay] = MappingProxyType({}),
    ) -> BackendIndex:
        """Make the index of a snapshot with `nodes`, the eligible ones, in place of its own.

        `routes_to_pods` are routes of ours, existing or planned, each for the pods of one cluster. `listed` are running
        clusters with known EndpointSlices, `relays` those with pods that are reached through the API server.
        """
        made = cls.of(nodes, ())
        everywhere = nodes_by_cluster(snapshot.nodes)
        # A container's network has routes of its own.
        host = HostFacts() if settings and settings.publishes else snapshot.host
        reached = {
            cluster: reach_of(
                nodes_of_cluster, (*host.routes, *_made(routes_to_pods.get(cluster, ()))), host.diversions
            )
            for cluster, nodes_of_cluster in everywhere.items()
        }
        return cls(
            made.nodes,
            by_service(snapshot.slices),
            snapshot.health_ports,
            snapshot.host.routed,
            reached,
            {cluster: {node.name: node.addresses for node in nodes} for cluster, nodes in everywhere.items()},
            settings.backends if settings else BackendChoice.AUTO,
            routes_to_pods,
            {key: order.drained for key, order in snapshot.overrides.items() if order.drained},
            {
                cluster: frozenset(Family)
                if (way := relays.get(cluster)) and (way.only or not way.nodes_answer)
                else _reached_families(nodes_of_cluster, reached[cluster], routes_to_pods.get(cluster, ()))
                for cluster, nodes_of_cluster in made.nodes.items()
                if cluster in listed
            },
            relays,
        )

    def of_cluster(self, cluster: ClusterName) -> BackendIndex:
        """Leave only what one cluster has, without EndpointSlices."""
        return BackendIndex(
            {cluster: self.nodes.get(cluster, ())},
            {},
            {cluster: self.health_ports.get(cluster, frozenset())},
            self.routed,
            {cluster: self.reaches.get(cluster, Reach())},
            {cluster: self.node_addresses.get(cluster, {})},
            self.choice,
            {cluster: self.routes_to_pods.get(cluster, ())},
            awaiting={cluster: self.awaiting.get(cluster, frozenset())},
            relays={name: relay for name, relay in self.relays.items() if name == cluster},
        )

    def has_route(self, cluster: ClusterName, address: IPAddress) -> bool:
        """Return whether a route other than the default one leads to `address`; True if the routes are unknown.

        Routes of ours are for one cluster each.
        """
        if self.routed is None or any(address in network for network in self.routed):
            return True
        return self.reaches.get(cluster, Reach()).has(address)

    def health_port(self, cluster: ClusterName, node: NodeName | None) -> IPAddress | None:
        """Return where kube-proxy of a Node answers; None where that is unknown."""
        addresses = self.node_addresses.get(cluster, {}).get(node, ()) if node else ()
        families = self.health_ports.get(cluster, frozenset())
        return next((address for address in addresses if Family.of(address) in families), None)


def _reached_families(nodes: Sequence[Node], reach: Reach, ours: Sequence[PodRoute]) -> frozenset[Family]:
    """Return the families in which the pods of all Nodes are reached: by their ranges, if none has any by named ones.

    Routes of ours may lead to the Nodes themselves instead, where these are pods of another cluster.
    """
    if any(node.pod_cidrs for node in nodes):
        reached = [{Family.of(range_) for range_ in node.pod_cidrs if reach.has(range_[0])} for node in nodes]
        missed = {Family.of(range_) for node in nodes for range_ in node.pod_cidrs if not reach.has(range_[0])}
        return frozenset(set.intersection(*reached) - missed)
    addresses = [address for node in nodes for address in node.addresses]
    if any(address in route.destination for route in ours for address in addresses):
        return frozenset()
    return frozenset(Family.of(route.destination) for route in ours)


def _made(routes_to_pods: Iterable[PodRoute]) -> Iterator[HostRoute]:
    return (HostRoute(way.destination, "unicast", gateway=way.gateway, protocol=POD_PROTOCOL) for way in routes_to_pods)
