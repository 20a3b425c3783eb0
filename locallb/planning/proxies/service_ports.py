"""The ports of a Service on its addresses: a listener for each family with backends, and its upstreams.

Not here: which backends (`backends`), and the ports of Gateways (`gateways.serving`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from locallb.model.faults import Detour
from locallb.model.identities import Family, IPAddress, ObjectKey, Protocol, UpstreamName
from locallb.model.naming import upstream_name
from locallb.model.objects import Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, HttpCheck, Listener, Upstream
from locallb.planning.backends.backends import PortBackends
from locallb.planning.gateways.serving import Where
from locallb.planning.planned import PlannedPort, Via

DETOUR = "-detour"
"""Added to an upstream's name: where connections go while backends of it are down."""
MAX_TRIED = 16
"""Backends of a port that are tried before it is said to serve."""


def upstream_of(service: Service, entry: PortBackends, prefix: str, suffix: str) -> Upstream | None:
    """Return an upstream of the backends of a port in one family; None where it has none."""
    if not entry.backends:
        return None
    return Upstream(
        UpstreamName(prefix + upstream_name(entry.port.protocol, entry.port.port, entry.family) + suffix),
        entry.port.protocol,
        entry.backends,
        service.client_ip_affinity,
        entry.health,
        entry.standby,
        service.proxy_protocol if entry.port.protocol is Protocol.TCP else None,
    )


def planned_port(  # noqa: PLR0913, PLR0917 - what a port is made from
    key: ObjectKey,
    where: Where,
    port: ServicePort,
    backends: Sequence[PortBackends],
    listen: Callable[[ServicePort, IPAddress], Listener],
    has_route: Callable[[IPAddress], bool],
) -> PlannedPort:
    """Return `port` with a listener on each address of a family with backends, and the problem if one lacks them."""
    if port in where.problems:
        return PlannedPort(port, problem=where.problems[port])
    mine = {entry.family: entry for entry in backends if entry.port == port}
    listeners, problem, pod_paths, silence = [], None, set[Via](), dict[UpstreamName, Problem]()
    tried = dict[UpstreamName, tuple[str, ...]]()
    for address in where.addresses:
        entry, claimed = mine[Family.of(address)], where.claimed.get((port, address))
        problem = problem or claimed or entry.problem
        if entry.backends and not claimed:
            listeners.append(listen(port, address))
            pod_paths.add(Via.PODS if entry.straight else Via.NODE_PORTS)
            silence[listeners[-1].upstream] = _silence(key, port, entry.backends, has_route)
            if isinstance(entry.health, HttpCheck) and port.protocol is Protocol.TCP:
                tried[listeners[-1].upstream] = tuple(str(backend) for backend in entry.backends[:MAX_TRIED])
    via = Via.BOTH if len(pod_paths) > 1 else next(iter(pod_paths), None)
    return PlannedPort(port, tuple(listeners), problem, via, silence, tried)


def _silence(
    key: ObjectKey, port: ServicePort, backends: Sequence[Backend], has_route: Callable[[IPAddress], bool]
) -> Problem:
    """Return what is wrong if none of these takes a connection."""
    many, first = len(backends) > 1, backends[0]
    silent = f"none of its {len(backends)} backends, such as {first}," if many else f"its backend {first}"
    if any(has_route(backend.address) for backend in backends):
        why = f"{silent} takes {'a' if many else 'no'} connection; start what listens there, or correct the port"
        return Problem(Reason.BACKENDS_DOWN, f"{key} port {port}: {why}")
    why = f"{silent} {'answers' if many else 'does not answer'}, and this host has no route there but its default one"
    remedy = "run local-lb where the Nodes are reached, or add a route to them"
    return Problem(Reason.UNREACHABLE, f"{key} port {port}: {why}; {remedy}")


def listener_of(  # noqa: PLR0913, PLR0917 - what a listener is made from
    service: Service,
    prefix: str,
    patient: bool,  # noqa: FBT001 - a part of the listener
    leads: Mapping[tuple[ServicePort, Family], bool],
    port: ServicePort,
    address: IPAddress,
) -> Listener:
    """Return the listener of a port on an address; `leads` has whether an ordered detour has backends."""
    family, down = Family.of(address), service.ordered.down
    name, leads_on = prefix + upstream_name(port.protocol, port.port, family), leads.get((port, family))
    led_to = UpstreamName(name + DETOUR if leads_on else "")
    return Listener(
        address,
        port.number,
        port.protocol,
        UpstreamName(name),
        service.source_ranges,
        service.client_ip_affinity,
        patient=patient,
        fault=service.failing if port.protocol is Protocol.TCP else None,
        detour=Detour(led_to, down.until) if down and leads_on is not None else None,
    )
