"""Listeners and upstreams of Gateways and Ingresses on the addresses that they got.

Not here: which Gateways and Ingresses there are (`gateways`), and their routes (`gateway.translation`,
`ingress.translation`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain as chained
from math import gcd, lcm
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from locallb.certificates import local
from locallb.gateway.routes.backends import BackendTarget
from locallb.gateway.routes.bound import Bound
from locallb.model.faults import Order
from locallb.model.gateway.objects import Named
from locallb.model.http.backends import HttpBackends
from locallb.model.http.serving import AnyCertificate, Chain, HttpListener, LocalCertificate
from locallb.model.identities import Family, IPAddress, Protocol, UpstreamName
from locallb.model.objects import Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, Listener, Upstream, distinct
from locallb.planning.backends.backends import PortBackends, upstreams
from locallb.planning.backends.index import BackendIndex
from locallb.planning.gateways.mapped_redirects import with_mapped_redirects
from locallb.planning.planned import PlannedPort, Via
from locallb.planning.ports import PortProblems

_LARGEST_WEIGHT = 10_000
"""Of a backend: thousands of them stay below what Envoy takes together."""


Claimed: TypeAlias = Mapping[tuple[ServicePort, IPAddress], Problem]


class Where(NamedTuple):
    """Where a Gateway is served, and where it can't be."""

    addresses: tuple[IPAddress, ...]
    problems: PortProblems
    claimed: Claimed
    http3: bool = False


class Serving(NamedTuple):
    """The parts of a proxy that serve a Service or a Gateway."""

    ports: tuple[PlannedPort, ...]
    listeners: tuple[Listener, ...]
    http: tuple[HttpListener, ...]
    upstreams: tuple[Upstream, ...]
    unreached: Mapping[Named, Problem] = MappingProxyType({})
    """Services behind routes with endpoints to which this host has no route."""


def serve(gateway: Bound, where: Where, index: BackendIndex) -> Serving:
    """Put ports on addresses, and backends behind them."""
    entries = {name: _behind(target, index, gateway.want.ordered.drained) for name, target in gateway.targets.items()}
    merged = tuple(_merged(gateway, entries))
    answering = frozenset(upstream.name for upstream in merged if upstream.backends)
    via, unreached = _via(entries.values()), _unreached(entries)
    ports = tuple(
        _with_unreached(_port(gateway, port, where, via, answering), gateway, unreached) for port in gateway.want.ports
    )
    listeners = tuple(listener for port in ports for listener in port.listeners)
    return Serving(
        ports,
        tuple(listener for listener in listeners if isinstance(listener, Listener)),
        tuple(listener for listener in listeners if isinstance(listener, HttpListener)),
        (
            *(_upstream(name, gateway.targets[name], entry) for name, entry in entries.items() if not _is_udp(entry)),
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


def _behind(target: BackendTarget, index: BackendIndex, drained: frozenset[str]) -> PortBackends:
    """Find the backends of a port of a Service that aren't drained, in the first family that has any."""
    out = Order(drained=drained | index.drained.get(target.service, frozenset()))
    service = Service(target.service, (target.port,), families=tuple(Family), ordered=out)
    entries = upstreams(service, index)
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
    claimed = {address: where.claimed[port, address] for address in where.addresses if (port, address) in where.claimed}
    free = [address for address in where.addresses if address not in claimed]
    problem = next(iter(claimed.values()), None)
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
        for chain in chains
        if not chain.names
        for certificate in _certificates(chain)
    }
    for chain in chains:
        certificates = tuple(nameless.get(certificate, certificate) for certificate in _certificates(chain))
        if chain.termination is None or certificates == chain.termination.certificates:
            yield chain
        else:
            yield replace(chain, termination=replace(chain.termination, certificates=certificates))


def _also(certificate: AnyCertificate, hosts: tuple[str, ...]) -> AnyCertificate:
    if isinstance(certificate, LocalCertificate):
        return replace(certificate, hosts=(*certificate.hosts, *hosts))
    return certificate


def _certificates(chain: Chain) -> tuple[AnyCertificate, ...]:
    return chain.termination.certificates if chain.termination else ()


def _via(entries: Iterable[PortBackends]) -> Via | None:
    pod_paths = {Via.PODS if entry.straight else Via.NODE_PORTS for entry in entries if entry.backends}
    return Via.BOTH if len(pod_paths) > 1 else next(iter(pod_paths), None)
