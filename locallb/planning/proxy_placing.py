"""Places a Service on its addresses: a listener for each family with backends, its upstreams, and its proxy.

All inputs come in two values, `PlacementInputs` and `PlanContext`, so that a cache can compare them (`model.memory`).

Not here: the choice of addresses (`planning.allocation`), of backends (`planning.backends`) and of the proxy
(`planning.proxy_assignment`), rejections (`planning.plan`), and the ports of Gateways (`planning.gateways`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.envoy import render, render_empty, render_part
from locallb.gateway.routes import Bound
from locallb.gateway.texts import route_lines
from locallb.model.faults import Detour
from locallb.model.http_serving import HttpListener
from locallb.model.identities import (
    LOCALHOST,
    Family,
    Home,
    IPAddress,
    ObjectKey,
    Owner,
    Protocol,
    ProxyName,
    UpstreamName,
)
from locallb.model.identities import place as place_of
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Discovery, Service, ServicePort, Via
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, HeapBounds, HttpCheck, Listener, Part, Proxy, Upstream, with_bounded_checks
from locallb.model.snapshot import Access, HostFacts
from locallb.model.texts import part_id, proxy_id, proxy_name, proxy_owner, upstream_name
from locallb.planning.admission import PortProblems
from locallb.planning.backends import PortBackends, failover_backends, upstreams
from locallb.planning.endpoints import BackendIndex
from locallb.planning.gateways import Serving, Where, serve
from locallb.planning.notices import Notice
from locallb.planning.planned import (
    Placement,
    PlannedPart,
    PlannedPort,
    PlannedProxy,
    PlannedRun,
    RunInputs,
    SocketAddress,
    run_planner,
)
from locallb.planning.proxy_assignment import ProxyAssignment

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
    listeners, problem, paths, silence = [], None, set[Via](), dict[UpstreamName, Problem]()
    tried = dict[UpstreamName, tuple[str, ...]]()
    for address in where.addresses:
        entry, occupied = mine[Family.of(address)], where.occupied.get((port, address))
        problem = problem or occupied or entry.problem
        if entry.backends and not occupied:
            listeners.append(listen(port, address))
            paths.add(entry.via)
            silence[listeners[-1].upstream] = _silence(key, port, entry.backends, has_route)
            if isinstance(entry.health, HttpCheck) and port.protocol is Protocol.TCP:
                tried[listeners[-1].upstream] = tuple(str(backend) for backend in entry.backends[:MAX_TRIED])
    via = Via.BOTH if len(paths) > 1 else next(iter(paths), None)
    return PlannedPort(port, tuple(listeners), problem, via, silence, tried)


def _silence(
    key: ObjectKey, port: ServicePort, backends: Sequence[Backend], has_route: Callable[[IPAddress], bool]
) -> Problem:
    """Return what is wrong if none of these takes a connection."""
    many, first = len(backends) > 1, backends[0]
    silent = f"none of its {len(backends)} backends, such as {first}," if many else f"its backend {first}"
    if any(backend.relayed for backend in backends):
        why = f"the relay to {'them' if many else 'it'} through the API server doesn't answer; `locallb up` starts it"
        return Problem(Reason.BACKENDS_DOWN, f"{key} port {port}: {silent} is reached: {why}")
    if any(has_route(backend.address) for backend in backends):
        why = f"{silent} takes {'a' if many else 'no'} connection; start what listens there, or correct the port"
        return Problem(Reason.BACKENDS_DOWN, f"{key} port {port}: {why}")
    why = f"{silent} {'answers' if many else 'does not answer'}, and this host has no route there but its default one"
    remedy = (
        "run local-lb where the Nodes are reached, add a route to them, or let local-lb:podRoutes api connect through"
        " the API server"
    )
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


class PlanContext(NamedTuple):
    """Common inputs of all placements of a plan."""

    home: Home
    settings: Settings
    host: HostFacts
    """Only the facts used in a proxy; other facts of the host are inputs of each Service."""

    @classmethod
    def of(cls, home: Home, settings: Settings, host: HostFacts) -> PlanContext:
        """Take from the host what goes into proxies."""
        return cls(home, settings, HostFacts(envoy=host.envoy, group=host.group, subnets=host.subnets))


class PlacementInputs(NamedTuple):
    """Inputs of one placement besides the frame: equal ones give equal placements."""

    service: Service
    addresses: tuple[IPAddress, ...]
    assignment: ProxyAssignment
    backend_index: BackendIndex
    """Possible backends of this Service; EndpointSlices of other Services aren't in it."""
    problems: PortProblems
    """Its ports that can't be served on this host at all."""
    occupied: Mapping[tuple[ServicePort, IPAddress], Problem]
    """Its ports that can't be served at one of its addresses, because another program listens there."""
    access: Access | None
    notices: tuple[Notice, ...]
    gateway: Bound | None = None
    """The Gateway or Ingresses to serve; None for a Service, which gets plain bytes."""


class Placed(NamedTuple):
    """A placement, and its proxy unless that is one of the stack's."""

    placement: Placement
    own: PlannedProxy | None


def place(given: PlacementInputs, frame: PlanContext, memory: AnyMemo) -> Placed:
    """Put one Service on its addresses, behind a proxy of its own or one of the stack's.

    `memory` caches what concerns a host or a backend of a Gateway alone.
    """
    service, assignment = given.service, given.assignment
    serving = _served(given, frame, memory)
    ports, listeners, http, served = serving.ports, serving.listeners, serving.http, serving.upstreams
    if assignment.traits.heap and not assignment.traits.heap.size and not given.gateway:
        # Another listener would end open connections in time; HTTP's are kept only as safe as they can be made.
        listeners = tuple(replace(listener, bounded=False) for listener in listeners)
        served = tuple(replace(upstream, bounded=False) for upstream in served)
    served = with_bounded_checks(served)
    if frame.settings.traffic_details:
        served = tuple(replace(upstream, measured=True) for upstream in served)
    if frame.settings.access_logs:
        reader = f"{_prefix(given)}access-log"
        listeners = tuple(
            replace(listener, log=reader) if listener.protocol is Protocol.TCP else listener for listener in listeners
        )
        http = tuple(replace(http_listener, log=reader) for http_listener in http)
    every: tuple[Listener | HttpListener, ...] = (*listeners, *http)
    name = assignment.proxy or proxy_name(service.key)
    owner, identity = Owner(frame.home, service.key, service.uid), proxy_id(frame.home, name)
    part = Part(part_id(service.key), identity, listeners, served) if assignment.in_part else None
    placement = Placement(
        owner,
        given.addresses,
        ports,
        name,
        probes=tuple(listener for listener in every if listener.protocol == "TCP" and not listener.source_ranges)[:1],
        access=given.access,
        notices=given.notices,
        ip_mode=frame.settings.ip_mode,
        status_order=frame.settings.status_order,
        take_over=frame.settings.take_over,
        sharing=service.sharing_key,
        part=PlannedPart(part, render_part(part)) if part else None,
        routes=route_lines(given.gateway, memory.of("lines", Memo)) if given.gateway else (),
        problem=_refused_listener(given.gateway),
        unreached=serving.unreached,
    )
    if part:
        return Placed(placement, None)
    may_serve_http = given.gateway is not None
    proxy = Proxy(
        name,
        identity,
        assignment.discovery,
        listeners,
        served,
        http=http,
        may_serve_http=may_serve_http,
        heap=assignment.traits.heap,
        udp_only=_is_udp_only(service, assignment),
        unbound=_unbound(listeners, given),
        released=_released(placement, given),
    )
    rendered = memory.of("rendered", Memo)
    memory.evict_unused()
    if assignment.whole:
        return Placed(placement, _claimed_spare(placement, proxy, frame, rendered))
    return Placed(placement, _own(placement, proxy, given, frame, rendered))


def _refused_listener(gateway: Bound | None) -> Problem | None:
    """Return why a listener of a Gateway isn't served although others are."""
    sentence = next(iter(gateway.refused_listeners), "") if gateway else ""
    return Problem(Reason.LISTENERS_NOT_VALID, sentence) if sentence else None


def _served(given: PlacementInputs, frame: PlanContext, memory: AnyMemo) -> Serving:
    """Return the ports of a Service or a Gateway, and what its proxy serves."""
    if given.gateway:
        http3 = frame.settings.http3 and not given.assignment.in_part and given.service.key != LOCALHOST
        where = Where(given.addresses, given.problems, given.occupied, http3)
        behind: AnyMemo = memory.of("behind", Memo)
        made, fault = serve(given.gateway, where, given.backend_index, behind), given.service.failing
        behind.evict_unused()
        may_fail = given.assignment.traits.may_fail is not False or fault is not None or bool(given.gateway.faults)
        return made._replace(http=tuple(replace(listener, may_fail=may_fail, fault=fault) for listener in made.http))
    service = given.service
    mine = _prefix(given)
    usable = [entry for entry in upstreams(service, given.backend_index) if entry.port not in given.problems]
    others = [entry for entry in failover_backends(service, given.backend_index) if entry.port not in given.problems]
    served = tuple(
        upstream
        for entries, suffix in ((usable, ""), (others, DETOUR))
        for entry in entries
        if (upstream := upstream_of(service, entry, mine, suffix))
    )
    leads = {(entry.port, entry.family): bool(entry.backends) for entry in others}
    listen = partial(listener_of, service, mine, given.assignment.traits.patient is not False, leads)
    where = Where(given.addresses, given.problems, given.occupied)
    has_route = partial(given.backend_index.has_route, service.key.cluster)
    ports = tuple(planned_port(service.key, where, port, usable, listen, has_route) for port in service.ports)
    listeners = tuple(listener for port in ports for listener in port.listeners if isinstance(listener, Listener))
    return Serving(ports, listeners, (), served)


def _prefix(given: PlacementInputs) -> str:
    """Return how names begin that no other Service may have in a proxy of the stack."""
    return f"{part_id(given.service.key)}-" if given.assignment.in_part else ""


def proxy_of_stack(
    name: ProxyName, frame: PlanContext, *, may_serve_http: bool = False, heap: HeapBounds | None = None
) -> PlannedProxy:
    """Plan a proxy of the stack; its traffic comes from the placements of its Services."""
    identity = proxy_id(frame.home, name)
    empty = Proxy(name, identity, Discovery.STATIC, may_serve_http=may_serve_http, heap=heap)
    owner, proxy, run = _run_of_stack(empty, frame)
    return PlannedProxy(proxy, owner, render_empty(proxy), run)


def _run_of_stack(proxy: Proxy, frame: PlanContext) -> tuple[Owner, Proxy, PlannedRun]:
    """Return how a proxy of the stack runs, which doesn't depend on the Services that it serves."""
    owner = proxy_owner(frame.home, proxy.name)
    return owner, *run_planner(frame.settings.runtime).plan(proxy, RunInputs(owner, frame.settings, frame.host))


def _claimed_spare(placement: Placement, proxy: Proxy, frame: PlanContext, memory: AnyMemo) -> PlannedProxy:
    """Plan a spare that serves one Service or Gateway exclusively: it runs as started, with a whole configuration."""
    owner, proxy, run = _run_of_stack(proxy, frame)
    return PlannedProxy(proxy, owner, render(proxy, memory), run, serves=placement.key)


def _own(
    placement: Placement, proxy: Proxy, given: PlacementInputs, frame: PlanContext, memory: AnyMemo
) -> PlannedProxy:
    """Plan a Service's own proxy, as its runtime runs it."""
    places = _places(placement, given)
    inputs = RunInputs(placement.owner, frame.settings, frame.host, placement.addresses, places)
    proxy, run = run_planner(frame.settings.runtime).plan(proxy, inputs)
    routed = frame.settings.pod_routes is PodRouting.CONTAINER
    index = given.backend_index  # has the clusters in which its backends are
    routes = tuple(chain.from_iterable(index.routes_to_pods.values())) if routed else ()
    return PlannedProxy(proxy, placement.owner, render(proxy, memory), run, routes)


def _places(placement: Placement, given: PlacementInputs) -> Iterator[SocketAddress]:
    """Return the addresses and ports of clients: also ports without backends yet, except unservable ones."""
    for planned in placement.ports:
        if planned.listeners or planned.problem is None or planned.problem.reason is Reason.NO_BACKENDS:
            for address in placement.addresses:
                if (planned.port, address) not in given.occupied:
                    yield address, planned.port.number, planned.port.protocol


def _is_udp_only(service: Service, assignment: ProxyAssignment) -> bool:
    """Return whether its own proxy serves UDP alone: a new one, or one that was started so and gets nothing else."""
    only = bool(service.ports) and all(port.protocol is Protocol.UDP for port in service.ports)
    return only and not assignment.proxy and assignment.traits.udp_only is not False


def _unbound(listeners: Iterable[Listener], given: PlacementInputs) -> tuple[str, ...]:
    """Return where an own proxy of streams and datagrams had UDP listeners and has none now."""
    if given.assignment.traits.udp_only:
        return ()
    bound = {listener.place for listener in listeners if listener.protocol is Protocol.UDP}
    return tuple(sorted(given.assignment.traits.datagrams - bound))


def _released(placement: Placement, given: PlacementInputs) -> tuple[str, ...]:
    """Return where an own proxy of streams and datagrams had UDP listeners for ports that aren't its Service's."""
    if given.assignment.traits.udp_only:
        return ()
    places = _places(placement, given)
    served = {place_of(address, port) for address, port, protocol in places if protocol is Protocol.UDP}
    return tuple(sorted(given.assignment.traits.datagrams - served))
