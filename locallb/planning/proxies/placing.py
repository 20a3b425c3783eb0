"""Placement of one Service on its addresses: its listeners, its upstreams, and the proxy that serves them.

All inputs come in two values, `PlacementInputs` and `PlanContext`, so that a cache can compare them
(`memory`). Not here: the choice of addresses, of the proxy, and rejections (`plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.envoy import render, render_empty, render_part
from locallb.gateway.routes.bound import Bound
from locallb.gateway.texts import route_lines
from locallb.model.http.serving import HttpListener
from locallb.model.identities import Home, IPAddress, Owner, Protocol, ProxyName
from locallb.model.identities import place as place_of
from locallb.model.naming import part_id, proxy_id, proxy_name, proxy_owner
from locallb.model.objects import BackendChoice, Discovery, Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import HeapBounds, Listener, Part, Proxy, with_bounded_checks
from locallb.model.snapshot import Access, HostFacts
from locallb.planning.backends.backends import failover_backends, upstreams
from locallb.planning.backends.index import BackendIndex
from locallb.planning.gateways.serving import Serving, Where, serve
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, PlannedPart, PlannedProxy
from locallb.planning.ports import PortProblems
from locallb.planning.proxies.assignment import ProxyAssignment
from locallb.planning.proxies.service_ports import DETOUR, listener_of, planned_port, upstream_of
from locallb.planning.runs import Place, PlannedRun, RunInputs, run_planner


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
    claimed: Mapping[tuple[ServicePort, IPAddress], Problem]
    """Its ports that can't be served at one of its addresses, because another program listens there."""
    access: Access | None
    notices: tuple[Notice, ...]
    gateway: Bound | None = None
    """The Gateway or Ingresses to serve; None for a Service, which gets plain bytes."""


class Placed(NamedTuple):
    """A placement, and its proxy unless that is one of the stack's."""

    placement: Placement
    own: PlannedProxy | None


def place(given: PlacementInputs, frame: PlanContext) -> Placed:
    """Put one Service on its addresses, behind a proxy of its own or one of the stack's."""
    service, assignment = given.service, given.assignment
    serving = _served(given, frame)
    ports, listeners, http, served = serving.ports, serving.listeners, serving.http, serving.upstreams
    if assignment.heap and not assignment.heap.size and not given.gateway:
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
        outputs=frame.settings.outputs,
        sharing=service.sharing_key,
        part=PlannedPart(part, render_part(part)) if part else None,
        routes=route_lines(given.gateway) if given.gateway else (),
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
        heap=assignment.heap,
        udp_only=_is_udp_only(service, assignment),
        released=_released(placement, given),
    )
    return Placed(
        placement, _claimed(placement, proxy, frame) if assignment.whole else _own(placement, proxy, given, frame)
    )


def _refused_listener(gateway: Bound | None) -> Problem | None:
    """Return why a listener of a Gateway isn't served although others are."""
    sentence = next(iter(gateway.refused_listeners), "") if gateway else ""
    return Problem(Reason.LISTENERS_NOT_VALID, sentence) if sentence else None


def _served(given: PlacementInputs, frame: PlanContext) -> Serving:
    """Return the ports of a Service or a Gateway, and what its proxy serves."""
    if given.gateway:
        http3 = frame.settings.http3 and not given.assignment.in_part
        where = Where(given.addresses, given.problems, given.claimed, http3)
        made, fault = serve(given.gateway, where, given.backend_index), given.service.failing
        may_fail = given.assignment.may_fail is not False or fault is not None or bool(given.gateway.faults)
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
    straight = any(entry.straight for entry in usable)
    leads = {(entry.port, entry.family): bool(entry.backends) for entry in others}
    listen = partial(listener_of, service, mine, _is_patient(given, frame, straight=straight), leads)
    where = Where(given.addresses, given.problems, given.claimed)
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


def _claimed(placement: Placement, proxy: Proxy, frame: PlanContext) -> PlannedProxy:
    """Plan a spare that serves one Service or Gateway exclusively: it runs as started, with a whole configuration."""
    owner, proxy, run = _run_of_stack(proxy, frame)
    return PlannedProxy(proxy, owner, render(proxy), run, serves=placement.key)


def _own(placement: Placement, proxy: Proxy, given: PlacementInputs, frame: PlanContext) -> PlannedProxy:
    """Plan a Service's own proxy, as its runtime runs it."""
    places = _places(placement, given)
    inputs = RunInputs(placement.owner, frame.settings, frame.host, placement.addresses, places)
    proxy, run = run_planner(frame.settings.runtime).plan(proxy, inputs)
    routed = frame.settings.pod_routes is PodRouting.CONTAINER
    routes = tuple(given.backend_index.routes_to_pods.get(given.service.key.cluster, ())) if routed else ()
    return PlannedProxy(proxy, placement.owner, render(proxy), run, routes)


def _places(placement: Placement, given: PlacementInputs) -> Iterator[Place]:
    """Return the addresses and ports of clients: also ports without backends yet, except unservable ones."""
    for planned in placement.ports:
        if planned.listeners or planned.problem is None or planned.problem.reason is Reason.NO_BACKENDS:
            for address in placement.addresses:
                if (planned.port, address) not in given.claimed:
                    yield address, planned.port.number, planned.port.protocol


def _is_udp_only(service: Service, assignment: ProxyAssignment) -> bool:
    """Return whether its own proxy serves UDP alone: a new one, or one that was started so and gets nothing else."""
    only = bool(service.ports) and all(port.protocol is Protocol.UDP for port in service.ports)
    return only and not assignment.proxy and assignment.udp_only is not False


def _released(placement: Placement, given: PlacementInputs) -> tuple[str, ...]:
    """Return where an own proxy of streams and datagrams had UDP listeners for ports that aren't its Service's."""
    if given.assignment.udp_only:
        return ()
    places = _places(placement, given)
    served = {place_of(address, port) for address, port, protocol in places if protocol is Protocol.UDP}
    return tuple(sorted(given.assignment.datagrams - served))


def _is_patient(given: PlacementInputs, frame: PlanContext, *, straight: bool) -> bool:
    """Return whether clients wait for a new pod: where pods are chosen, or reached when listeners are created.

    It is a part of the listener, which going over to NodePorts and back must not touch, nor another choice, nor a
    version of local-lb that decides otherwise: listeners that serve stay as they are.
    """
    if given.assignment.patient is not None:
        return given.assignment.patient
    choice = given.service.backends or given.backend_index.choice
    wanted = straight or frame.settings.pod_routes is not PodRouting.OFF
    return choice is BackendChoice.PODS or (choice is BackendChoice.AUTO and wanted)
