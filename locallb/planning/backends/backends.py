"""Where the connections of each port may go: Nodes' NodePorts or, where there are none, the endpoints themselves.

Refusal follows desired state: no eligible Node, or no usable endpoint although EndpointSlices are known, means no
backend and, later, no listener. Slices of a Service that aren't there say nothing. Not here: which Nodes are eligible
(`nodes`), which endpoints are usable (`usable_endpoints`), whether a backend answers (the proxy's health check).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from locallb.model.formatting import counted
from locallb.model.identities import ClusterName, Family, IPNetwork, ObjectKey, Protocol
from locallb.model.objects import EndpointSlice, Node, Service, ServicePort, TrafficPolicy
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, ConnectCheck, HealthCheck
from locallb.model.snapshot import Snapshot
from locallb.planning.backends.node_health import Health, NodePorts
from locallb.planning.backends.usable_endpoints import Usable, usable, why_none_is


@dataclass(frozen=True, slots=True)
class PortBackends:
    """The backends of one port in one family, sorted and each once; a problem exactly where there are none."""

    port: ServicePort
    family: Family
    backends: tuple[Backend, ...] = ()
    health: HealthCheck = None
    problem: Problem | None = None
    standby: tuple[Backend, ...] = ()
    """Where traffic may go when the health checks of all `backends` fail and theirs don't."""


@dataclass(frozen=True, slots=True)
class BackendIndex:
    """What can be behind the Services of a snapshot, looked up by cluster and Service: made once, used for all."""

    nodes: Mapping[ClusterName, Sequence[Node]]
    slices: Mapping[ObjectKey, Sequence[EndpointSlice]]
    health_ports: Mapping[ClusterName, frozenset[Family]] = field(default_factory=dict)
    routed: Sequence[IPNetwork] | None = None

    @classmethod
    def of(cls, nodes: Iterable[Node], slices: Iterable[EndpointSlice]) -> BackendIndex:
        """Sort eligible Nodes and all EndpointSlices by what they belong to."""
        by_cluster: dict[ClusterName, list[Node]] = {}
        by_service: dict[ObjectKey, list[EndpointSlice]] = {}
        for node in nodes:
            by_cluster.setdefault(node.cluster, []).append(node)
        for one in slices:
            by_service.setdefault(one.service, []).append(one)
        return cls(by_cluster, by_service)

    @classmethod
    def within(cls, snapshot: Snapshot, nodes: Iterable[Node]) -> BackendIndex:
        """Take from a snapshot all but the Nodes, of which only the eligible ones count."""
        made = cls.of(nodes, snapshot.slices)
        return cls(made.nodes, made.slices, snapshot.health_ports, snapshot.host.routed)

    def of_service(self, key: ObjectKey) -> BackendIndex:
        """Leave only what may be behind one Service."""
        cluster = key.cluster
        return BackendIndex(
            {cluster: self.nodes.get(cluster, ())},
            {key: self.slices.get(key, ())},
            {cluster: self.health_ports.get(cluster, frozenset())},
            self.routed,
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """Backends and how they are checked, or half a sentence why there are none."""

    backends: Iterable[Backend] = ()
    why_none: str = ""
    reason: Reason = Reason.NO_BACKENDS
    health: HealthCheck = None
    standby: Iterable[Backend] = ()


def upstreams(service: Service, around: BackendIndex) -> tuple[PortBackends, ...]:
    """Find the backends of each port of `service` in each of its families."""
    return tuple(
        _entry(service, port, family, _find(service, port, family, around))
        for port in service.ports
        for family in service.families
    )


def _entry(service: Service, port: ServicePort, family: Family, found: _Found) -> PortBackends:
    backends = tuple(sorted(set(found.backends)))
    if backends:
        health = found.health or (ConnectCheck() if port.protocol is Protocol.TCP else None)
        standby = tuple(sorted(set(found.standby).difference(backends)))
        return PortBackends(port, family, backends, health, standby=standby)
    sentence = f"{service.key} port {port}: {found.why_none}"
    return PortBackends(port, family, problem=Problem(found.reason, sentence))


def _find(service: Service, port: ServicePort, family: Family, around: BackendIndex) -> _Found:
    nodes, slices = around.nodes.get(service.key.cluster, ()), around.slices.get(service.key, ())
    ready = usable(port, family, slices)
    if slices and not ready:
        return _Found(why_none=why_none_is(port, family, slices))
    if not port.node_port:
        return _direct(port, family, ready, around.routed)
    if not nodes:
        why = "the cluster has no Node that may be a backend; add one, or look at deletions, taints and labels of Nodes"
        return _Found(why_none=why)
    health = Health(around.health_ports.get(service.key.cluster, frozenset()))
    return _on_nodes(service, health.of(service, port, family), nodes, ready if slices else None)


def _on_nodes(service: Service, here: NodePorts, nodes: Sequence[Node], ready: Sequence[Usable] | None) -> _Found:
    """Find NodePorts; `ready` is None where no EndpointSlices are known."""
    others: Sequence[Node] = ()
    if service.traffic_policy is TrafficPolicy.LOCAL and ready is not None:
        hosts = {one.endpoint.node for one in ready}
        # Only a check of kube-proxy itself tells whether an endpoint has come to one of the others meanwhile. What
        # drains is unhealthy for it: then those that stand by, no healthier, would get a share of the traffic.
        follows = here.check and any(one.endpoint.ready for one in ready)
        others = [node for node in nodes if node.name not in hosts] if follows else ()
        nodes = [node for node in nodes if node.name in hosts]
        if not nodes:
            why = (
                f"externalTrafficPolicy is Local and none of its {counted(len(ready), 'ready endpoint')} is on a Node "
                "that may be a backend; use Cluster, or let its pods run on such a Node"
            )
            return _Found(why_none=why)
    why = f"none of {counted(len(nodes), 'Node')} has an {here.family} InternalIP; give one or leave {here.family} out"
    return _Found(here.backends(nodes), why, health=here.check, standby=here.backends(others))


def _direct(port: ServicePort, family: Family, ready: Sequence[Usable], routed: Sequence[IPNetwork] | None) -> _Found:
    """Let the endpoints themselves serve, as far as this host has a route to them."""
    if not ready:
        why = "it has no nodePort and no EndpointSlice is known; give it a nodePort or the Service its EndpointSlices"
        return _Found(why_none=why)
    backends = [_endpoint(port, one) for one in ready]
    near = [one for one in backends if routed is None or any(one.address in network for network in routed)]
    why = (
        f"it has no nodePort, and this host has no route to its {counted(len(ready), family + ' endpoint')}, such as "
        f"{min(backends)}; set allocateLoadBalancerNodePorts, or add a route to the pods"
    )
    return _Found(near, why, Reason.UNREACHABLE)


def _endpoint(port: ServicePort, ready: Usable) -> Backend:
    """Make the backend that is an endpoint itself; its first address, as kube-proxy does."""
    number = ready.port.port or (port.target_port if isinstance(port.target_port, int) else port.port)
    return Backend.at(ready.endpoint.addresses[0], number)
