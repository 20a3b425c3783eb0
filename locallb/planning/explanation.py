"""Which address, listener, rule and backends of a plan answer a request, and why no other rule does. Pure.

It goes by what is planned to be served, in the order in which the proxy compares it: the address, the chain by SNI, the
host (exact, then the longest wildcard), the routes up to the first that takes the request. Several load balancers may
serve a host: then the one with the most specific hostname is explained, and the others are named.

Not here: how a proxy compares a request (`model.http_requests`), and the order of routes (`gateway`, `ingress`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from locallb.gateway.listeners import covering, specificity
from locallb.gateway.texts import requested
from locallb.model.gateway_objects import rank
from locallb.model.http_requests import USUAL_PORTS, ComparedRequest, HttpRequest, Unmet, location, rewritten, unmet
from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    HeaderChanges,
    HttpRoute,
    Match,
    Origin,
    PathKind,
    PathMatch,
    Redirect,
    Target,
)
from locallb.model.http_serving import ANY, Chain, HttpListener, HttpRoutes, TcpForward, VirtualHost
from locallb.model.identities import LOCALHOST, IPAddress, ObjectKey, Protocol, UpstreamName
from locallb.model.serving import Listener, Upstream
from locallb.model.texts import clipped, few
from locallb.planning.localhost import DOMAIN
from locallb.planning.planned import Placement, Plan

MAX_CANDIDATES = 5
"""Rules that are named before the one that takes the request, and as many behind it."""
_MISDIRECTED = 421
_WHOLE = 100


class Answered(StrEnum):
    """By what a request is answered."""

    BACKEND = "backend"
    REDIRECT = "redirect"
    PROXY = "proxy"
    """By the proxy itself, with a status."""
    CONNECTION = "connection"
    """The connection goes to a backend as it is; the proxy reads no request."""
    CLOSED = "closed"
    """The proxy closes the connection."""
    NOTHING = "nothing"
    """No load balancer takes the connection."""


class Candidate(Struct, frozen=True):
    """A rule that doesn't answer."""

    origin: str
    match: str
    why: str


class Share(Struct, frozen=True):
    """A backend and its share of the requests."""

    service: str
    percent: float
    backends: tuple[str, ...] = ()
    problem: str = ""
    """Why its share is answered by the proxy."""
    status: int = 0
    """With what it is then answered."""


class Explanation(Struct, frozen=True):
    """The answer to a request, as far as the plan decides it."""

    request: HttpRequest
    answered: Answered
    status: int = 0
    """0 where the proxy doesn't decide it."""
    location: str = ""
    reason: str = ""
    """Why neither a backend nor a redirect answers."""
    key: ObjectKey | None = None
    """The load balancer."""
    place: str = ""
    """Its address and port."""
    found: str = ""
    """Why this one."""
    others: tuple[str, ...] = ()
    """Other load balancers that serve the host."""
    tls: str = ""
    listener: str = ""
    """Of a Gateway."""
    host: str = ""
    """The hostname that the host of the request belongs to; `*` for every other one."""
    path: str = ""
    """As it is compared."""
    origin: str = ""
    match: str = ""
    """What the rule takes."""
    shares: tuple[Share, ...] = ()
    sent: str = ""
    """The URL that a backend is asked for."""
    filters: tuple[str, ...] = ()
    earlier: tuple[Candidate, ...] = ()
    """The nearest rules that precede the one that takes the request, or of all if none does."""
    later: tuple[Candidate, ...] = ()
    """The next rules that would take it as well."""
    compared: int = 0
    """Rules that precede it."""

    @property
    def serves(self) -> bool:
        """Whether something serves the request, as far as the plan knows."""
        match self.answered:
            case Answered.BACKEND | Answered.CONNECTION:
                return any(not share.problem for share in self.shares)
            case Answered.PROXY:
                return self.status < 400  # noqa: PLR2004 - a status of failure
            case _:
                return self.answered is Answered.REDIRECT

    @property
    def result(self) -> str:
        """What becomes of the request, in a few words: equal where it goes to the same place."""
        match self.answered:
            case Answered.BACKEND:
                shares = ", ".join(
                    f"{share.service or share.status}{_percent(share, self.shares)}" for share in self.shares
                )
                return f"{shares} as {self.sent}" if self.sent else shares
            case Answered.REDIRECT:
                return f"{self.status} to {self.location}"
            case Answered.PROXY:
                return f"{self.status}: {self.reason}" if self.reason else str(self.status)
            case Answered.CONNECTION:
                return f"the connection, to {', '.join(share.service for share in self.shares)}"
            case _:
                return self.reason


def _percent(share: Share, shares: Sequence[Share]) -> str:
    return f" {share.percent:.3g} %" if len(shares) > 1 else ""


class _Entrance(NamedTuple):
    """A TCP listener of a load balancer."""

    placement: Placement
    listener: Listener | HttpListener


class _Way(NamedTuple):
    """How a request finds a listener."""

    entrance: _Entrance | None
    why: str
    others: tuple[str, ...] = ()


def explain(plan: Plan, request: HttpRequest, *, hostless: bool = False) -> Explanation:
    """Follow a request through a plan; `hostless` for one of manifests alone, where endpoints aren't known."""
    way = _way(plan, request)
    if way.entrance is None:
        return Explanation(request, Answered.NOTHING, reason=way.why)
    placement, listener = way.entrance
    upstreams = _Upstreams(_upstreams(plan, placement), hostless)
    found = Explanation(
        request, Answered.CLOSED, key=placement.key, place=listener.place, found=way.why, others=way.others
    )
    if isinstance(listener, Listener):
        target = Target(listener.upstream, service=placement.key.shown)
        filters = tuple(_of_listener(listener))
        return replace(found, answered=Answered.CONNECTION, shares=upstreams.shares((target,)), filters=filters)
    chain = _chain(listener, request)
    why = _mismatch(listener, chain, request)
    if chain is None or why:
        return replace(found, reason=why)
    found = replace(found, tls=_tls(chain), filters=tuple(_of_listener(listener)))
    if isinstance(chain.serves, TcpForward):
        return _connected(found, chain.serves, upstreams)
    return _requested(found, chain.serves, upstreams)


def _way(plan: Plan, request: HttpRequest) -> _Way:
    """Find the listener of a request: by its address, by a name that the stack gives, else by the host it serves.

    A client goes where the URL says, whatever host it asks for there; only where that says nothing the host counts.
    """
    if request.address:
        return _at(plan, (request.address,), request, "the URL has its address")
    if request.host == DOMAIN or request.host.endswith(f".{DOMAIN}"):
        own = (each for each in _entrances(plan) if each.placement.key == LOCALHOST)
        if found := next((each for each in own if each.listener.port == request.port), None):
            return _Way(found, f"names below {DOMAIN} are addresses of this host")
    if named := _named(plan, request.host):
        return _at(plan, named, request, f"{request.host} is a name of it")
    every, headers = list(_entrances(plan)), tuple(header for header in request.headers if header[0] != "host")
    by_host = [
        _by_host(every, replace(request, host=host, headers=headers)) for host in (request.host, request.requested_host)
    ]
    return next((way for way in by_host if way.entrance), by_host[0])


def _entrances(plan: Plan) -> Iterator[_Entrance]:
    for placement in plan.placements:
        for port in placement.ports:
            if port.port.protocol is Protocol.TCP:
                yield from (_Entrance(placement, listener) for listener in port.listeners)


def _named(plan: Plan, host: str) -> tuple[IPAddress, ...]:
    """Return the addresses of a name in the zones of the stack; empty if it has none."""
    names = {name.name: name.addresses for placement in plan.placements for name in placement.names}
    return next((names[name] for name in covering(host) if names.get(name)), ())


def _at(plan: Plan, addresses: Sequence[IPAddress], request: HttpRequest, why: str) -> _Way:
    """Find the listener at an address. A port without one is closed, for its own reason."""
    for entrance in _entrances(plan):
        if entrance.listener.port == request.port and entrance.listener.address in addresses:
            return _Way(entrance, why)
    at = " and ".join(map(str, addresses))
    here = [placement for placement in plan.placements if not set(addresses).isdisjoint(placement.addresses)]
    ports = [port for placement in here for port in placement.ports if port.port.protocol is Protocol.TCP]
    for port in ports:
        if port.port.number == request.port:
            return _Way(None, port.problem.message if port.problem else f"port {request.port} of {at} has no backend")
    if not here:
        return _Way(None, f"no load balancer of the stack has the address {at}")
    listed = _listed(sorted({port.port.number for port in ports})) or "no port of TCP"
    return _Way(None, f"{here[0].key.shown} has {listed} at {at}, not {request.port}")


def _by_host(every: Sequence[_Entrance], request: HttpRequest) -> _Way:
    served = [(each, _served_name(each.listener, request)) for each in every if each.listener.port == request.port]
    serving = [
        (specificity(name), each.listener.address.version, name, each) for each, name in served if name is not None
    ]
    if serving:
        _, _, name, best = min(serving, key=lambda found: found[:2])
        rivals = [each.placement.key.shown for _, _, other, each in serving if other == name]
        others = tuple(key for key in dict.fromkeys(rivals) if key != best.placement.key.shown)
        return _Way(best, f"it serves the host {name}" if name else "it serves every host", others)
    place = f"{request.host} at port {request.port} by {request.scheme}"
    return _Way(None, f"no load balancer of the stack serves {place}{_elsewhere(every, request)}")


def _elsewhere(every: Sequence[_Entrance], request: HttpRequest) -> str:
    """Return by which scheme and at which ports the host is served instead; empty if it isn't."""
    having = sorted({each.listener.port for each in every})
    for scheme in (request.scheme, *(other for other in USUAL_PORTS if other != request.scheme)):
        ports = [port for port in having if _is_served(every, replace(request, scheme=scheme, port=port))]
        if ports:
            return f"; it is served by {scheme} at port{'s' if len(ports) > 1 else ''} {_listed(ports)}"
    return ""


def _is_served(every: Iterable[_Entrance], request: HttpRequest) -> bool:
    return any(each.listener.port == request.port and _served_name(each.listener, request) for each in every)


def _listed(values: Iterable[object]) -> str:
    return few([str(value) for value in values])


def _served_name(listener: Listener | HttpListener, request: HttpRequest) -> str | None:
    """Return the hostname by which a listener serves the host of a request, empty for every host; None if it doesn't.

    Hosts that are only there to send clients away aren't served.
    """
    chain = _chain(listener, request) if isinstance(listener, HttpListener) else None
    if not isinstance(listener, HttpListener) or chain is None or _mismatch(listener, chain, request):
        return None
    if isinstance(chain.serves, TcpForward):
        return _name_in(chain.names or ("",), request.host)
    host = _host(chain.serves, request.requested_host)
    if host is None or _is_empty(host):
        return None
    return _name_in(["" if name == ANY else name for name in host.domains], request.requested_host)


def _is_empty(host: VirtualHost) -> bool:
    """Return whether a host has no rules, or those alone that send clients to another connection."""
    return all(route.action == DirectResponse(_MISDIRECTED) for route in host.routes)


def _name_in(names: Iterable[str], host: str) -> str:
    having = set(names)
    return next((name for name in covering(host) if name in having), "")


def _chain(listener: HttpListener, request: HttpRequest) -> Chain | None:
    """Return the chain of a connection: of the most specific name for SNI, or without a name."""
    by_name = {name: chain for chain in listener.chains for name in chain.names or ("",)}
    sni = request.host if request.scheme == "https" and not request.address else ""
    return next((by_name[name] for name in covering(sni) if name in by_name), None)


def _mismatch(listener: HttpListener, chain: Chain | None, request: HttpRequest) -> str:
    """Return why a connection is closed before anything of it counts; empty if it isn't."""
    if chain is None:
        names = few([name for chain in listener.chains for name in chain.names])
        sent = f"{request.host} by TLS" if request.scheme == "https" else "connections without TLS"
        return f"port {listener.port} doesn't take {sent}, only TLS for {names}"
    if request.scheme == "http" and (chain.termination or chain.names):
        return f"port {listener.port} takes TLS alone: ask by https"
    if request.scheme == "https" and isinstance(chain.serves, HttpRoutes) and not chain.termination:
        return f"port {listener.port} takes requests without TLS alone: ask by http"
    return ""


def _tls(chain: Chain) -> str:
    names = f" for {few(chain.names)}" if chain.names else ""
    if chain.termination is None:
        return f"passed on as it is{names}" if chain.by_tls or chain.names else ""
    clients = chain.termination.clients
    if clients is None:
        return f"ends at the proxy{names}"
    return f"ends at the proxy{names}; clients {'may' if clients.optional else 'must'} show a certificate"


def _of_listener(listener: Listener | HttpListener) -> Iterator[str]:
    if listener.source_ranges:
        yield f"closes connections of clients outside of {_listed(listener.source_ranges)}"
    if listener.fault:
        yield f"a fault is ordered: {listener.fault}"


def _upstreams(plan: Plan, placement: Placement) -> Mapping[UpstreamName, Upstream]:
    if placement.part:
        return {upstream.name: upstream for upstream in placement.part.part.upstreams}
    proxies = (planned.proxy for planned in plan.proxies if planned.proxy.name == placement.proxy)
    return {upstream.name: upstream for proxy in proxies for upstream in proxy.upstreams}


class _Upstreams(NamedTuple):
    """The upstreams of a load balancer, and whether their endpoints aren't known."""

    by_name: Mapping[UpstreamName, Upstream]
    hostless: bool

    def share(self, target: Target, total: int) -> Share:
        percent, upstream = _WHOLE * target.weight / total, self.by_name.get(target.upstream)
        if upstream is None:
            return Share(target.service, percent, problem=target.problem or "it has no backend", status=500)
        backends = tuple(map(str, upstream.backends or upstream.standby))
        if backends or self.hostless:
            return Share(target.service, percent, backends)
        return Share(target.service, percent, problem="it has no endpoint that takes requests", status=503)

    def shares(self, targets: Iterable[Target]) -> tuple[Share, ...]:
        live = [target for target in targets if target.weight]
        total = sum(target.weight for target in live)
        return tuple(self.share(target, total) for target in live)


def _connected(found: Explanation, forward: TcpForward, upstreams: _Upstreams) -> Explanation:
    shares = upstreams.shares(forward.targets)
    if not shares:
        return replace(found, reason="no route takes connections there")
    return replace(found, answered=Answered.CONNECTION, shares=shares)


def _host(routes: HttpRoutes, name: str) -> VirtualHost | None:
    hosts = {domain: host for host in routes.hosts for domain in host.domains}
    return next((hosts[domain] for domain in (*covering(name), ANY) if domain in hosts), None)


def _other_hosts(routes: HttpRoutes) -> str:
    """Return for which hosts there are rules; empty if there are none."""
    hosts = [domain for host in routes.hosts if not _is_empty(host) for domain in host.domains]
    return f"; there are rules for {few(hosts)}" if hosts else ""


class _Taking(NamedTuple):
    """A route that takes a request, by a match of its own or that of its preflights."""

    number: int
    route: HttpRoute
    is_preflight: bool = False


def _requested(found: Explanation, routes: HttpRoutes, upstreams: _Upstreams) -> Explanation:
    request = found.request
    compared = ComparedRequest.of(request, merges_slashes=routes.by_source)
    if compared is None:
        return replace(found, answered=Answered.PROXY, status=400, reason="its path has %00")
    found = replace(found, answered=Answered.PROXY, status=404, path=compared.path)
    host = _host(routes, request.requested_host)
    if host is None:
        why = f"nothing is served for the host {request.requested_host} there"
        return replace(found, reason=f"{why}{_other_hosts(routes)}")
    name = _name_in(["" if domain == ANY else domain for domain in host.domains], request.requested_host)
    found = replace(found, host=name or ANY, listener=host.listener)
    taking, failed = _first(host, compared)
    found = replace(found, earlier=_nearest(host, failed), compared=len(failed))
    if taking is None:
        nothing = f"no rule is attached there for the host {request.requested_host}{_other_hosts(routes)}"
        return replace(found, reason="no rule takes it" if failed else nothing)
    route = taking.route
    found = replace(
        found,
        origin=str(route.origin or ""),
        match=_written(host, taking.number),
        filters=(*found.filters, *_filters(route)),
        later=tuple(_later(host, taking, compared)),
    )
    if route.cors and (compared.is_preflight or taking.is_preflight):
        if compared.is_preflight:
            return replace(found, status=200, reason="the proxy answers preflights")
        return replace(found, reason="its Origin is empty")
    return _done(found, route, compared, upstreams)


def _first(host: VirtualHost, request: ComparedRequest) -> tuple[_Taking | None, Sequence[tuple[int, Unmet]]]:
    """Return the first route that takes a request, and what it lacks for the ones before."""
    failed: list[tuple[int, Unmet]] = []
    for number, (route, preflight) in enumerate(host.entries):
        lacking = unmet(route.match, request)
        if lacking is None:
            return _Taking(number, route), failed
        failed.append((number, lacking))
        if preflight and request.is_preflight_for(route.match.method) and unmet(preflight, request) is None:
            return _Taking(number, route, is_preflight=True), failed
    return None, failed


def _nearest(host: VirtualHost, failed: Sequence[tuple[int, Unmet]]) -> tuple[Candidate, ...]:
    """Return the routes of which a request meets most conditions, in their order."""
    nearest = sorted(failed, key=lambda each: (-each[1].met, -each[0]))[:MAX_CANDIDATES]
    return tuple(_candidate(host, number, lacking.sentence) for number, lacking in sorted(nearest, key=lambda e: e[0]))


def _candidate(host: VirtualHost, number: int, why: str) -> Candidate:
    return Candidate(str(host.routes[number].origin or ""), _written(host, number), why)


def _written(host: VirtualHost, number: int) -> str:
    """Return what a route takes, with the hostname that it is written for."""
    name = host.hostnames[number] if host.hostnames else host.domains[0]
    return requested(host.routes[number].match, name or ANY)


def _later(host: VirtualHost, taking: _Taking, request: ComparedRequest) -> Iterator[Candidate]:
    """Yield the next routes that would take a request as well, with why they come later."""
    found = 0
    for number in range(taking.number + 1, len(host.routes)):
        if unmet(host.routes[number].match, request) is None:
            yield _candidate(host, number, _why_later(host, taking.number, number))
            found += 1
            if found == MAX_CANDIDATES:
                return


_KINDS = {PathKind.EXACT: "an exact path", PathKind.REGEX: "an expression", PathKind.PREFIX: "a prefix"}


def _why_later(host: VirtualHost, first: int, later: int) -> str:
    """Return which rule of precedence puts a route behind another one."""
    one, other = host.routes[first], host.routes[later]
    if host.hostnames and specificity(host.hostnames[first]) < specificity(host.hostnames[later]):
        return "its hostname is less specific"
    if other.origin and other.origin.part == "default backend":
        return "a default backend takes what no rule takes"
    ranks = zip(rank(one.match), rank(other.match), _PRECEDENCE, strict=True)
    why = next((why for mine, theirs, why in ranks if mine < theirs), "")
    if why == _KIND:
        return f"{_kind(other.match)} comes after {_kind(one.match)}"
    if why:
        return why
    if one.origin and other.origin and _object(one.origin) == _object(other.origin):
        return "it comes later in the same object"
    return "its object is younger, or as old and later by name"


_KIND = "kind"
_PRECEDENCE = (
    _KIND,
    "its path is shorter",
    "its path is shorter",
    "it names no method",
    "it compares fewer headers",
    "it compares fewer parameters",
)
"""What a component of a rank means that is greater."""


def _kind(match: Match) -> str:
    return (
        _KINDS[match.path.kind]
        if isinstance(match.path, PathMatch)
        else "any path"
        if match.path is None
        else "a method"
    )


def _object(origin: Origin) -> tuple[str, str, str]:
    return origin.kind, origin.namespace, origin.name


def _done(found: Explanation, route: HttpRoute, compared: ComparedRequest, upstreams: _Upstreams) -> Explanation:
    """Return what the action of a route does."""
    problem = route.origin.problem if route.origin else ""
    match route.action:
        case Redirect() as to:
            where = location(to, route.match.path, found.request, compared)
            return replace(found, answered=Answered.REDIRECT, status=to.code, location=where)
        case DirectResponse(status=status, body=body):
            where = next((value for name, value in route.response.set if name.lower() == "location"), "")
            if where:
                return replace(found, answered=Answered.REDIRECT, status=status, location=where)
            if status == _MISDIRECTED and not problem:
                problem = f"connections for {found.request.host} don't serve the host {found.request.requested_host}"
            return replace(found, status=status, reason=problem or body.strip())
        case Forward() as forward:
            shares = upstreams.shares(forward.targets)
            if not shares:
                return replace(found, status=500, reason=problem or "the rule has no backend with a weight")
            if all(share.problem for share in shares):
                status = min(share.status for share in shares)
                reason = "; ".join(dict.fromkeys(_problem(share) for share in shares))
                return replace(found, status=status, shares=shares, reason=reason)
            sent = _sent(forward, route, found, compared)
            return replace(found, answered=Answered.BACKEND, status=0, shares=shares, sent=sent)


def _problem(share: Share) -> str:
    return (
        f"{share.service}: {share.problem}" if share.service and share.service not in share.problem else share.problem
    )


def _sent(forward: Forward, route: HttpRoute, found: Explanation, compared: ComparedRequest) -> str:
    """Return what backends are asked for, if it is something else than the client asks for."""
    path = rewritten(forward.path, route.match.path, compared.path)
    if not forward.hostname and f"{path}{compared.suffix}" == found.request.target:
        return ""
    return f"{forward.hostname or found.request.authority}{path}{compared.suffix}"


def _filters(route: HttpRoute) -> Iterator[str]:
    """Yield what else is done to a request and its answer."""
    yield from _changes("request", route.request)
    yield from _changes("answer", route.response)
    if route.sources:
        yield f"answers 403 to clients outside of {_listed(route.sources)}"
    if route.cors:
        yield f"answers preflights, and gives rights to scripts of {few(route.cors.origins)}"
    if route.fault:
        yield f"a fault is ordered: {route.fault}"
    if isinstance(route.action, Forward):
        yield from _of_forward(route.action)


def _of_forward(forward: Forward) -> Iterator[str]:
    for target in forward.targets:
        for sentence in (*_changes("request", target.request), *_changes("answer", target.response)):
            yield f"for {target.service or 'its backend'}: {sentence}"
    for mirror in forward.mirrors:
        yield f"copies {mirror.per_million / 10_000:g} % of the requests to {mirror.service or 'another backend'}"
    if forward.timeout:
        yield f"answers 504 after {_seconds(forward.timeout)}"
    if forward.attempt_timeout:
        yield f"ends an attempt after {_seconds(forward.attempt_timeout)}"
    if forward.retry:
        codes = f" answered {_listed(forward.retry.codes)}" if forward.retry.codes else ""
        yield f"repeats requests{codes} up to {forward.retry.attempts} times"
    if forward.session:
        yield f"keeps a client at its backend by the {forward.session.kind.lower()} {forward.session.name}"
    if forward.idle:
        yield f"answers 504 if nothing comes for {_seconds(forward.idle)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"


def _changes(what: str, changes: HeaderChanges) -> Iterator[str]:
    for verb, listed in (("sets", changes.set), ("adds", changes.add)):
        yield from (f"{verb} {name}: {clipped(value)} in the {what}" for name, value in listed)
    if changes.remove:
        yield f"removes {few(changes.remove)} from the {what}"
