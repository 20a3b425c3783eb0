"""Admission: the Services that get addresses and a proxy, in order of placement, and the reasons of refusals.

Decisions about all Services depend on as few fields of each as possible: a change of any other field repeats no
decision. Ports that this host and Envoy can't serve, at all or at a certain address, are known here, too; one without
backends is closed, which is no fault of the host.

A Service with only foreign addresses in its status that requests none of ours is another controller's: a cloud's,
MetalLB or another local-lb serves it, and DNS may publish its status. It is left alone: no address, no finalizer,
condition or event. A Service that this stack served stays its own, also after a lost state. Not here: the choice of an
address (`allocation`) or a proxy (`proxy_assignment`), served traffic (`proxy_placing`), and foreign entries in the
status of our Services (`kubernetes.status`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Pool, ProxySettings, Settings
from locallb.model.identities import LOCALHOST, Family, IPAddress, ObjectKey, ObjectKind, Protocol
from locallb.model.memory import AnyMemo
from locallb.model.objects import Node, Service, ServicePort, TrafficPolicy
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Claim, HostFacts, Snapshot, Socket
from locallb.model.texts import few
from locallb.planning.allocation import Answer, allocate
from locallb.planning.port_mapping import LOOPBACK, MappedServices, map_ports
from locallb.planning.proxy_assignment import (
    ProxyAssignment,
    ProxyAssignments,
    ProxyDemand,
    assign_proxies,
    sharing_services,
)
from locallb.planning.selection import is_ours

PortProblems: TypeAlias = Mapping[ServicePort, Problem]
"""The ports of a Service that can't be served on this host at all, and why."""


class HostPorts:
    """Ports that can be bound on a host at every address, looked up once for all Services.

    `everywhere` are the sockets that listen at every address.
    """

    def __init__(self, first: int, everywhere: Iterable[Socket]) -> None:
        self._first = first
        self._everywhere: dict[tuple[int, Protocol], list[Socket]] = {}
        for socket in everywhere:
            self._everywhere.setdefault((socket.port, socket.protocol), []).append(socket)

    def problems(self, service: Service) -> PortProblems:
        """Find the ports that can't be served whatever address they get."""
        judged = ((port, self._problem(service, port)) for port in service.ports)
        return {port: problem for port, problem in judged if problem}

    def _problem(self, service: Service, port: ServicePort) -> Problem | None:
        if port.protocol is Protocol.SCTP:
            return Problem(
                Reason.PROTOCOL_UNSUPPORTED,
                f"{service.key} port {port}: Envoy has no listener for SCTP; use TCP or UDP, "
                "or reach it by its nodePort",
            )
        if port.number < self._first:
            return Problem(
                Reason.PORT_PRIVILEGED,
                f"{service.key} port {port}: ports below {self._first} need a right on this host; "
                "as root, `locallb host setup --yes` "
                f"(or `sysctl -w net.ipv4.ip_unprivileged_port_start={port.number}`) gives it",
            )
        if holder := self._holder(service, port):
            return Problem(
                Reason.PORT_IN_USE,
                f"{service.key} port {port}: {_holder_of(holder)} listens on every address of this host at port "
                f"{port.number}; stop it, bind it to an address of its own, or change the Service's port",
            )
        return None

    def _holder(self, service: Service, port: ServicePort) -> Socket | None:
        """Find the socket that has this port on every address of a family of the Service."""
        holders = self._everywhere.get((port.number, port.protocol), ())
        return next((holder for holder in holders if Family.of(holder.address) in service.families), None)


def occupied_ports(
    service: Service, addresses: Iterable[IPAddress], sockets: Sequence[Socket]
) -> Mapping[tuple[ServicePort, IPAddress], Problem]:
    """Find the ports that can't be served at some of `addresses`, where these sockets are."""
    if not sockets:
        return {}
    bound = {(socket.address, socket.port, socket.protocol): socket for socket in reversed(sockets)}
    places = ((port, address) for port in service.ports for address in addresses)
    found = ((place, bound.get((place[1], place[0].number, place[0].protocol))) for place in places)
    return {place: _occupied(service, *place, socket) for place, socket in found if socket}


def _occupied(service: Service, port: ServicePort, address: IPAddress, socket: Socket) -> Problem:
    return Problem(
        Reason.PORT_IN_USE,
        f"{service.key} port {port}: {_holder_of(socket)} listens on {address} at port {port.number}; stop it",
    )


def _holder_of(socket: Socket) -> str:
    return socket.process or "another process"


def served_by_others(theirs: Iterable[Service], snapshot: Snapshot) -> Mapping[ObjectKey, Problem]:
    """Return which Services with only foreign addresses are left to another controller, and why."""
    claims = (*snapshot.claims, *snapshot.remembered)
    held = {claim.owner.service for claim in claims if claim.owner.home == snapshot.home}
    return {service.key: _problem(service) for service in theirs if service.key not in held}


def has_only_foreign_addresses(service: Service, settings: Settings) -> bool:
    """Return whether another controller serves a Service of a running cluster, by its status."""
    if settings.take_over or not (service.ingress or service.hostnames) or service.was_served:
        return False
    if service.key.kind is not ObjectKind.SERVICE or service.load_balancer_class in settings.classes.names:
        return False
    return not any(_may_be_ours(entry.address, settings) for entry in service.ingress)


def _may_be_ours(address: IPAddress, settings: Settings) -> bool:
    """Return whether an address is in a pool, or the one that all Services share."""
    if settings.port_mapping:
        return address in LOOPBACK.values()
    return any(address in span for pool in settings.pools for span in pool.ranges)


def _problem(service: Service) -> Problem:
    addresses = few([*(str(entry.address) for entry in service.ingress), *service.hostnames])
    return Problem(
        Reason.SERVED_BY_ANOTHER,
        f"{service.key}: its status has {addresses}, which isn't ours: another controller serves it, so it is left"
        " alone; if that one is gone, set local-lb:takeOver, or give the Service a class that local-lb:classes names",
    )


class Admitted(NamedTuple):
    """A Service that is placed, with its ports mapped, where those are."""

    service: Service
    addresses: tuple[IPAddress, ...]
    assignment: ProxyAssignment
    problems: PortProblems


class Admission(Struct, frozen=True):
    """The placed Services, sorted, and the results of the others."""

    admitted: Sequence[Admitted]
    assigned: ProxyAssignments
    refused: Mapping[ObjectKey, Answer]
    """Services without a proxy: the problem, or the addresses if the host has no room for a proxy."""


def admit(snapshot: Snapshot, settings: Settings, files: Mapping[ObjectKey, int], memo: AnyMemo) -> Admission:
    """Decide which Services are served; `files` has the Gateways, with the number of files that each watches."""
    considered = _considered(snapshot, settings, memo)
    ours = [each for each in considered if each.ours]
    theirs = [each.service for each in ours if each.foreign]
    others = served_by_others(theirs, snapshot) if theirs else {}
    ours = [each for each in ours if each.service.key not in others] if others else ours
    all_services, wanted = tuple(each.wish for each in considered), tuple(each.wish for each in ours)
    services, mapped = [each.service for each in ours], MappedServices()
    if loopback := tuple(wish for wish in wanted if _is_mapped(wish, settings)):
        mapped = _mapped(snapshot, loopback, memo)
        ports = {each.key: each.ports for each in mapped.services}
        services = [
            memo.of(("mapped", key), _with_ports, service, ports[key]) if (key := service.key) in ports else service
            for service in services
        ]
    problems = _problems(services, snapshot.host, memo)
    hopeless = _hopeless(services, problems)
    answers = mapped.answers
    if not settings.port_mapping:
        pooled = tuple(wish for wish in wanted if wish.key not in hopeless and wish.key not in answers)
        answers = {**_allocated(snapshot, all_services, pooled, settings, memo), **answers}
    given = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
    sharing = memo.of("sharing", sharing_services, snapshot.assignments, snapshot.proxies, files, settings.proxies.mode)
    demands = (
        ProxyDemand(key, each.demand.created) if key in sharing else each.demand
        for each in ours
        if (key := each.wish.key) in given and key not in hopeless
    )
    assigned = _assigned(tuple(demands), snapshot, settings.proxies, files, memo)
    seats = assigned.assignments
    admitted = [
        Admitted(service, given[key], seats[key], problems.get(key, _NO_PROBLEMS))
        for service in services
        if (key := service.key) in seats
    ]
    unservable = {key: problem for key, problem in hopeless.items() if not isinstance(answers.get(key), Problem)}
    refused = {key: answer for key, answer in {**answers, **unservable, **others}.items() if key not in seats}
    return Admission(sorted(admitted, key=_key), assigned, refused)


_NO_PROBLEMS: PortProblems = {}


class _Considered(NamedTuple):
    """A Service, and its fields that affect other Services."""

    service: Service
    ours: bool
    foreign: bool
    """By its status it is another controller's."""
    wish: Service
    """The fields that decide about addresses; every other field has its default."""
    demand: ProxyDemand


def _considered(snapshot: Snapshot, settings: Settings, memo: AnyMemo) -> Sequence[_Considered]:
    rivals = memo.of("rivals", _has_rivals, snapshot.host.sockets, settings.pools)
    live = snapshot.access
    return [
        memo.of(("considered", service.key), _consider, service, settings, service.key.cluster in live, rivals)
        for service in snapshot.services
    ]


def _has_rivals(sockets: Iterable[Socket], pools: Iterable[Pool]) -> bool:
    """Return whether another user's process may cost a Service its address: it has a port at one of a pool.

    Most hosts have such processes elsewhere, as at 127.0.0.53.
    """
    spans = [span for pool in pools for span in pool.ranges]
    occupied = (socket.address for socket in sockets if socket.foreign and socket.alone)
    return any(address in span for address in occupied for span in spans)


def _consider(service: Service, settings: Settings, live: bool, rivals: bool) -> _Considered:  # noqa: FBT001 - as `Memo` gives it
    """Extract the fields that affect other Services; ports do if addresses may be shared, mapped, or in foreign use."""
    ours = is_ours(service, settings) and not service.deleting
    by_ports = rivals or _is_mapped(service, settings) or bool(service.sharing_key)
    wish = Service(
        service.key,
        service.ports if by_ports else (),
        created=service.created,
        families=service.families,
        family_policy=service.family_policy,
        requested=service.requested,
        sharing_key=service.sharing_key,
        traffic_policy=service.traffic_policy if service.sharing_key else TrafficPolicy.CLUSTER,
        labels=service.labels,
        ingress=service.ingress,
    )
    foreign = ours and live and has_only_foreign_addresses(service, settings)
    return _Considered(service, ours, foreign, wish, ProxyDemand.of(service))


def _is_mapped(service: Service, settings: Settings) -> bool:
    """Return whether a Service gets ports of loopback addresses that others may have, too."""
    return settings.port_mapping or service.key == LOCALHOST


def _key(admitted: Admitted) -> ObjectKey:
    return admitted.service.key


def _with_ports(service: Service, ports: tuple[ServicePort, ...]) -> Service:
    return replace(service, ports=ports)


def _mapped(snapshot: Snapshot, wanted: tuple[Service, ...], memo: AnyMemo) -> MappedServices:
    host = HostFacts(
        snapshot.host.unprivileged_port_start, sockets=snapshot.host.sockets, addresses=snapshot.host.addresses
    )
    held = Snapshot(snapshot.home, claims=snapshot.claims, remembered=snapshot.remembered, host=host)
    mapped: MappedServices = memo.of("mapped ports", map_ports, held, wanted)
    return mapped


def _problems(services: Iterable[Service], host: HostFacts, memo: AnyMemo) -> Mapping[ObjectKey, PortProblems]:
    """Return the ports of each Service that can't be served here at all."""
    everywhere = memo.of("everywhere", _everywhere, host.sockets)
    ports: HostPorts = memo.of("ports", HostPorts, host.unprivileged_port_start, everywhere)
    found = {each.key: memo.of(("problems", each.key), HostPorts.problems, ports, each) for each in services}
    return {key: problems for key, problems in found.items() if problems}


def _everywhere(sockets: Iterable[Socket]) -> tuple[Socket, ...]:
    return tuple(socket for socket in sockets if socket.address.is_unspecified)


def _hopeless(services: Iterable[Service], problems: Mapping[ObjectKey, PortProblems]) -> Mapping[ObjectKey, Problem]:
    """Return the Services of which no port can be served here."""
    some = [service for service in services if service.key in problems] if problems else ()
    return {
        service.key: problems[service.key][service.ports[0]]
        for service in some
        if all(port in problems[service.key] for port in service.ports)
    }


def _allocated(
    snapshot: Snapshot,
    all_services: tuple[Service, ...],
    wanted: tuple[Service, ...],
    settings: Settings,
    memo: AnyMemo,
) -> Mapping[ObjectKey, Answer]:
    """Return the addresses of `wanted`, among all Services that may list or hold some."""
    named = memo.of("named", _named, all_services, snapshot.claims, snapshot.remembered, settings.pins)
    listening = memo.of("listening", _listening, snapshot.host.sockets, named, settings.pools)
    observed = Snapshot(
        snapshot.home,
        all_services,
        nodes=memo.of("addresses of Nodes", _addresses_of, snapshot.nodes),
        claims=snapshot.claims,
        remembered=snapshot.remembered,
        host=HostFacts(sockets=listening, addresses=snapshot.host.addresses, user=snapshot.host.user),
        external_ips=snapshot.external_ips,
    )
    answers: Mapping[ObjectKey, Answer] = memo.of("addresses", allocate, observed, wanted, settings)
    return answers


def _named(
    services: Iterable[Service],
    claims: Iterable[Claim],
    remembered: Iterable[Claim],
    pins: Mapping[str, tuple[IPAddress, ...]],
) -> frozenset[IPAddress]:
    """Return the addresses that anybody requests, has or lists."""
    requested = (address for each in services for address in each.requested)
    listed = (entry.address for each in services for entry in each.ingress)
    held = (claim.address for some in (claims, remembered) for claim in some)
    return frozenset((*requested, *listed, *held, *(address for some in pins.values() for address in some)))


def _listening(sockets: Iterable[Socket], named: frozenset[IPAddress], pools: Iterable[Pool]) -> tuple[Socket, ...]:
    """Return the sockets at addresses that a Service may get; hosts have many others, which change often."""
    spans = [span for pool in pools for span in pool.ranges]
    return tuple(
        socket
        for socket in sockets
        if not socket.address.is_unspecified
        if socket.address in named or any(socket.address in span for span in spans)
    )


def _addresses_of(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(Node(node.cluster, node.name, node.addresses) for node in nodes)


def _assigned(
    demands: tuple[ProxyDemand, ...],
    snapshot: Snapshot,
    settings: ProxySettings,
    files: Mapping[ObjectKey, int],
    memo: AnyMemo,
) -> ProxyAssignments:
    running = Snapshot(
        snapshot.home,
        proxies=snapshot.proxies,
        stack_proxies=snapshot.stack_proxies,
        http_proxies=snapshot.http_proxies,
        heaps=snapshot.heaps,
        assignments=snapshot.assignments,
        host=HostFacts(watches=snapshot.host.watches),
    )
    assigned: ProxyAssignments = memo.of("proxies", assign_proxies, demands, running, settings, files)
    return assigned
