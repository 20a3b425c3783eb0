"""Names below `localhost`: which Service or route a request at 127.0.0.1 is for (`local-lb:localhost`). Pure.

Browsers, curl and systemd-resolved resolve every name below `localhost` to this host (RFC 6761), so these names need no
zone and no right. All of them are served by one load balancer, `localhost`: a listener of HTTP at 127.0.0.1 and ::1,
and one of HTTPS where the stack's own authority makes certificates. It is planned as a Gateway is; its ports are
claimed and kept as mapped ports are (`port_mapping`).

Who has a name: hosts that Gateways and Ingresses have in their own rules come first, the oldest object first, then the
names of Services. A name that two Services would have is nobody's. What may not be reached by everyone on this host
(source ranges, client certificates) gets no name here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from locallb.certificates import local
from locallb.config.settings import Settings
from locallb.dns.zones import is_hostname, name_fault
from locallb.gateway.routes import BackendTarget, Bound, upstream_prefix
from locallb.model.faults import NO_ORDER, Order
from locallb.model.http_routes import DirectResponse, Forward, HttpRoute, Match, Origin, Redirect, Target
from locallb.model.http_serving import ANY, BackendTls, Chain, HttpRoutes, Speaks, Termination, VirtualHost
from locallb.model.identities import LOCALHOST, ClusterName, Family, ObjectKey, ObjectKind, Protocol, UpstreamName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import FamilyPolicy, Service, ServicePort, ServiceType
from locallb.model.snapshot import LocalAuthority
from locallb.planning.admission import has_only_foreign_addresses
from locallb.planning.entrances import scheme_of, url
from locallb.planning.planned import LocalUrl
from locallb.planning.selection import is_ours

DOMAIN = "localhost"
HTTP, HTTPS = 80, 443
_NEWEST = "9999-12-31T23:59:59Z"
"""When it was made: every other load balancer comes before it where the host has no room for all."""
_OF_HTTP2 = frozenset({"grpc", "h2c", "http2", "kubernetes.io/h2c"})
"""Values of appProtocol, and names of ports up to their first hyphen, that mean HTTP/2 without TLS."""
_UNKNOWN = DirectResponse(
    404,
    "local-lb serves no Service and no route by this name; `locallb status` on this host lists the names that it"
    " serves.\n",
)
_OTHERS = VirtualHost((ANY,), (HttpRoute(Match(), _UNKNOWN),))
"""Every other name."""


class LocalName(Struct, frozen=True):
    """A name, and what has it: a port of a Service, or a host in a rule of a Gateway or an Ingress."""

    name: str
    key: ObjectKey
    port: int
    """The port of the object by which it is reached otherwise."""


class LocalNames(Struct, frozen=True):
    """What is served below `localhost`, and sentences about names that aren't."""

    bound: Bound
    plain: tuple[LocalName, ...] = ()
    """The names that are served by HTTP."""
    secured: tuple[LocalName, ...] = ()
    """The names that are served by HTTPS."""
    notices: tuple[str, ...] = ()


class _Served(Struct, frozen=True):
    """What is behind a name."""

    of: LocalName
    host: VirtualHost
    targets: Mapping[UpstreamName, BackendTarget] = field(default_factory=dict)


def local_names(  # noqa: PLR0913, PLR0917 - what names depend on
    services: Iterable[Service],
    gateways: Mapping[ObjectKey, Bound],
    settings: Settings,
    live: frozenset[ClusterName],
    authority: LocalAuthority | None,
    order: Order = NO_ORDER,
    memory: AnyMemo | None = None,
) -> LocalNames:
    """Return what every name leads to. `live` are the running clusters, `order` what commands order for all names.

    `memory` caches what each Service offers.
    """
    memory, notices = memory or Memo(), list[str]()
    of_services = dict(_of_services(_named(services, settings, live), notices, memory))
    https = authority is not None and local.certifies(authority, DOMAIN)
    secured = {**of_services, **_of_routes(gateways, of_services, notices)} if https else {}
    plain = {**of_services, **_of_routes(gateways, of_services, notices, secured)}
    chains = {HTTP: (Chain(_table(plain)),)}
    if authority and secured:
        certificate = local.certificate(authority, DOMAIN, map(_certified, secured))
        chains[HTTPS] = (Chain(_table(secured), termination=Termination((certificate,))),)
    want = Service(
        LOCALHOST,
        tuple(map(ServicePort, chains)),
        created=_NEWEST,
        families=tuple(Family),
        family_policy=FamilyPolicy.PREFER_DUAL,
        ordered=order,
        type=ServiceType.CLUSTER_IP,
    )
    memory.evict_unused()
    targets = {
        name: target for served in (*plain.values(), *secured.values()) for name, target in served.targets.items()
    }
    return LocalNames(
        Bound(want=want, chains=chains, targets=dict(sorted(targets.items()))),
        tuple(served.of for _, served in sorted(plain.items())),
        tuple(served.of for _, served in sorted(secured.items())),
        tuple(dict.fromkeys(notices)),
    )


def _certified(name: str) -> str:
    """Return the name in the certificate: a wildcard, so that a new Service of a namespace needs no new one.

    Clients accept no wildcard right below a top-level domain.
    """
    _, _, rest = name.partition(".")
    return f"*.{rest}" if "." in rest else name


def _table(served: Mapping[str, _Served]) -> HttpRoutes:
    hosts = [each.host for _, each in sorted(served.items())]
    return HttpRoutes((*hosts, _OTHERS))


def _named(services: Iterable[Service], settings: Settings, live: frozenset[ClusterName]) -> Iterator[Service]:
    """Return the Services that may have names: the stack serves them to everyone, and without another protocol."""
    for service in services:
        if service.key.kind is not ObjectKind.SERVICE or service.deleting or not is_ours(service, settings):
            continue
        if service.key.cluster in live and has_only_foreign_addresses(service, settings):
            continue
        if not service.source_ranges and service.proxy_protocol is None:
            yield service


class Spoken(Struct, frozen=True):
    """How a port is spoken to."""

    speaks: Speaks
    tls: BackendTls | None = None


def spoken_by(port: ServicePort) -> Spoken | None:
    """Return how a port is spoken to if it is one of HTTP: by what the Service says of it, else by its number."""
    if port.protocol is not Protocol.TCP:
        return None
    if (port.app_protocol.lower() or port.name.partition("-")[0]) in _OF_HTTP2:
        return Spoken(Speaks.HTTP2)
    match scheme_of(port, None):
        case "http":
            return Spoken(Speaks.HTTP1)
        case "https":
            return Spoken(Speaks.HTTP1, BackendTls("", believes_all=True))
        case _:
            return None


def ports_of(ports: Iterable[ServicePort]) -> list[tuple[ServicePort, Spoken]]:
    """Return the ports of HTTP, first the one that has the Service's name: the lowest that browsers can use."""
    spoken = [(port, how) for port in ports if (how := spoken_by(port))]
    return sorted(spoken, key=lambda each: (each[1].speaks is Speaks.HTTP2, each[0].port))


def _of_services(services: Iterable[Service], notices: list[str], memory: AnyMemo) -> Iterator[tuple[str, _Served]]:
    """Return the names of Services: the ones with a cluster always, the short ones where only one Service has them.

    A Service's name precedes that of a port of another one: `a.b.c` may be Service a of cluster c, or port a of b.
    """
    whole, parts = dict[str, list[_Served]](), dict[str, list[_Served]]()
    for service in sorted(services, key=lambda service: service.key):
        offer: _Offer = memory.of(service.key, _offer, service.key, service.ports)
        notices += offer.notices
        for found, offered in ((whole, offer.whole), (parts, offer.parts)):
            for served in offered:
                found.setdefault(served.of.name, []).append(served)
    for name, rivals in {**parts, **whole}.items():
        if len(rivals) == 1:
            yield name, rivals[0]


class _Offer(Struct, frozen=True):
    """What a Service has where no other one has its names."""

    whole: tuple[_Served, ...]
    """By names of its own."""
    parts: tuple[_Served, ...]
    """By names of its ports."""
    notices: tuple[str, ...]


def _offer(key: ObjectKey, ports: tuple[ServicePort, ...]) -> _Offer:
    served: tuple[list[_Served], list[_Served]] = ([], [])
    notices: list[str] = []
    for number, (port, spoken) in enumerate(ports_of(ports)):
        own = f"{key.name}.{key.namespace}"
        stem = f"{port.name or port.port}.{own}" if number else own
        for full in (f"{stem}.{DOMAIN}", f"{stem}.{key.cluster}.{DOMAIN}"):
            if fault := name_fault(full) or ("" if is_hostname(full) else "a name of a host has no underscore"):
                notices.append(f"{key} isn't found as {full}: {fault}")
                continue
            served[bool(number)].append(_forwarded(key, port, spoken, full))
    return _Offer(tuple(served[0]), tuple(served[1]), tuple(notices))


def _forwarded(key: ObjectKey, port: ServicePort, spoken: Spoken, name: str) -> _Served:
    target = BackendTarget(key, port, spoken.speaks, spoken.tls)
    upstream = UpstreamName(f"{upstream_prefix(LOCALHOST)}{target.name}")
    shares = (Target(upstream, service=f"{target.named}:{port.port}"),)
    route = HttpRoute(Match(), Forward(shares), origin=Origin("Service", *target.named, f"port {port.port}"))
    return _Served(LocalName(name, key, port.port), VirtualHost((name,), (route,)), {upstream: target})


def _of_routes(
    gateways: Mapping[ObjectKey, Bound],
    of_services: Mapping[str, _Served],
    notices: list[str],
    secured: Collection[str] | None = None,
) -> Mapping[str, _Served]:
    """Return the hosts below `localhost` in rules of Gateways and Ingresses, with the routes of their lowest port.

    Those of HTTPS, or of HTTP beside the names in `secured`, to which redirects lead.
    """
    found: dict[str, _Served] = {}
    for bound in sorted(gateways.values(), key=lambda bound: (bound.want.created, bound.key)):
        for port, chains in sorted(bound.chains.items()) if bound.failure is None else ():
            for host in _hosts(chains, secured=secured is None):
                for name in (name for name in host.domains if name.endswith(f".{DOMAIN}")):
                    served = _routed(bound, port, name, host.routes)
                    if why := _restriction(served) or _dead_end(served, secured):
                        notices.append(f"{bound.key}: {name} is not served at 127.0.0.1: {why}")
                        continue
                    first = found.setdefault(name, served).of.key
                    if first != bound.key:
                        notices.append(f"{bound.key}: {name} is not served at 127.0.0.1: the older {first} has it")
                    elif name in of_services and of_services[name].of.key != bound.key:
                        other = of_services[name].of.key
                        notices.append(f"{other} isn't found as {name}: {bound.key} has it in its own rules")
    return found


def _hosts(chains: Sequence[Chain], *, secured: bool) -> Iterator[VirtualHost]:
    for chain in chains:
        ends = chain.termination
        if (ends is not None) is secured and not (ends and ends.clients):
            yield from (host for host in chain.hosts if not _is_misdirected(host))


def _is_misdirected(host: VirtualHost) -> bool:
    """Return whether it is there only to send clients of another host away."""
    return all(isinstance(route.action, DirectResponse) for route in host.routes)


def _routed(bound: Bound, port: int, name: str, routes: tuple[HttpRoute, ...]) -> _Served:
    named = {upstream for route in routes for upstream in route.upstreams}
    targets = {upstream: bound.targets[upstream] for upstream in sorted(named) if upstream in bound.targets}
    return _Served(LocalName(name, bound.key, port), VirtualHost((name,), routes), targets)


def _restriction(served: _Served) -> str:
    """Return why a host is reached by its own address only."""
    if any(route.sources for route in served.host.routes):
        return "its rules name the clients that may come"
    if any(target.tls and target.tls.client for target in served.targets.values()):
        return "its Gateway shows backends a certificate of its own"
    return ""


def _dead_end(served: _Served, secured: Collection[str] | None) -> str:
    """Return why nobody gets further than to this host: it only redirects to where nothing is served."""
    name, routes = served.of.name, served.host.routes
    if secured is None or not routes or not all(_leads_nowhere(route, name, secured) for route in routes):
        return ""
    if not secured:
        return "it only redirects to https, which is served there with `local-lb:certificates: local`"
    return "it only redirects to https, by which the host has no routes there"


def _leads_nowhere(route: HttpRoute, name: str, secured: Collection[str]) -> bool:
    to = route.action
    if not isinstance(to, Redirect) or to.scheme != "https" or to.port not in {0, HTTPS}:
        return False
    host = to.hostname or name
    return host.endswith(f".{DOMAIN}") and host not in secured and f"*.{host.partition('.')[2]}" not in secured


def local_urls(names: LocalNames, ports: Mapping[int, int]) -> Mapping[ObjectKey, tuple[LocalUrl, ...]]:
    """Return the URLs of each object, the shortest name first; `ports` are the served ones, by their usual numbers."""
    urls: dict[ObjectKey, list[LocalUrl]] = {}
    for usual, scheme, served in ((HTTP, "http", names.plain), (HTTPS, "https", names.secured)):
        for each in sorted(served, key=lambda each: (each.name.count("."), each.name)) if usual in ports else ():
            if not each.name.startswith("*."):
                urls.setdefault(each.key, []).append(LocalUrl(each.port, url(scheme, each.name, ports[usual])))
    return {key: tuple(found) for key, found in urls.items()}
