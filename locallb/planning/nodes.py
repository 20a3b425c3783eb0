"""Nodes as backends: the eligible ones, by the rules of Kubernetes' own service controller, and their health checks.

Health checks use kube-proxy's health ports or, without any, the NodePort itself (`Health`). The Nodes, EndpointSlices
and routes of a snapshot are indexed by cluster and Service, once for all Services (`BackendIndex`).

Not here: which Nodes and endpoints become backends (`backends`), whether a Node has a usable endpoint (`endpoints`),
and the checks: Envoy checks Nodes, and the source finds which health ports answer (`kubernetes/api/health_ports`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, NodeName, ObjectKey, Protocol
from locallb.model.objects import BackendChoice, EndpointSlice, Node, Service, ServicePort, TrafficPolicy
from locallb.model.relays import RelayId
from locallb.model.routes import POD_PROTOCOL, HostRoute, PodRoute
from locallb.model.serving import Backend, HealthCheck, HttpCheck
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.texts import counted
from locallb.planning.endpoints import Reach, reach_of

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
    for cluster, group in groupby(staying, key=lambda node: node.cluster):
        alive = list(group)
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
    relays: Mapping[ClusterName, RelayId] = field(default_factory=dict)
    """The relays of clusters with pods that are reached through the API server."""

    @classmethod
    def of(cls, nodes: Iterable[Node], slices: Iterable[EndpointSlice]) -> BackendIndex:
        """Sort eligible Nodes and all EndpointSlices by what they belong to."""
        by_cluster: dict[ClusterName, list[Node]] = {}
        for node in nodes:
            by_cluster.setdefault(node.cluster, []).append(node)
        return cls(by_cluster, by_service(slices))

    @classmethod
    def within(  # noqa: PLR0913, PLR0917 - what an index is made from
        cls,
        snapshot: Snapshot,
        nodes: Iterable[Node],
        settings: Settings | None = None,
        routes_to_pods: Mapping[ClusterName, Sequence[PodRoute]] = MappingProxyType({}),
        listed: Collection[ClusterName] = (),
        relays: Mapping[ClusterName, RelayId] = MappingProxyType({}),
    ) -> BackendIndex:
        """Make the index of a snapshot with `nodes`, the eligible ones, in place of its own.

        `routes_to_pods` are routes of ours, existing or planned, each for the pods of one cluster. `listed` are running
        clusters with known EndpointSlices, `relays` those with pods that are reached through the API server.
        """
        made = cls.of(nodes, ())
        everywhere = cls.of(snapshot.nodes, ()).nodes
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
                if cluster in relays
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
