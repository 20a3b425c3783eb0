"""Nodes, EndpointSlices and routes of a snapshot, indexed by cluster and Service: made once for all Services.

Not here: which of them become backends (`backends`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, NodeName, ObjectKey
from locallb.model.network.routes import POD_PROTOCOL, PodRoute, Route
from locallb.model.objects import BackendChoice, EndpointSlice, Node
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.backends.reach import Reach, reach_of


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
    requested_at: Mapping[ClusterName, Mapping[NodeName, tuple[IPAddress, ...]]] = field(default_factory=dict)
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

    @classmethod
    def of(cls, nodes: Iterable[Node], slices: Iterable[EndpointSlice]) -> BackendIndex:
        """Sort eligible Nodes and all EndpointSlices by what they belong to."""
        by_cluster: dict[ClusterName, list[Node]] = {}
        for node in nodes:
            by_cluster.setdefault(node.cluster, []).append(node)
        return cls(by_cluster, by_service(slices))

    @classmethod
    def within(
        cls,
        snapshot: Snapshot,
        nodes: Iterable[Node],
        settings: Settings | None = None,
        routes_to_pods: Mapping[ClusterName, Sequence[PodRoute]] = MappingProxyType({}),
        listed: Collection[ClusterName] = (),
    ) -> BackendIndex:
        """Make the index of a snapshot with `nodes`, the eligible ones, in place of its own.

        `routes_to_pods` are routes of ours, existing or planned, each for the pods of one cluster. `listed` are running
        clusters with known EndpointSlices.
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
                cluster: _reached_families(nodes_of_cluster, reached[cluster], routes_to_pods.get(cluster, ()))
                for cluster, nodes_of_cluster in made.nodes.items()
                if cluster in listed
            },
        )

    def of_cluster(self, cluster: ClusterName) -> BackendIndex:
        """Leave only what one cluster has, without EndpointSlices."""
        return BackendIndex(
            {cluster: self.nodes.get(cluster, ())},
            {},
            {cluster: self.health_ports.get(cluster, frozenset())},
            self.routed,
            {cluster: self.reaches.get(cluster, Reach())},
            {cluster: self.requested_at.get(cluster, {})},
            self.choice,
            {cluster: self.routes_to_pods.get(cluster, ())},
            awaiting={cluster: self.awaiting.get(cluster, frozenset())},
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
        addresses = self.requested_at.get(cluster, {}).get(node, ()) if node else ()
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


def _made(routes_to_pods: Iterable[PodRoute]) -> Iterator[Route]:
    return (Route(way.destination, "unicast", gateway=way.gateway, protocol=POD_PROTOCOL) for way in routes_to_pods)
