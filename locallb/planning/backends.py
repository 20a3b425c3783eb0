"""Where the connections of each port may go: Nodes' NodePorts or, where there are none, the endpoints themselves.

Refusal follows desired state: no eligible Node, or no ready endpoint although EndpointSlices are known, means no
backend and, later, no listener. Slices of a Service that aren't there say nothing. Not here: which Nodes are eligible
(`nodes`), whether a backend answers (the proxy's health check).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from locallb.planning.model import (
    ClusterName,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Family,
    Node,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
)
from locallb.planning.reasons import Problem, Reason
from locallb.planning.serving import Backend, ConnectCheck, HealthCheck
from locallb.planning.words import counted


@dataclass(frozen=True, slots=True)
class PortBackends:
    """The backends of one port in one family, sorted and each once; a problem exactly where there are none."""

    port: ServicePort
    family: Family
    backends: tuple[Backend, ...] = ()
    health: HealthCheck = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What can be behind the Services of a snapshot, looked up by cluster and Service: made once, used for all."""

    nodes: Mapping[ClusterName, Sequence[Node]]
    slices: Mapping[ServiceKey, Sequence[EndpointSlice]]

    @classmethod
    def of(cls, nodes: Iterable[Node], slices: Iterable[EndpointSlice]) -> Surroundings:
        """Sort eligible Nodes and all EndpointSlices by what they belong to."""
        by_cluster: dict[ClusterName, list[Node]] = {}
        by_service: dict[ServiceKey, list[EndpointSlice]] = {}
        for node in nodes:
            by_cluster.setdefault(node.cluster, []).append(node)
        for one in slices:
            by_service.setdefault(one.service, []).append(one)
        return cls(by_cluster, by_service)


@dataclass(frozen=True, slots=True)
class _Found:
    """Backends, or half a sentence why there are none."""

    backends: Iterable[Backend] = ()
    why_none: str = ""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A ready endpoint, and the slice's port that it serves a Service's port on."""

    endpoint: Endpoint
    port: EndpointPort


def upstreams(service: Service, around: Surroundings) -> tuple[PortBackends, ...]:
    """Find the backends of each port of `service` in each of its families."""
    nodes, slices = around.nodes.get(service.key.cluster, ()), around.slices.get(service.key, ())
    return tuple(
        _entry(service, port, family, _find(service, port, family, nodes, slices))
        for port in service.ports
        for family in service.families
    )


def _entry(service: Service, port: ServicePort, family: Family, found: _Found) -> PortBackends:
    backends = tuple(sorted(set(found.backends)))
    if backends:
        return PortBackends(port, family, backends, ConnectCheck() if port.protocol is Protocol.TCP else None)
    sentence = f"{service.key} port {port}: {found.why_none}"
    return PortBackends(port, family, problem=Problem(Reason.NO_BACKENDS, sentence))


def _find(
    service: Service, port: ServicePort, family: Family, nodes: Sequence[Node], slices: Sequence[EndpointSlice]
) -> _Found:
    ready = tuple(_ready(port, family, slices))
    if slices and not ready:
        return _Found(why_none=_no_endpoint(port, family, slices))
    if not port.node_port:
        if slices:
            return _Found(backends=[_direct(port, one) for one in ready])
        why = "it has no nodePort and no EndpointSlice is known; give it a nodePort or the Service its EndpointSlices"
        return _Found(why_none=why)
    if not nodes:
        why = "the cluster has no Node that may be a backend; add one, or look at deletions, taints and labels of Nodes"
        return _Found(why_none=why)
    return _on_nodes(service, port, family, nodes, ready if slices else None)


def _on_nodes(
    service: Service, port: ServicePort, family: Family, nodes: Sequence[Node], ready: Sequence[_Ready] | None
) -> _Found:
    """Find NodePorts; `ready` is None where no EndpointSlices are known."""
    if service.traffic_policy is TrafficPolicy.LOCAL and ready is not None:
        hosts = {one.endpoint.node for one in ready}
        nodes = [node for node in nodes if node.name in hosts]
        if not nodes:
            why = (
                f"externalTrafficPolicy is Local and none of its {counted(len(ready), 'ready endpoint')} is on a Node "
                "that may be a backend; use Cluster, or let its pods run on such a Node"
            )
            return _Found(why_none=why)
    backends = [
        Backend.at(address, port.node_port)
        for node in nodes
        for address in node.addresses
        if Family.of(address) is family
    ]
    why = f"none of {counted(len(nodes), 'Node')} has an {family} InternalIP; give one or leave {family} out"
    return _Found(backends, why)


def _ready(port: ServicePort, family: Family, slices: Iterable[EndpointSlice]) -> Iterable[_Ready]:
    """Give the ready endpoints of a port in a family; the ports of slice and Service match by name and protocol."""
    for one in slices:
        if one.family is not family:
            continue
        match = next((p for p in one.ports if (p.name, p.protocol) == (port.name, port.protocol)), None)
        if match:
            yield from (_Ready(endpoint, match) for endpoint in one.endpoints if endpoint.ready)


def _direct(port: ServicePort, ready: _Ready) -> Backend:
    """Make the backend that is an endpoint itself; its first address, as kube-proxy does."""
    number = ready.port.port or (port.target_port if isinstance(port.target_port, int) else port.port)
    return Backend.at(ready.endpoint.addresses[0], number)


def _no_endpoint(port: ServicePort, family: Family, slices: Sequence[EndpointSlice]) -> str:
    here = [one for one in slices if one.family is family]
    known = sum(len(one.endpoints) for one in here)
    named = f' named "{port.name}"' if port.name else ""
    if known and not any((p.name, p.protocol) == (port.name, port.protocol) for one in here for p in one.ports):
        return f"no EndpointSlice has a {port.protocol} port{named or ' without a name'}; look at its targetPort"
    state = f"none of its {counted(known, family + ' endpoint')} is ready" if known else f"it has no {family} endpoint"
    return f"{state}; look at its pods and selector"
