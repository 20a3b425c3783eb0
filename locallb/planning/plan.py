"""From a snapshot to a plan: for each Service a placement or a rejection, and the proxies that serve the placements.

The planner takes everything as arguments and returns data; equal inputs give equal plans, in any order. Three kinds of
result: what to run (`Plan.proxies`), what it serves (inside each proxy) and what to tell the user (placements' port
problems, rejections, notices). Not here: how a Service is read, where an address comes from, how Envoy is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from locallb.planning.allocation import allocate
from locallb.planning.backends import PortBackends, Surroundings, upstreams
from locallb.planning.containers import ProxyContainer, container_of
from locallb.planning.envoy import Rendered, RenderedPart, render, render_empty, render_part
from locallb.planning.model import (
    Access,
    Discovery,
    Family,
    HostFacts,
    IPAddress,
    Owner,
    Service,
    ServiceKey,
    ServicePort,
    Snapshot,
)
from locallb.planning.naming import digest, owner_fields, part_id, proxy_id, proxy_name, proxy_owner, upstream_name
from locallb.planning.nodes import eligible
from locallb.planning.notices import OTHERS, Notice, notices_of
from locallb.planning.ports import address_problem, port_problem
from locallb.planning.published import Place, internal_addresses, publish
from locallb.planning.reasons import Problem, Reason
from locallb.planning.seating import Seat, seating
from locallb.planning.selection import is_ours
from locallb.planning.serving import Listener, Part, Proxy, Upstream
from locallb.planning.settings import IpMode, Runtime, Settings

PortProblems = Mapping[ServicePort, Problem]
"""The ports of a Service that can't be served on this host at all, and why."""


@dataclass(frozen=True, slots=True)
class PlannedPort:
    """A port of a placement: the listeners that serve it, and why one is missing where the families differ."""

    port: ServicePort
    listeners: tuple[Listener, ...] = ()
    problem: Problem | None = None

    def __str__(self) -> str:
        return f"{self.port} {self.problem.reason}" if self.problem else str(self.port)


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """What one of the stack's proxies has of a Service, and the texts that tell Envoy."""

    part: Part
    rendered: RenderedPart


@dataclass(frozen=True, slots=True)
class Placement:
    """A Service that gets addresses. A port without backends stays closed; the addresses stay."""

    owner: Owner
    addresses: tuple[IPAddress, ...]
    ports: tuple[PlannedPort, ...]
    proxy: str
    """The name of its proxy."""
    probes: tuple[Listener, ...] = ()
    """Listeners that one TCP connect may check at first publication: with backends, open to everybody."""
    access: Access | None = None
    """Where the Service lives and is told what it got; None for manifests."""
    notices: tuple[Notice, ...] = ()
    """What else its user should hear of."""
    ip_mode: IpMode = IpMode.PROXY
    take_over: bool = False
    """What others wrote into its status goes."""
    sharing: str = ""
    """The key under which other Services may have the addresses, too; empty for none."""
    part: PlannedPart | None = None
    """What its proxy is told of it, where that is one of the stack's; None where it is the Service's own."""

    @property
    def key(self) -> ServiceKey:
        """Which Service."""
        return self.owner.service


@dataclass(frozen=True, slots=True)
class Rejection:
    """A Service that gets nothing, and why."""

    key: ServiceKey
    problem: Problem
    owner: Owner | None = None
    access: Access | None = None
    """Where the Service lives and is told why; None for manifests."""

    @property
    def digest(self) -> str:
        """What its resources depend on, in one word."""
        return digest([repr(self)])


@dataclass(frozen=True, slots=True)
class PlannedProxy:
    """A proxy, whose it is, and the files that tell Envoy. One of the stack's is told the rest by placements."""

    proxy: Proxy
    owner: Owner
    rendered: Rendered
    envoy: str = ""
    """The version of Envoy that shall run it; another one is a new process. Empty for a container: its image tells."""
    container: ProxyContainer | None = None
    """How it runs with the runtime docker; None for a process."""

    @property
    def key(self) -> ServiceKey:
        """Whose it is: the Service's, or for one of the stack a key of its own, without a cluster."""
        return self.owner.service

    @property
    def digest(self) -> str:
        """What the proxy's resources depend on, in one word."""
        container = [self.container.fields] if self.container else []
        version = [self.envoy] if self.envoy else []
        return digest([self.proxy.id, owner_fields(self.owner), dict(self.rendered.files), *container, *version])


def balancer_digest(placement: Placement, proxy: str) -> str:
    """Say in one word what a load balancer's resources depend on; `proxy` is the digest of its proxy."""
    return digest([repr(placement), proxy])


@dataclass(frozen=True, slots=True)
class Plan:
    """What shall be, sorted by Service; proxies of the stack come last."""

    placements: tuple[Placement, ...] = ()
    proxies: tuple[PlannedProxy, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    notices: tuple[str, ...] = ()


def make_plan(snapshot: Snapshot, settings: Settings) -> Plan:
    """Decide for every Service of the snapshot what it gets."""
    wanted = [s for s in snapshot.services if is_ours(s, settings) and not s.deleting]
    problems = {s.key: _port_problems(s, snapshot) for s in wanted}
    servable, hopeless = _by_servable_ports(wanted, problems)
    answers = allocate(snapshot, servable, settings)
    placed = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
    seated = seating([s for s in servable if s.key in placed], snapshot, settings.proxies)
    seats = seated.seats
    nodes, lone = eligible(snapshot.nodes)
    around = Surroundings.within(snapshot, nodes)
    backends = {s.key: upstreams(s, around) for s in servable if s.key in seats}
    made = [
        _place(s, placed[s.key], backends[s.key], seats[s.key], snapshot, problems[s.key])
        for s in servable
        if s.key in seats
    ]
    made.sort(key=lambda pair: pair[0].key)
    by_key = {service.key: service for service in servable}
    placements = tuple(
        replace(
            one,
            notices=notices_of(by_key[one.key], one.addresses, lone, snapshot, settings),
            take_over=settings.take_over,
            ip_mode=settings.ip_mode,
        )
        for one, _ in made
    )
    others = [told.message for one in placements for told in one.notices if told.reason == OTHERS]
    return Plan(
        placements=placements,
        proxies=(
            *(_contained(placement, own, settings, snapshot) for placement, own in made if own),
            *(_contained(None, _of_stack(name, snapshot), settings, snapshot) for name in seated.proxies),
        ),
        rejections=_rejections(snapshot, settings, hopeless, answers, seats),
        notices=(*lone.values(), *others),
    )


def _port_problems(service: Service, snapshot: Snapshot) -> PortProblems:
    """Find the ports that can't be served on this host at all, whatever address they get."""
    found = ((port, port_problem(service, port, snapshot.host)) for port in service.ports)
    return {port: problem for port, problem in found if problem}


def _by_servable_ports(
    services: list[Service], problems: Mapping[ServiceKey, PortProblems]
) -> tuple[list[Service], Mapping[ServiceKey, Problem]]:
    """Set apart the Services of which no port can be served here."""
    servable, hopeless = [], {}
    for service in services:
        mine = problems[service.key]
        if service.ports and all(port in mine for port in service.ports):
            hopeless[service.key] = mine[service.ports[0]]
        else:
            servable.append(service)
    return servable, hopeless


def _rejections(
    snapshot: Snapshot,
    settings: Settings,
    hopeless: Mapping[ServiceKey, Problem],
    answers: Mapping[ServiceKey, tuple[IPAddress, ...] | Problem],
    seats: Mapping[ServiceKey, Seat],
) -> tuple[Rejection, ...]:
    malformed = [one for one in snapshot.malformed if is_ours(one, settings) and not one.deleting]
    refused = [(key, answer) for key, answer in answers.items() if isinstance(answer, Problem)]
    full = [
        (key, _host_limit(key, snapshot, len(seats)))
        for key, answer in answers.items()
        if not isinstance(answer, Problem) and key not in seats
    ]
    uids = {service.key: service.uid for service in snapshot.services}
    found = [(key, problem, uids[key]) for key, problem in (*refused, *full, *hopeless.items())]
    found += [(one.key, one.problem, one.uid) for one in malformed]
    return tuple(
        Rejection(key, problem, Owner(snapshot.home, key, uid), snapshot.access.get(key.cluster))
        for key, problem, uid in sorted(found)
    )


def _host_limit(key: ServiceKey, snapshot: Snapshot, running: int) -> Problem:
    return Problem(
        Reason.HOST_LIMIT,
        f"{key}: this host's {snapshot.host.watches} free inotify instances carry {running} proxies and no more; "
        "as root, `locallb host setup --apply` (or `sysctl -w fs.inotify.max_user_instances=8192`) makes room",
    )


def _place(  # noqa: PLR0913, PLR0917 - private, one caller
    service: Service,
    addresses: tuple[IPAddress, ...],
    backends: tuple[PortBackends, ...],
    seat: Seat,
    snapshot: Snapshot,
    problems: PortProblems,
) -> tuple[Placement, PlannedProxy | None]:
    """Put one Service on its addresses, behind a proxy of its own or one of the stack's."""
    owner = Owner(snapshot.home, service.key, service.uid)
    usable = [entry for entry in backends if entry.port not in problems]
    mine = f"{part_id(service.key)}-" if seat.proxy else ""
    served = tuple(upstream for entry in usable if (upstream := _upstream(service, entry, mine)))
    ports = tuple(
        PlannedPort(port, problem=problems[port])
        if port in problems
        else _planned_port(service, port, addresses, usable, snapshot, mine)
        for port in service.ports
    )
    listeners = tuple(listener for port in ports for listener in port.listeners)
    name = seat.proxy or proxy_name(service.key)
    probes = tuple(one for one in listeners if one.protocol == "TCP" and not one.source_ranges)[:1]
    access = snapshot.access.get(service.key.cluster)
    placement = Placement(owner, addresses, ports, name, probes, access, sharing=service.sharing_key)
    if seat.proxy:
        part = Part(part_id(service.key), proxy_id(snapshot.home, name), listeners, served)
        return replace(placement, part=PlannedPart(part, render_part(part))), None
    proxy = Proxy(name, proxy_id(snapshot.home, name), seat.discovery, listeners, served)
    return placement, PlannedProxy(proxy, owner, render(proxy), snapshot.host.envoy)


def _of_stack(name: str, snapshot: Snapshot) -> PlannedProxy:
    """Plan a proxy of the stack: what it serves is said by those who are served."""
    proxy = Proxy(name, proxy_id(snapshot.home, name), Discovery.STATIC)
    return PlannedProxy(proxy, proxy_owner(snapshot.home, name), render_empty(proxy), snapshot.host.envoy)


def _contained(
    placement: Placement | None, planned: PlannedProxy, settings: Settings, snapshot: Snapshot
) -> PlannedProxy:
    """Put a proxy into a container where the runtime is docker: ports published, or on the host's network.

    Ports can be published of a Service's own proxy only, which has a placement.
    """
    if settings.runtime is not Runtime.DOCKER:
        return planned
    inside: tuple[IPAddress, ...] = ()
    if settings.container.network and placement:
        proxy = publish(planned.proxy, _places(placement, snapshot.host))
        planned = replace(planned, proxy=proxy, rendered=render(proxy))
        inside = tuple(internal_addresses(placement.addresses, snapshot.host.subnets, settings.pools))
    container = container_of(planned.proxy, planned.owner, settings.container, snapshot.host, inside)
    return replace(planned, container=container, envoy="")


def _places(placement: Placement, host: HostFacts) -> Iterator[Place]:
    """Give what Docker shall publish: also ports that wait for backends, none that this host can't serve."""
    taken = {(one.address, one.port, one.protocol) for one in host.sockets}
    for planned in placement.ports:
        if planned.listeners or planned.problem is None or planned.problem.reason is Reason.NO_BACKENDS:
            places = ((address, planned.port.port, planned.port.protocol) for address in placement.addresses)
            yield from (place for place in places if place not in taken)


def _upstream(service: Service, entry: PortBackends, prefix: str) -> Upstream | None:
    if not entry.backends:
        return None
    return Upstream(
        prefix + upstream_name(entry.port.protocol, entry.port.port, entry.family),
        entry.port.protocol,
        entry.backends,
        service.client_ip_affinity,
        entry.health,
        entry.standby,
    )


def _planned_port(  # noqa: PLR0913, PLR0917 - private, one caller
    service: Service,
    port: ServicePort,
    addresses: tuple[IPAddress, ...],
    backends: list[PortBackends],
    snapshot: Snapshot,
    prefix: str,
) -> PlannedPort:
    """Give `port` a listener on each address whose family has backends; tell why where one has none."""
    mine = {entry.family: entry for entry in backends if entry.port == port}
    listeners, problem = [], None
    for address in addresses:
        entry = mine[Family.of(address)]
        taken = address_problem(service, port, address, snapshot.host)
        problem = problem or taken or entry.problem
        if entry.backends and not taken:
            listeners.append(_listener(service, port, address, prefix))
    return PlannedPort(port, tuple(listeners), problem)


def _listener(service: Service, port: ServicePort, address: IPAddress, prefix: str) -> Listener:
    return Listener(
        address,
        port.port,
        port.protocol,
        prefix + upstream_name(port.protocol, port.port, Family.of(address)),
        service.source_ranges,
        service.client_ip_affinity,
    )
