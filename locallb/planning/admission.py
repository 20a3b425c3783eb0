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

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Pool, ProxySettings, Settings
from locallb.model.identities import LOCALHOST, ClusterName, Family, Home, IPAddress, ObjectKey, ObjectKind, Protocol
from locallb.model.memory import AnyMemo, Memo
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


def served_by_others(theirs: Iterable[Service], home: Home, claims: Iterable[Claim]) -> Mapping[ObjectKey, Problem]:
    """Return which Services with only foreign addresses are left to another controller, and why."""
    held = {claim.owner.service for claim in claims if claim.owner.home == home}
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
    rivals, live = memo.of("rivals", _has_rivals, snapshot.host.sockets, settings.pools), frozenset(snapshot.access)
    frame = settings, live, rivals
    considered = memo.rows("considered", *frame).each(partial(_consider, *frame), snapshot.services)
    candidates: _Candidates = memo.of(
        "candidates", _candidates, considered, snapshot.home, snapshot.claims, snapshot.remembered
    )
    sharing = memo.of("sharing", sharing_services, snapshot.assignments, snapshot.proxies, files, settings.proxies.mode)
    demands = memo.rows("demands", sharing).each(partial(_demand, sharing), snapshot.services)
    services, mapped = [*map(snapshot.services.__getitem__, candidates.places)], MappedServices()
    if loopback := memo.of("loopback", _loopback, candidates.wishes, settings):
        mapped = _mapped(snapshot, loopback, memo)
        ports = {each.key: each.ports for each in mapped.services}
        services = [
            memo.of(("mapped", key), _with_ports, service, ports[key]) if (key := service.key) in ports else service
            for service in services
        ]
    problems = _problems(services, snapshot.host, memo)
    decide = partial(_decide, memo=memo.of("deciding", Memo))
    hopeless = _hopeless(services, problems)
    decision: _Decision = memo.of(
        "decision",
        decide,
        candidates,
        tuple(map(demands.__getitem__, candidates.places)),
        mapped.answers,
        hopeless,
        _decisive(snapshot, memo),
        settings,
        files,
    )
    served, unusable = (map(column.__getitem__, decision.places) for column in (services, problems))
    admitted = memo.rows("admitted").each(Admitted, served, decision.addresses, decision.seats, unusable)
    return Admission(admitted, decision.assigned, decision.refused)


class _Considered(NamedTuple):
    """The fields of a Service that affect other Services."""

    ours: bool
    wish: Service
    """The fields that decide about addresses; every other field has its default."""
    foreign: Service | None
    """The whole Service, if by its status it is another controller's."""


def _demand(sharing: Collection[ObjectKey], service: Service) -> ProxyDemand:
    """Return what decides about the proxy of a Service: of one that keeps a shared one no ports do."""
    return ProxyDemand(service.key, service.created) if service.key in sharing else ProxyDemand.of(service)


class _Candidates(Struct, frozen=True):
    """The Services of this stack, unless they are another controller's, which come with the reason."""

    places: tuple[int, ...]
    """Of each among all Services."""
    wishes: tuple[Service, ...]
    every: tuple[Service, ...]
    """The wishes of all Services, which may list addresses."""
    others: Mapping[ObjectKey, Problem]


def _candidates(
    considered: Sequence[_Considered], home: Home, claims: Iterable[Claim], remembered: Iterable[Claim]
) -> _Candidates:
    theirs = [each.foreign for each in considered if each.foreign]
    others = served_by_others(theirs, home, (*claims, *remembered)) if theirs else {}
    ours = [(place, each) for place, each in enumerate(considered) if each.ours and each.wish.key not in others]
    return _Candidates(
        tuple(place for place, _ in ours),
        tuple(each.wish for _, each in ours),
        tuple(each.wish for each in considered),
        others,
    )


class _Decision(Struct, frozen=True):
    """What Services decide together. Columns of the served ones, sorted by key."""

    places: tuple[int, ...]
    """Of each among the candidates."""
    addresses: tuple[tuple[IPAddress, ...], ...]
    seats: tuple[ProxyAssignment, ...]
    assigned: ProxyAssignments
    refused: Mapping[ObjectKey, Answer]


def _decide(  # noqa: PLR0913, PLR0917 - all that decides
    candidates: _Candidates,
    demands: Iterable[ProxyDemand],
    mapped: Mapping[ObjectKey, Answer],
    hopeless: Mapping[ObjectKey, Problem],
    snapshot: Snapshot,
    settings: Settings,
    files: Mapping[ObjectKey, int],
    *,
    memo: AnyMemo,
) -> _Decision:
    """Give candidates addresses, and then proxies; mapped ports are decided apart."""
    answers = mapped
    if not settings.port_mapping:
        pooled = tuple(wish for wish in candidates.wishes if wish.key not in hopeless and wish.key not in mapped)
        answers = {**_allocated(snapshot, candidates.every, pooled, settings, memo), **mapped}
    given = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
    wanted = tuple(each for each in demands if each.service in given and each.service not in hopeless)
    assigned = _assigned(wanted, snapshot, settings.proxies, files, memo)
    memo.evict_unused()
    seats = assigned.assignments
    served = sorted((wish.key, place) for place, wish in enumerate(candidates.wishes) if wish.key in seats)
    unservable = {key: problem for key, problem in hopeless.items() if not isinstance(answers.get(key), Problem)}
    every = {**answers, **unservable, **candidates.others}
    return _Decision(
        tuple(place for _, place in served),
        tuple(given[key] for key, _ in served),
        tuple(seats[key] for key, _ in served),
        assigned,
        {key: answer for key, answer in every.items() if key not in seats},
    )


def _decisive(snapshot: Snapshot, memo: AnyMemo) -> Snapshot:
    """Return what decides about addresses and proxies besides the Services."""
    host = snapshot.host
    return Snapshot(
        snapshot.home,
        nodes=memo.of("addresses of Nodes", _addresses_of, snapshot.nodes),
        claims=snapshot.claims,
        remembered=snapshot.remembered,
        proxies=snapshot.proxies,
        stack_proxies=snapshot.stack_proxies,
        http_proxies=snapshot.http_proxies,
        heaps=snapshot.heaps,
        assignments=snapshot.assignments,
        host=HostFacts(watches=host.watches, sockets=host.sockets, addresses=host.addresses, user=host.user),
        external_ips=snapshot.external_ips,
    )


def _has_rivals(sockets: Iterable[Socket], pools: Iterable[Pool]) -> bool:
    """Return whether another user's process may cost a Service its address: it has a port at one of a pool.

    Most hosts have such processes elsewhere, as at 127.0.0.53.
    """
    spans = [span for pool in pools for span in pool.ranges]
    occupied = (socket.address for socket in sockets if socket.foreign and socket.alone)
    return any(address in span for address in occupied for span in spans)


def _consider(
    settings: Settings,
    live: Collection[ClusterName],
    rivals: bool,  # noqa: FBT001 - as `Memo` gives it
    service: Service,
) -> _Considered:
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
    foreign = ours and service.key.cluster in live and has_only_foreign_addresses(service, settings)
    return _Considered(ours, wish, service if foreign else None)


def _is_mapped(service: Service, settings: Settings) -> bool:
    """Return whether a Service gets ports of loopback addresses that others may have, too."""
    return settings.port_mapping or service.key == LOCALHOST


def _loopback(wishes: tuple[Service, ...], settings: Settings) -> tuple[Service, ...]:
    """Return the Services with mapped ports."""
    return tuple(wish for wish in wishes if _is_mapped(wish, settings))


def _with_ports(service: Service, ports: tuple[ServicePort, ...]) -> Service:
    return replace(service, ports=ports)


def _mapped(snapshot: Snapshot, wanted: tuple[Service, ...], memo: AnyMemo) -> MappedServices:
    host = HostFacts(
        snapshot.host.unprivileged_port_start, sockets=snapshot.host.sockets, addresses=snapshot.host.addresses
    )
    held = Snapshot(snapshot.home, claims=snapshot.claims, remembered=snapshot.remembered, host=host)
    mapped: MappedServices = memo.of("mapped ports", map_ports, held, wanted)
    return mapped


def _problems(services: Sequence[Service], host: HostFacts, memo: AnyMemo) -> Sequence[PortProblems]:
    """Return the ports of each Service that can't be served here at all."""
    everywhere = memo.of("everywhere", _everywhere, host.sockets)
    ports: HostPorts = memo.of("ports", HostPorts, host.unprivileged_port_start, everywhere)
    return memo.rows("problems", ports).each(ports.problems, services)


def _everywhere(sockets: Iterable[Socket]) -> tuple[Socket, ...]:
    return tuple(socket for socket in sockets if socket.address.is_unspecified)


def _hopeless(services: Iterable[Service], problems: Iterable[PortProblems]) -> Mapping[ObjectKey, Problem]:
    """Return the Services of which no port can be served here."""
    return {
        service.key: found[service.ports[0]]
        for service, found in zip(services, problems, strict=True)
        if found and all(port in found for port in service.ports)
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
        nodes=snapshot.nodes,
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
