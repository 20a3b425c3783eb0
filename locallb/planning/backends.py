"""The backends of each port: its endpoints (pods) directly, or Nodes' NodePorts.

Refusal follows desired state: no eligible Node, or no usable endpoint although EndpointSlices are known, means no
backend and, later, no listener. Missing EndpointSlices of a Service mean nothing, except in a running cluster with
pods that this host reaches: each Service gets some in a moment there, so they are waited for. Behind endpoints the
NodePorts are on standby, for a network that doesn't let this host in. Not here: which Nodes are eligible, and
which endpoints are usable and reached (`endpoints`), whether one answers (the proxy's health check).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import ClusterName, Family, IPAddress, Protocol
from locallb.model.objects import BackendChoice, Node, Service, ServicePort, TrafficPolicy, Via
from locallb.model.reasons import Problem, Reason
from locallb.model.relays import Relayed, RelayedPort, RelayId, RelayWay
from locallb.model.serving import Backend, ConnectCheck, HealthCheck, distinct
from locallb.model.texts import counted
from locallb.planning.endpoints import (
    KUBE_PROXY_PORT,
    BackendIndex,
    Health,
    NodePorts,
    Reach,
    Usable,
    endpoints_without,
    names_of_endpoints,
    nodes_without,
    usable,
    why_none_is,
)


class PortBackends(Struct, frozen=True):
    """The backends of one port in one family, sorted and distinct; a problem exactly if there are none."""

    port: ServicePort
    family: Family
    backends: tuple[Backend, ...] = ()
    health: HealthCheck = None
    problem: Problem | None = None
    standby: tuple[Backend, ...] = ()
    """Where traffic may go when the health checks of all `backends` fail and theirs don't."""
    via: Via = Via.NODE_PORTS
    """Where connections go first."""


class _Found(Struct, frozen=True):
    """Backends and how they are checked, or half a sentence why there are none."""

    backends: Iterable[Backend] = ()
    why_none: str = ""
    reason: Reason = Reason.NO_BACKENDS
    health: HealthCheck = None
    standby: Iterable[Backend] = ()
    via: Via = Via.NODE_PORTS


def failover_backends(service: Service, index: BackendIndex) -> Iterator[PortBackends]:
    """Find the backends that TCP ports have as long as some of theirs count as if they refused; none where alike."""
    if not service.ordered.down:
        return
    out = service.ordered.drained | service.ordered.down.names
    for entry in upstreams(service, index):
        others = _entry(service, entry.port, entry.family, _find(service, entry.port, entry.family, index, out))
        if entry.port.protocol is Protocol.TCP and others.backends != entry.backends:
            yield others


def upstreams(service: Service, index: BackendIndex) -> tuple[PortBackends, ...]:
    """Find the backends of each port of `service` in each of its families, except drained ones."""
    out = service.ordered.drained
    return tuple(
        _drain_notice(service, index, _entry(service, port, family, _find(service, port, family, index, out)))
        for port in service.ports
        for family in service.families
    )


def _drain_notice(service: Service, index: BackendIndex, entry: PortBackends) -> PortBackends:
    """Report that a port's backends are drained, if that is the only reason that it has none."""
    if not (service.ordered.drained and entry.problem):
        return entry
    undrained = _entry(service, entry.port, entry.family, _find(service, entry.port, entry.family, index))
    if undrained.problem:
        return undrained
    sentence = f"all its backends are drained; `locallb drain {service.key} --undo` brings them back"
    return replace(entry, problem=Problem(Reason.NO_BACKENDS, f"{service.key} port {entry.port}: {sentence}"))


def _entry(service: Service, port: ServicePort, family: Family, reached: _Found) -> PortBackends:
    backends = distinct(reached.backends)
    if backends:
        health = reached.health or (ConnectCheck() if port.protocol is Protocol.TCP else None)
        standby = distinct(reached.standby, without=backends)
        return PortBackends(port, family, backends, health, standby=standby, via=reached.via)
    sentence = f"{service.key} port {port}: {reached.why_none}"
    return PortBackends(port, family, problem=Problem(reached.reason, sentence))


def _find(
    service: Service, port: ServicePort, family: Family, index: BackendIndex, out: Collection[str] = ()
) -> _Found:
    """Find the backends except those in `out`; all of them decide whether pods or NodePorts are used."""
    nodes = nodes_without(index.nodes.get(service.key.cluster, ()), out)
    slices = index.slices.get(service.key, ())
    ready = usable(port, family, slices, service.ports)
    # Not before: where the last ready ones are out, those that terminate must not get new connections instead.
    remaining = endpoints_without(ready, out)
    if slices and not remaining:
        return _Found(why_none=why_none_is(port, family, slices, service.ports))
    choice = service.backends or index.choice
    if not slices and family in index.awaiting.get(service.key.cluster, ()) and choice is not BackendChoice.NODE_PORTS:
        # A NodePort would be given up again in a moment, and kube-proxy opens it a second later than it is known.
        return _Found(why_none="it has no EndpointSlice yet, which Kubernetes makes for a Service with a selector")
    way = index.relays.get(service.key.cluster)
    if way and way.only:
        return _relayed(service, port, remaining, way.relay)
    if not port.node_port:
        cluster, anywhere = service.key.cluster, choice is BackendChoice.PODS
        direct = _direct(port, family, remaining, lambda address: anywhere or index.has_route(cluster, address))
        return _or_relayed(direct, service, port, remaining, way)
    health = Health(index.health_ports.get(service.key.cluster, frozenset()))
    reached = _reached(ready, choice, index.reaches.get(service.key.cluster, Reach()))
    here = health.of(service, port, family, excluding_pods=reached > 0)
    by_nodes = _on_nodes(service, here, nodes, remaining if slices else None)
    if not reached or reached < len(ready):
        unanswered = choice is BackendChoice.AUTO and way is not None and not way.nodes_answer
        return _or_relayed(by_nodes, service, port, remaining, way) if unanswered else by_nodes
    backends = [_endpoint(port, match, *_requested(here, service.key.cluster, match, index)) for match in remaining]
    # Behind NodePorts Kubernetes chooses the pod, also one that is out.
    stands_by = not out or names_of_endpoints(slices).isdisjoint(out)
    standby = (*by_nodes.backends, *by_nodes.standby) if stands_by else ()
    return _Found(backends, health=here.health, standby=standby, via=Via.PODS)


def _reached(ready: Sequence[Usable], choice: BackendChoice, reach: Reach) -> int:
    """Count the endpoints to which connections could go, of a port that has a NodePort as well.

    It takes all of them to go there; as long as it is any, going there and back is a change of endpoints only.
    """
    match choice:
        case BackendChoice.AUTO:
            return sum(reach.has(match.endpoint.addresses[0]) for match in ready)
        case BackendChoice.PODS:
            return len(ready)
        case BackendChoice.NODE_PORTS:
            return 0


def _requested(
    here: NodePorts, cluster: ClusterName, ready: Usable, index: BackendIndex
) -> tuple[IPAddress | None, int | None]:
    """Return the address that an endpoint's health check queries: itself or, for UDP, kube-proxy of its Node."""
    if here.health is None:
        return None, 0
    node = index.health_port(cluster, ready.endpoint.node)
    return node, KUBE_PROXY_PORT if node else None


def _on_nodes(service: Service, here: NodePorts, nodes: Sequence[Node], ready: Sequence[Usable] | None) -> _Found:
    """Find NodePorts; `ready` is None where no EndpointSlices are known."""
    if not nodes:
        why = "the cluster has no Node that may be a backend; add one, or look at deletions, taints and labels of Nodes"
        return _Found(why_none=why)
    others: Sequence[Node] = ()
    if service.traffic_policy is TrafficPolicy.LOCAL and ready is not None:
        hosts = {match.endpoint.node for match in ready}
        # Only kube-proxy's own health check shows whether an endpoint has moved to one of the others. It reports
        # draining Nodes as unhealthy: the standbys, no healthier, would then get a share of the traffic.
        follows = here.check and any(match.endpoint.ready for match in ready)
        others = [node for node in nodes if node.name not in hosts] if follows else ()
        nodes = [node for node in nodes if node.name in hosts]
        if not nodes:
            why = (
                f"externalTrafficPolicy is Local and none of its {counted(len(ready), 'ready endpoint')} is on a Node "
                "that may be a backend; use Cluster, or let its pods run on such a Node"
            )
            return _Found(why_none=why)
    why = f"none of {counted(len(nodes), 'Node')} has an {here.family} InternalIP; give one or leave {here.family} out"
    return _Found(here.backends(nodes), why, health=here.health, standby=here.backends(others))


def _direct(port: ServicePort, family: Family, ready: Sequence[Usable], reached: Callable[[IPAddress], bool]) -> _Found:
    """Choose the endpoints themselves as backends, as far as this host has a route to them."""
    if not ready:
        why = (
            "it has no nodePort and no EndpointSlice with IP addresses is known (addressType FQDN isn't served);"
            " give it a nodePort or the Service its EndpointSlices"
        )
        return _Found(why_none=why)
    backends = [_endpoint(port, match) for match in ready]
    near = [backend for backend in backends if reached(backend.address)]
    why = (
        f"it has no nodePort, and this host has no route to its {counted(len(ready), family + ' endpoint')}, such as "
        f"{distinct(backends)[0]}; let local-lb:podRoutes host make the route, or give the port a nodePort"
    )
    return _Found(near, why, Reason.UNREACHABLE, via=Via.PODS)


def _relayed(service: Service, port: ServicePort, ready: Sequence[Usable], relay: RelayId) -> _Found:
    """Choose pods as backends, by way of the relay that connects to them through the API server."""
    if port.protocol is not Protocol.TCP:
        why = f"its pods are reached through the API server only, which forwards no {port.protocol}; {_OTHER_WAY}"
        return _Found(why_none=why, reason=Reason.UNREACHABLE)
    group = f"{service.key}:{port.number}"
    backends = [
        replace(
            backend, relayed=Relayed(relay, RelayedPort(group, service.key.namespace, match.endpoint.pod, backend.port))
        )
        for match in ready
        if match.endpoint.pod
        for backend in [_endpoint(port, match)]
    ]
    why = "none of its endpoints is a pod, and this host reaches nothing else through the API server; " + _OTHER_WAY
    return _Found(backends, why, Reason.UNREACHABLE, via=Via.API)


def _or_relayed(
    found: _Found, service: Service, port: ServicePort, ready: Sequence[Usable], way: RelayWay | None
) -> _Found:
    """Choose pods by a relay if it reaches them, in place of nothing or of NodePorts of Nodes that don't answer.

    UDP is refused in place of those: datagrams would vanish, which no health check notices.
    """
    if way is None or (found.via is Via.PODS and found.backends):
        return found
    if port.protocol is not Protocol.TCP:
        return _relayed(service, port, ready, way.relay) if found.backends else found
    if not way.reaches(service.key.namespace):
        return found
    relayed = _relayed(service, port, ready, way.relay)
    return relayed if relayed.backends else found


_OTHER_WAY = "run local-lb where the Nodes are reached, or let local-lb:podRoutes host make routes"


def _endpoint(
    port: ServicePort, ready: Usable, checked_at: IPAddress | None = None, checked_port: int | None = 0
) -> Backend:
    """Make the backend that is an endpoint itself; its first address, as kube-proxy does."""
    number = ready.port.port or (port.target_port if isinstance(port.target_port, int) else port.port)
    return Backend.at(ready.endpoint.addresses[0], number, checked_at, checked_port)
