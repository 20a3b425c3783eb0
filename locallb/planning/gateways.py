"""Gateways and Ingresses among the Services of a plan: who they are, and what they serve on addresses.

Each is planned as a Service that has a proxy of its own; only its listeners and upstreams are made here. Not here:
what it serves (`gateway.translation`, `ingress.translation`), and what statuses say (`gateway.status`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from locallb.certificates import local
from locallb.config.settings import Settings
from locallb.gateway.kinds import gathered
from locallb.gateway.routes.backends import BackendTarget
from locallb.gateway.routes.bound import Bound
from locallb.gateway.telling import left_out, missing_classes, sentences
from locallb.gateway.translation import bind
from locallb.ingress import classes
from locallb.ingress.translation import bind_ingresses
from locallb.model.faults import Order
from locallb.model.gateway.of_cluster import GatewayObjects, ObjectOfCluster
from locallb.model.http.backends import HttpBackends
from locallb.model.http.serving import AnyCertificate, Chain, HttpListener, LocalCertificate
from locallb.model.identities import ClusterName, Family, IPAddress, ObjectKey, Protocol
from locallb.model.memory import Memory
from locallb.model.objects import MalformedService, Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import Backend, Listener, Upstream
from locallb.model.snapshot import LocalAuthority, Snapshot
from locallb.planning.backends.backends import PortBackends, upstreams
from locallb.planning.backends.index import BackendIndex
from locallb.planning.mapped_redirects import with_mapped_redirects
from locallb.planning.planned import PlannedPort, Via
from locallb.planning.ports import PortProblems

_LARGEST_WEIGHT = 10_000
"""Of a backend: thousands of them stay below what Envoy takes together."""


class Gateways(NamedTuple):
    """The Gateways and Ingresses that a stack serves, and what is to be told beside them."""

    bound: Mapping[ObjectKey, Bound] = MappingProxyType({})
    notices: tuple[str, ...] = ()
    """What of listeners, routes and rules isn't served."""
    left_out: tuple[str, ...] = ()
    """Which are somebody else's."""
    clusters: Mapping[ClusterName, GatewayObjects] = MappingProxyType({})
    """All that each cluster has."""


Taken: TypeAlias = Mapping[tuple[ServicePort, IPAddress], Problem]


class Where(NamedTuple):
    """Where a Gateway is served, and where it can't be."""

    addresses: tuple[IPAddress, ...]
    problems: PortProblems
    taken: Taken
    http3: bool = False


class Serving(NamedTuple):
    """What is served of a Service or a Gateway."""

    ports: tuple[PlannedPort, ...]
    listeners: tuple[Listener, ...]
    http: tuple[HttpListener, ...]
    upstreams: tuple[Upstream, ...]


def gateways_of(
    objects: Iterable[ObjectOfCluster],
    settings: Settings,
    authority: LocalAuthority | None = None,
    memory: Memory[Any] | None = None,
) -> Gateways:
    """Bind the Gateways and Ingresses of all clusters; `memory` has those that were bound before.

    `authority` makes certificates for hosts without a Secret; None: those aren't served by TLS.
    """
    memory = memory or Memory()
    by_cluster, names = gathered(objects), settings.gateway_classes
    notices, others = [*missing_classes(by_cluster, names)], list[str]()
    bound: dict[ObjectKey, Bound] = {}
    for each in by_cluster.values():
        mine, ingresses = bind(each, names, memory, authority), bind_ingresses(each, settings, memory, authority)
        bound |= {one.key: one for one in (*mine, *ingresses)}
        notices += sentences(each, mine, memory)
        notices += classes.class_notices(each, settings.ingress)
        notices += (told for one in ingresses for told in one.notices)
        others += (*left_out(each, names), *classes.left_out(each, settings))
    memory.evict_unused()
    return Gateways(bound, tuple(notices), tuple(others), by_cluster)


def with_gateways(snapshot: Snapshot, gateways: Mapping[ObjectKey, Bound]) -> Snapshot:
    """Return the snapshot with these among its Services; those of which nothing can be served are malformed."""
    if not gateways:
        return snapshot
    wanted = tuple(one.want for one in gateways.values() if not one.trouble)
    refused = tuple(
        MalformedService(
            one.key,
            Problem(Reason.MALFORMED, f"{one.key}: {one.trouble.message}"),
            one.want.uid,
            labels=one.want.labels,
        )
        for one in gateways.values()
        if one.trouble
    )
    return replace(snapshot, services=(*snapshot.services, *wanted), malformed=(*snapshot.malformed, *refused))


def with_orders(told: Gateways, orders: Mapping[ObjectKey, Order]) -> Gateways:
    """Return Gateways and Ingresses as commands order it."""
    concerned = [one for key, one in told.bound.items() if key in orders] if orders else []
    if not concerned:
        return told
    changed = {one.key: replace(one, want=replace(one.want, ordered=orders[one.key])) for one in concerned}
    return told._replace(bound={**told.bound, **changed})


def backends_of(gateway: Bound, around: BackendIndex) -> BackendIndex:
    """Leave only what may be behind one of them."""
    return around.of_services(dict.fromkeys(target.service for target in gateway.targets.values()), gateway.key.cluster)


def serve(gateway: Bound, where: Where, around: BackendIndex) -> Serving:
    """Put ports on addresses, and backends behind them."""
    entries = {name: _behind(target, around, gateway.want.ordered.drained) for name, target in gateway.targets.items()}
    merged = tuple(_merged(gateway, entries))
    answering = frozenset(upstream.name for upstream in merged if upstream.backends)
    ports = tuple(_port(gateway, port, where, _via(entries.values()), answering) for port in gateway.want.ports)
    listeners = tuple(one for port in ports for one in port.listeners)
    return Serving(
        ports,
        tuple(one for one in listeners if isinstance(one, Listener)),
        tuple(one for one in listeners if isinstance(one, HttpListener)),
        (
            *(_upstream(name, gateway.targets[name], entry) for name, entry in entries.items() if not _is_udp(entry)),
            *merged,
        ),
    )


def _behind(target: BackendTarget, around: BackendIndex, drained: frozenset[str]) -> PortBackends:
    """Find the backends of a port of a Service that aren't drained, in the first family that has any."""
    out = Order(drained=drained | around.drained.get(target.service, frozenset()))
    service = Service(target.service, (target.port,), families=tuple(Family), ordered=out)
    found = upstreams(service, around)
    return next((entry for entry in found if entry.backends), found[0])


def _upstream(name: str, target: BackendTarget, entry: PortBackends) -> Upstream:
    http = HttpBackends(target.speaks, target.tls) if target.speaks else None
    upstream = Upstream(
        name, target.port.protocol, entry.backends, health=entry.health, standby=entry.standby, http=http
    )
    return upstream if http else replace(upstream, bytes_by=target.tls)


def _is_udp(entry: PortBackends) -> bool:
    return entry.port.protocol is Protocol.UDP


def _datagram_name(gateway: Bound, port: int) -> str:
    return f"{gateway.prefix}udp-{port}"


def _merged(gateway: Bound, entries: Mapping[str, PortBackends]) -> Iterator[Upstream]:
    """Make one upstream of all backends of a UDP port: Envoy has one cluster for its datagrams."""
    for port, targets in gateway.datagrams.items():
        health = entries[targets[0].upstream].health if targets else None
        shares = datagram_shares((target.weight, entries[target.upstream].backends) for target in targets)
        backends, weights = tuple(sorted(shares)), tuple(shares[backend] for backend in sorted(shares))
        alike = len(set(weights)) <= 1
        name = _datagram_name(gateway, port)
        yield Upstream(name, Protocol.UDP, backends, health=health, weights=() if alike else weights)


def datagram_shares(behind: Iterable[tuple[int, Sequence[Backend]]]) -> Mapping[Backend, int]:
    """Return the weights of backends: together those of a target have its share, one by one they are alike.

    They are as small as they can be, or rounded where that is still more than Envoy takes.
    """
    having = [(weight, backends) for weight, backends in behind if backends]
    common = lcm(*(len(backends) for _, backends in having))
    shares = Counter[Backend]()
    for weight, backends in having:
        shares.update(dict.fromkeys(backends, weight * common // len(backends)))
    largest, divisor = max(shares.values(), default=0), gcd(*shares.values())
    if divisor and largest // divisor > _LARGEST_WEIGHT:
        return {backend: max(1, share * _LARGEST_WEIGHT // largest) for backend, share in shares.items()}
    return {backend: share // divisor for backend, share in shares.items()}


def _port(gateway: Bound, port: ServicePort, where: Where, via: Via | None, answering: frozenset[str]) -> PlannedPort:
    """Return a port with a listener on each address where nobody else has it; of UDP where anybody is behind it."""
    if port in where.problems:
        return PlannedPort(port, problem=where.problems[port])
    taken = {address: where.taken[port, address] for address in where.addresses if (port, address) in where.taken}
    free = [address for address in where.addresses if address not in taken]
    problem = next(iter(taken.values()), None)
    listeners: tuple[Listener | HttpListener, ...]
    if port.protocol is Protocol.UDP:
        name = _datagram_name(gateway, port.port)
        listeners = tuple(Listener(one, port.number, port.protocol, name) for one in free if name in answering)
    else:
        chains = tuple(_with_addresses(gateway.chains[port.port], where.addresses))
        chains = with_mapped_redirects(chains, port, gateway.want.ports, gateway.chains.values())
        http3 = where.http3 and not _is_shared(gateway, port)
        listeners = tuple(HttpListener(one, port.number, chains, http3=http3) for one in free if chains)
    return PlannedPort(port, listeners, problem, via if listeners else None)


def _is_shared(gateway: Bound, port: ServicePort) -> bool:
    """Return whether somebody else may have the same port of UDP at the same address."""
    ports = {(each.port, each.protocol) for each in gateway.want.ports}
    return bool(gateway.want.sharing_key) or (port.port, Protocol.UDP) in ports


def _with_addresses(chains: Sequence[Chain], addresses: Iterable[IPAddress]) -> Iterator[Chain]:
    """Return chains with the addresses in those local certificates that clients see who ask for no name."""
    hosts = tuple(str(address) for address in addresses if local.certifies_address(address))
    nameless = {each: _also(each, hosts) for chain in chains if not chain.names for each in _certificates(chain)}
    for chain in chains:
        certificates = tuple(nameless.get(each, each) for each in _certificates(chain))
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
    ways = {Via.PODS if entry.straight else Via.NODE_PORTS for entry in entries if entry.backends}
    return Via.BOTH if len(ways) > 1 else next(iter(ways), None)
