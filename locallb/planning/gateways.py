"""Gateways and Ingresses in a plan: each is planned as a Service with its own proxy.

Here they are bound to their routes, added to the snapshot's Services, and given listeners and upstreams on the
addresses that they got; redirects follow mapped ports. Not here: their traffic (`gateway.translation`,
`ingress.translation`), addresses (`allocation`), and statuses (`statuses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from itertools import chain as chained
from math import gcd, lcm
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.certificates import local
from locallb.config.settings import Settings
from locallb.gateway.kinds import gathered
from locallb.gateway.routes import BackendTarget, Bound
from locallb.gateway.texts import left_out, missing_classes, refusals, sentences
from locallb.gateway.translation import bind
from locallb.ingress import parsing
from locallb.ingress.translation import bind_ingresses
from locallb.model.faults import Order
from locallb.model.gateway_objects import Named
from locallb.model.gateway_of_cluster import GatewayObjects, ObjectOfCluster
from locallb.model.http_routes import HttpRoute, Redirect
from locallb.model.http_serving import (
    AnyCertificate,
    Chain,
    HttpBackends,
    HttpListener,
    HttpRoutes,
    LocalCertificate,
    VirtualHost,
)
from locallb.model.identities import LOCALHOST, ClusterName, Family, IPAddress, ObjectKey, Protocol, UpstreamName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import EndpointSlice, MalformedService, Service, ServicePort, Via
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, Listener, Upstream, distinct
from locallb.model.snapshot import LocalAuthority, Snapshot
from locallb.planning.admission import PortProblems
from locallb.planning.backends import PortBackends, upstreams
from locallb.planning.endpoints import BackendIndex
from locallb.planning.planned import PlannedPort

_OF_SCHEMES = {"http": 80, "https": 443}


def with_mapped_redirects(
    chains: tuple[Chain, ...], entrance: ServicePort, ports: Iterable[ServicePort], every: Iterable[Sequence[Chain]]
) -> tuple[Chain, ...]:
    """Return the chains of the port `entrance` with redirects to the numbers by which clients reach `ports`.

    A redirect leads to its own Gateway or Ingress without a hostname, or with a hostname that is routed there; then it
    names the mapped port. A redirect to another host names that host's own port, which isn't mapped here. `every` has
    the chains of all ports. The identical chains are returned if no port is mapped.
    """
    numbers = {port.port: port.number for port in ports if port.protocol is Protocol.TCP and port.number != port.port}
    if not numbers:
        return chains
    here = frozenset(
        name for chains_of_port in every for chain in chains_of_port for host in chain.hosts for name in host.domains
    )
    return tuple(_chain(chain, _Mapping(entrance, numbers, here)) for chain in chains)


class _Mapping(Struct, frozen=True):
    """Inputs of a redirect's port."""

    entrance: ServicePort
    numbers: Mapping[int, int]
    """Of mapped ports."""
    here: frozenset[str]
    """The hostnames for which there are routes."""

    def redirect(self, to: Redirect) -> Redirect:
        """Return a redirect that clients can follow."""
        requested = to.port or _OF_SCHEMES.get(to.scheme, 0)
        if self._leads_elsewhere(to.hostname):
            return to if requested else replace(to, port=self.entrance.port)
        number = self.numbers.get(requested)
        return replace(to, port=number) if number else to

    def _leads_elsewhere(self, hostname: str) -> bool:
        parts = hostname.split(".")
        wider = ("*." + ".".join(parts[number:]) for number in range(1, len(parts)))
        return bool(hostname) and self.here.isdisjoint({hostname, *wider})


def _chain(chain: Chain, mapping: _Mapping) -> Chain:
    if not isinstance(chain.serves, HttpRoutes):
        return chain
    hosts = (
        replace(host, routes=tuple(_route(route, mapping) for route in host.routes)) if _redirects(host) else host
        for host in chain.serves.hosts
    )
    return replace(chain, serves=replace(chain.serves, hosts=tuple(hosts)))


def _redirects(host: VirtualHost) -> bool:
    return any(isinstance(route.action, Redirect) for route in host.routes)


def _route(route: HttpRoute, mapping: _Mapping) -> HttpRoute:
    return replace(route, action=mapping.redirect(route.action)) if isinstance(route.action, Redirect) else route


_LARGEST_WEIGHT = 10_000
"""Of a backend: thousands of them stay below what Envoy takes together."""


Occupied: TypeAlias = Mapping[tuple[ServicePort, IPAddress], Problem]


class Where(NamedTuple):
    """Where a Gateway is served, and where it can't be."""

    addresses: tuple[IPAddress, ...]
    problems: PortProblems
    occupied: Occupied
    http3: bool = False


class Serving(NamedTuple):
    """The parts of a proxy that serve a Service or a Gateway."""

    ports: tuple[PlannedPort, ...]
    listeners: tuple[Listener, ...]
    http: tuple[HttpListener, ...]
    upstreams: tuple[Upstream, ...]
    unreached: Mapping[Named, Problem] = MappingProxyType({})
    """Services behind routes with endpoints to which this host has no route."""


def serve(gateway: Bound, where: Where, index: BackendIndex, memory: AnyMemo) -> Serving:
    """Put ports on addresses, and backends behind them; `memory` caches those of each target."""
    around = memory.of("around", _unchanged, replace(index, slices={}, drained={}))
    out, none = gateway.want.ordered.drained, frozenset[str]()
    entries: dict[UpstreamName, PortBackends] = {
        name: memory.of(
            ("behind", name),
            _behind,
            target,
            around,
            index.slices.get(target.service, ()),
            out | index.drained.get(target.service, none),
        )
        for name, target in gateway.targets.items()
    }
    merged = tuple(_merged(gateway, entries))
    answering = frozenset(upstream.name for upstream in merged if upstream.backends)
    # Names below localhost are served whatever is behind one: each object has a row that says so.
    by_name = gateway.key == LOCALHOST
    via, unreached = _via(entries.values()), {} if by_name else _unreached(entries)
    ports = tuple(
        _with_unreached(_port(gateway, port, where, via, answering), gateway, unreached) for port in gateway.want.ports
    )
    listeners = tuple(listener for port in ports for listener in port.listeners)
    return Serving(
        ports,
        tuple(listener for listener in listeners if isinstance(listener, Listener)),
        tuple(listener for listener in listeners if isinstance(listener, HttpListener)),
        (
            *(
                memory.of(("upstream", name), _upstream, name, gateway.targets[name], entry)
                for name, entry in entries.items()
                if not _is_udp(entry)
            ),
            *merged,
        ),
        {gateway.targets[name].named: problem for name, problem in unreached.items()},
    )


def _unreached(entries: Mapping[UpstreamName, PortBackends]) -> Mapping[UpstreamName, Problem]:
    """Return the upstreams without a backend because this host has no route to any."""
    return {name: entry.problem for name, entry in entries.items() if entry.problem and _is_unreached(entry)}


def _with_unreached(planned: PlannedPort, gateway: Bound, unreached: Mapping[UpstreamName, Problem]) -> PlannedPort:
    """Add the problem of a port with routes to backends without a route from this host: their requests fail."""
    if not unreached or planned.problem:
        return planned
    datagrams = (target.upstream for target in gateway.datagrams.get(planned.port.port, ()))
    named = datagrams if planned.port.protocol is Protocol.UDP else planned.upstreams
    problem = next((unreached[name] for name in named if name in unreached), None)
    return replace(planned, problem=problem) if problem else planned


def _unchanged(index: BackendIndex) -> BackendIndex:
    return index


def _behind(
    target: BackendTarget, around: BackendIndex, slices: Sequence[EndpointSlice], drained: frozenset[str]
) -> PortBackends:
    """Find the backends of a port of a Service that aren't drained, in the first family that has any."""
    service = Service(target.service, (target.port,), families=tuple(Family), ordered=Order(drained=drained))
    entries = upstreams(service, replace(around, slices={target.service: slices}))
    by_use = sorted(entries, key=lambda entry: (not entry.backends, not _is_unreached(entry)))
    return by_use[0]


def _is_unreached(entry: PortBackends) -> bool:
    return entry.problem is not None and entry.problem.reason is Reason.UNREACHABLE


def _upstream(name: UpstreamName, target: BackendTarget, entry: PortBackends) -> Upstream:
    http = HttpBackends(target.speaks, target.tls) if target.speaks else None
    upstream = Upstream(
        name, target.port.protocol, entry.backends, health=entry.health, standby=entry.standby, http=http
    )
    return upstream if http else replace(upstream, bytes_by=target.tls)


def _is_udp(entry: PortBackends) -> bool:
    return entry.port.protocol is Protocol.UDP


def _datagram_name(gateway: Bound, port: int) -> UpstreamName:
    return UpstreamName(f"{gateway.prefix}udp-{port}")


def _merged(gateway: Bound, entries: Mapping[UpstreamName, PortBackends]) -> Iterator[Upstream]:
    """Make one upstream of all backends of a UDP port: Envoy has one cluster for its datagrams."""
    for port, targets in gateway.datagrams.items():
        health = entries[targets[0].upstream].health if targets else None
        shares = datagram_shares((target.weight, entries[target.upstream].backends) for target in targets)
        backends, weights = tuple(shares), tuple(shares.values())
        alike = len(set(weights)) <= 1
        name = _datagram_name(gateway, port)
        yield Upstream(name, Protocol.UDP, backends, health=health, weights=() if alike else weights)


def datagram_shares(behind: Iterable[tuple[int, Sequence[Backend]]]) -> Mapping[Backend, int]:
    """Return the weights of distinct backends, sorted: those of a target have its share together, each the same part.

    They are as small as they can be, or rounded where that is still more than Envoy takes.
    """
    having = [(weight, backends) for weight, backends in behind if backends]
    common = lcm(*(len(backends) for _, backends in having))
    by_place = Counter[tuple[int, int, int]]()
    for weight, backends in having:
        by_place.update(dict.fromkeys((backend.place for backend in backends), weight * common // len(backends)))
    shares = {
        backend: by_place[backend.place] for backend in distinct(chained.from_iterable(each for _, each in having))
    }
    largest, divisor = max(shares.values(), default=0), gcd(*shares.values())
    if divisor and largest // divisor > _LARGEST_WEIGHT:
        return {backend: max(1, share * _LARGEST_WEIGHT // largest) for backend, share in shares.items()}
    return {backend: share // divisor for backend, share in shares.items()}


def _port(
    gateway: Bound, port: ServicePort, where: Where, via: Via | None, answering: frozenset[UpstreamName]
) -> PlannedPort:
    """Return a port with a listener on each address where it is free; for UDP only if it has backends."""
    if gateway.failure:
        return PlannedPort(
            port, problem=Problem(Reason.LISTENERS_NOT_VALID, f"{gateway.key}: {gateway.failure.message}")
        )
    if port in where.problems:
        return PlannedPort(port, problem=where.problems[port])
    occupied = {
        address: where.occupied[port, address] for address in where.addresses if (port, address) in where.occupied
    }
    free = [address for address in where.addresses if address not in occupied]
    problem = next(iter(occupied.values()), None)
    listeners: tuple[Listener | HttpListener, ...]
    if port.protocol is Protocol.UDP:
        name = _datagram_name(gateway, port.port)
        listeners = tuple(Listener(address, port.number, port.protocol, name) for address in free if name in answering)
    else:
        chains = tuple(_with_addresses(gateway.chains[port.port], where.addresses))
        chains = with_mapped_redirects(chains, port, gateway.want.ports, gateway.chains.values())
        http3 = where.http3 and not _is_shared(gateway, port)
        listeners = tuple(HttpListener(address, port.number, chains, http3=http3) for address in free if chains)
    if not listeners:
        return PlannedPort(port, listeners, problem)
    if gateway.key == LOCALHOST:
        return PlannedPort(port, listeners, problem, via)
    why = "none of the backends behind it takes a connection; start what listens there, or correct the routes"
    planned = PlannedPort(port, listeners, problem, via)
    silence = Problem(Reason.BACKENDS_DOWN, f"{gateway.key} port {port}: {why}")
    return replace(planned, silence=dict.fromkeys(planned.upstreams, silence))


def _is_shared(gateway: Bound, port: ServicePort) -> bool:
    """Return whether another owner may have the same UDP port at the same address."""
    ports = {(wanted.port, wanted.protocol) for wanted in gateway.want.ports}
    return bool(gateway.want.sharing_key) or (port.port, Protocol.UDP) in ports


def _with_addresses(chains: Sequence[Chain], addresses: Iterable[IPAddress]) -> Iterator[Chain]:
    """Return chains with the addresses added to the local certificates that clients without a server name get."""
    hosts = tuple(str(address) for address in addresses if local.certifies_address(address))
    nameless = {
        certificate: _also(certificate, hosts)
        for served in chains
        if not served.names
        for certificate in _certificates(served)
    }
    for served in chains:
        certificates = tuple(nameless.get(certificate, certificate) for certificate in _certificates(served))
        if served.termination is None or certificates == served.termination.certificates:
            yield served
        else:
            yield replace(served, termination=replace(served.termination, certificates=certificates))


def _also(certificate: AnyCertificate, hosts: tuple[str, ...]) -> AnyCertificate:
    if isinstance(certificate, LocalCertificate):
        return replace(certificate, hosts=(*certificate.hosts, *hosts))
    return certificate


def _certificates(chain: Chain) -> tuple[AnyCertificate, ...]:
    return chain.termination.certificates if chain.termination else ()


def _via(entries: Iterable[PortBackends]) -> Via | None:
    paths = {entry.via for entry in entries if entry.backends}
    return Via.BOTH if len(paths) > 1 else next(iter(paths), None)


class Gateways(NamedTuple):
    """The Gateways and Ingresses that a stack serves, and notices about others."""

    bound: Mapping[ObjectKey, Bound] = MappingProxyType({})
    notices: tuple[str, ...] = ()
    """Sentences about unserved listeners, routes and rules."""
    left_out: tuple[str, ...] = ()
    """Sentences about objects of other controllers."""
    refused: Mapping[ObjectKey, tuple[str, ...]] = MappingProxyType({})
    """The notices about each Gateway, or Ingresses with one address, where there are any."""
    clusters: Mapping[ClusterName, GatewayObjects] = MappingProxyType({})
    """All that each cluster has."""


def gateways_of(
    objects: Iterable[ObjectOfCluster],
    settings: Settings,
    authority: LocalAuthority | None = None,
    memory: AnyMemo | None = None,
) -> Gateways:
    """Bind the Gateways and Ingresses of all clusters; `memory` caches earlier bindings.

    `authority` makes certificates for hosts without a Secret; None: such hosts aren't served by TLS.
    """
    memory = memory or Memo()
    by_cluster = dict(memory.of("gathered", _in_order, tuple(objects)))
    names = settings.gateway_classes
    notices, others = [*missing_classes(by_cluster, names)], list[str]()
    bound: dict[ObjectKey, Bound] = {}
    refused: dict[ObjectKey, tuple[str, ...]] = {}
    for objects_of_cluster in by_cluster.values():
        mine = bind(objects_of_cluster, names, memory, authority)
        ingresses = bind_ingresses(objects_of_cluster, settings, memory, authority)
        bound |= {served.key: served for served in (*mine, *ingresses)}
        notices += sentences(objects_of_cluster, mine, memory)
        notices += parsing.class_notices(objects_of_cluster, settings.ingress)
        of_ingresses = {ingress.key: stated for ingress in ingresses if (stated := ingress.notices)}
        notices += chain.from_iterable(of_ingresses.values())
        refused |= {**refusals(objects_of_cluster, mine, memory), **of_ingresses}
        others += (*left_out(objects_of_cluster, names), *parsing.left_out(objects_of_cluster, settings))
    memory.evict_unused()
    return Gateways(bound, tuple(notices), tuple(others), refused, by_cluster)


def _in_order(objects: Iterable[ObjectOfCluster]) -> Sequence[tuple[ClusterName, GatewayObjects]]:
    """Return what each cluster has, in an order that counts when two are compared."""
    return tuple(gathered(objects).items())


def with_gateways(snapshot: Snapshot, gateways: Mapping[ObjectKey, Bound]) -> Snapshot:
    """Return the snapshot with these among its Services; unplaced ones are malformed."""
    if not gateways:
        return snapshot
    wanted = tuple(served.want for served in gateways.values() if served.is_placed)
    refused = tuple(
        MalformedService(
            served.key,
            Problem(Reason.MALFORMED, f"{served.key}: {served.failure.message}"),
            served.want.uid,
            labels=served.want.labels,
        )
        for served in gateways.values()
        if served.failure and not served.is_placed
    )
    return replace(snapshot, services=(*snapshot.services, *wanted), malformed=(*snapshot.malformed, *refused))


def with_overrides(gateways: Gateways, overrides: Mapping[ObjectKey, Order]) -> Gateways:
    """Return Gateways and Ingresses as commands order it."""
    concerned = [served for key, served in gateways.bound.items() if key in overrides] if overrides else []
    if not concerned:
        return gateways
    changed = {
        served.key: replace(served, want=replace(served.want, ordered=overrides[served.key])) for served in concerned
    }
    return gateways._replace(bound={**gateways.bound, **changed})
