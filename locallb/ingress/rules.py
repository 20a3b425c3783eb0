"""The routes for each path of an Ingress, with its annotations applied, and the backends of these routes.

Not here: which path takes a request (`hosts`), and the meaning of annotations (`annotations`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from locallb.gateway.routes import Backends, BackendTarget, Upstreams, upstream_prefix
from locallb.ingress.annotations import BackendProtocol, Canary, Location, Policy
from locallb.ingress.hosts import UNAVAILABLE, Routes, above
from locallb.ingress.parsing import refused_path
from locallb.model.gateway_objects import BackendRef, GatewayRoute, Named, RouteKind
from locallb.model.gateway_of_cluster import GatewayObjects, Ingress, IngressBackend, IngressPath, IngressRule
from locallb.model.http_checks import checked
from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    HeaderChanges,
    HttpRoute,
    Match,
    Origin,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    Target,
)
from locallb.model.http_serving import BackendTls
from locallb.model.identities import ObjectKey, UpstreamName
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

_ANY_CLIENT = BackendTls("", believes_all=True)


class IngressBackends:
    """Finds backends, and records unresolved references."""

    def __init__(self, objects: GatewayObjects, key: ObjectKey) -> None:
        self._objects = objects
        self._upstreams = Upstreams(Backends(objects), upstream_prefix(key))
        self.failures: list[tuple[Ingress, str]] = []

    @property
    def targets(self) -> dict[UpstreamName, BackendTarget]:
        return self._upstreams.targets

    def target(self, ingress: Ingress, backend: IngressBackend, spoken: BackendProtocol | None = None) -> Target:
        """Return a share for a backend, which has no upstream if it can't be resolved."""
        port = self._port(ingress, backend)
        if isinstance(port, int):
            route = GatewayRoute(RouteKind.HTTP, ingress.meta)
            ref = BackendRef("", "Service", ingress.meta.key.namespace, backend.service, port)
            upstream = self._upstreams.admit(self._upstreams.resolve(route, ref, partial(_spoken, spoken=spoken)))
            if isinstance(upstream, str):
                return Target(upstream, service=str(ref))
            port = upstream.message
        self.failures.append((ingress, port))
        return Target(UpstreamName(""), problem=port)

    def _port(self, ingress: Ingress, backend: IngressBackend) -> int | str:
        """Return the number of a backend's port, or why there is none."""
        if backend.problem:
            return backend.problem
        key = Named(ingress.meta.key.namespace, backend.service)
        service = self._objects.services.get(key)
        if service is None:
            return f"Service {key} isn't there; make it, or correct the backend"
        if service.uses_name:
            return f"Service {key} is of type ExternalName, to which no Ingress may lead; name another one"
        for port in service.ports:
            if port.protocol == "TCP" and (
                port.name == backend.port_name if backend.port_name else port.port == backend.port
            ):
                return port.port
        wanted = f"called {clipped(backend.port_name)}" if backend.port_name else str(backend.port)
        return f"Service {key} has no TCP port {wanted}; correct the port of the backend"


def _spoken(target: BackendTarget, spoken: BackendProtocol | None) -> BackendTarget:
    """Return a target with the protocol of an annotation; a BackendTLSPolicy has more settings, and precedes it."""
    if spoken is None:
        return target
    return target._replace(speaks=spoken.speaks, tls=_ANY_CLIENT if spoken.by_tls else None, app_protocol="")


_ROOT = PathMatch(PathKind.EXACT, "/")
_CANARY_ROUTES = 2
"""Routes that a path of a canary adds to one of another Ingress, by headers."""
_UNCOUNTED = pattern(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]")
"""Escapes and sets, in which nothing is a choice or a group."""


def applied(ingress: Ingress, policy: Policy) -> Ingress:
    """Return an Ingress with the paths that its annotations require: regular expressions, and a redirect for `/`."""
    if ingress.problem:
        return replace(ingress, rules=tuple(_unclear(rule, ingress.problem) for rule in ingress.rules))
    if policy.canary:
        requested = Match(headers=tuple(filter(None, (policy.canary.always, policy.canary.never))))
        rules = tuple(replace(rule, paths=tuple(map(_counted, rule.paths))) for rule in ingress.rules)
        return replace(ingress, rules=rules, routes_a_path=_CANARY_ROUTES * requested.entries)
    if not policy.expressions and not policy.app_root:
        return ingress
    return replace(ingress, rules=tuple(_rule(rule, ingress, policy) for rule in ingress.rules))


def _unclear(rule: IngressRule, problem: str) -> IngressRule:
    """Return the rule of an Ingress with unclear annotations: its paths may be expressions or not."""
    specific = (path for path in rule.paths if path.is_specific and not path.problem)
    more = (refused_path(replace(path, problem=problem), ignores_case=True) for path in specific)
    return replace(rule, paths=(*rule.paths, *more))


def _rule(rule: IngressRule, ingress: Ingress, policy: Policy) -> IngressRule:
    return rule if rule.problem else replace(rule, paths=tuple(_paths(rule, ingress, policy)))


def _paths(rule: IngressRule, ingress: Ingress, policy: Policy) -> Iterator[IngressPath]:
    if policy.app_root:
        yield IngressPath(_ROOT, IngressBackend(), "/", leads_to=policy.app_root)
        if rule.host and not rule.paths and ingress.default:  # all of the host is the default backend's
            yield IngressPath(PathMatch(PathKind.PREFIX, "/"), ingress.default, "/")
    for path in rule.paths:
        if not policy.app_root or path.match != _ROOT:
            yield _expression(path) if path.is_specific and policy.expressions else path


def _counted(path: IngressPath) -> IngressPath:
    """Return a path of a canary as that of the other Ingress may be, which its routes have as well."""
    read = _expression(path) if path.is_specific else path
    return path if read.problem else read


def _expression(path: IngressPath) -> IngressPath:
    """Read a path as an expression, which begins where the path does, ends anywhere, and heeds no capitals."""
    text = path.written or "/"
    why = f"path {shown(text)}: begin an expression with a slash, and put its choices in parentheses"
    try:
        is_plain = text.startswith("/") and not _chooses(checked(text))
        match = PathMatch(PathKind.REGEX, f"(?i:{text}).*")
    except ValueError as error:
        is_plain, why = False, str(error)
    if not is_plain:
        return refused_path(replace(path, problem=why), ignores_case=True)
    return replace(path, match=match, problem="", rank=None)


def _chooses(pattern: str) -> bool:
    """Return whether an expression has a choice outside of groups: the start would belong to its first part alone."""
    depth = 0
    for character in _UNCOUNTED.sub("", pattern):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            return True
    return False


_TO_HTTPS = 308
_CHALLENGE = "/.well-known/acme-challenge"
"""Path of ACME challenges by plain HTTP, before a certificate exists: never redirected to HTTPS."""


class Canaried(NamedTuple):
    """A path of a canary."""

    ingress: Ingress
    backend: IngressBackend
    canary: Canary


_Place: TypeAlias = tuple[str, str, str]
"""Namespace, host and path as they are written."""


class Rules:
    """The rules of Ingresses that have an address together."""

    def __init__(
        self, ingresses: Sequence[Ingress], policies: Mapping[Named, Policy], backends: IngressBackends
    ) -> None:
        """Take all of them, the oldest first, each with its policy."""
        self._policies, self._backends = policies, backends
        self.refused: list[tuple[Ingress, str]] = []
        self._canaries: dict[_Place, Canaried] = {}
        self._claimed: set[_Place] = set()
        for ingress in ingresses:
            if canary := policies[ingress.meta.key].canary:
                for rule, path in ((entry, path) for entry in ingress.rules for path in entry.paths):
                    place = _place(ingress, rule.host, path)
                    self._canaries.setdefault(place, Canaried(ingress, path.backend, canary))

    def canary_failures(self) -> Iterator[tuple[Ingress, str]]:
        """Yield canaries without a main Ingress for their path, with the reason."""
        for place, entry in self._canaries.items():
            if place not in self._claimed:
                where = f"{place[1] or 'every host'}{place[2]}"
                why = f"no other Ingress of its namespace has {where}, of which it would take a share; make one"
                yield entry.ingress, why

    def tls_failures(self, ingresses: Sequence[Ingress], certified: Container[str]) -> Iterator[tuple[Ingress, str]]:
        """Return what would be served by TLS alone, and has no certificate."""
        for ingress in ingresses:
            policy = self._policies[ingress.meta.key]
            for host in dict.fromkeys(rule.host for rule in ingress.rules if policy.secured and not policy.plain):
                if not standing_for(host, certified):
                    why = (
                        f"{host or 'every host'} is served by TLS alone, as its annotations say, and has no certificate"
                    )
                    yield ingress, f"{why}; name one in spec.tls"

    def plain(self, ingress: Ingress, host: str, path: IngressPath, certified: Mapping[str, str], https: int) -> Routes:
        """Return the routes of a request by plain HTTP.

        Hosts in `certified` have a certificate at the port `https`, named by an Ingress of the given namespace. A
        certificate of another namespace causes no redirect to HTTPS unless the Ingress requires one.
        """
        policy = self._policies[ingress.meta.key]
        if (
            policy.is_denied
            or path.problem
            or policy.location
            or not policy.to_https
            or path.written.startswith(_CHALLENGE)
        ):
            return self.secured(ingress, host, path)
        owners = [certified[name] for name in standing_for(host, certified)]
        if ingress.meta.key.namespace in owners or (owners and policy.must_be_https):
            redirect = Redirect(_TO_HTTPS, "https", port=https)
            return (HttpRoute(Match(path.match), redirect, origin=_origin(ingress, path)),)
        if policy.must_be_https:
            why = f"{host or 'every host'} has no certificate, so nobody is sent to HTTPS; name one in spec.tls"
            self._backends.failures.append((ingress, why))
        return self.secured(ingress, host, path)

    def secured(self, ingress: Ingress, host: str, path: IngressPath) -> Routes:
        """Return the routes of a request by TLS, or by plain HTTP without a redirect."""
        routes, fault = self._served(ingress, host, path), ingress.meta.failing
        return tuple(replace(route, fault=fault) for route in routes) if fault else routes

    def _served(self, ingress: Ingress, host: str, path: IngressPath) -> Routes:
        policy = self._policies[ingress.meta.key]
        if policy.is_denied or path.problem or ingress.problem:
            return (_refused(ingress, path, path.problem or ingress.problem or "; ".join(policy.problems)),)
        if policy.location:
            return (_sent(ingress, path, policy.location),)
        if path.leads_to:
            return (_sent(ingress, path, Location(302, path.leads_to)),)
        main = self._backends.target(ingress, path.backend, policy.spoken)
        canary = self._canaries.get(_place(ingress, host, path)) if path.match else None
        if canary is None:
            return (self._whole(ingress, path, policy, main),)
        self._claimed.add(_place(ingress, host, path))
        return tuple(self._shared(ingress, path, policy, main, canary))

    def _shared(
        self, ingress: Ingress, path: IngressPath, policy: Policy, main: Target, entry: Canaried
    ) -> Iterator[HttpRoute]:
        other, canary = self._backends.target(entry.ingress, entry.backend, policy.spoken), entry.canary
        shares = (replace(main, weight=canary.total - canary.weight), replace(other, weight=canary.weight))
        whole = self._whole(ingress, path, policy, main)
        if not other.upstream:
            yield whole
            return
        leading = self._route(ingress, path, policy, (other,))
        for header, route in ((canary.always, leading), (canary.never, whole)):
            if header:
                yield replace(route, match=Match(path.match, (header,)))
        if canary.weight == 0:
            yield whole
        elif canary.weight == canary.total:
            yield leading
        else:
            yield self._route(ingress, path, policy, shares)

    def _whole(self, ingress: Ingress, path: IngressPath, policy: Policy, main: Target) -> HttpRoute:
        return self._route(ingress, path, policy, (main,)) if main.upstream else _refused(ingress, path, main.problem)

    def _route(self, ingress: Ingress, path: IngressPath, policy: Policy, targets: tuple[Target, ...]) -> HttpRoute:
        has_groups = "\\" in policy.rewrite
        # What leads to the very path that is asked for is left as it is, with whatever follows.
        is_same = not policy.rewrite or policy.rewrite == (path.written or "/")
        try:
            rewrite = None if is_same else PathRewrite(policy.rewrite, groups=has_groups)
            forward = Forward(targets, path=rewrite, idle=policy.idle)
            origin = _origin(ingress, path)
            return HttpRoute(Match(path.match), forward, cors=policy.cors, sources=policy.sources, origin=origin)
        except ValueError as error:
            why = f"rewrite-target of {path.written}: {error}"
            self.refused.append((ingress, why))
            return _refused(ingress, path, why)


def standing_for(host: str, certified: Container[str]) -> list[str]:
    """Return the names with a certificate that cover a host."""
    return [name for name in (host, *above(host), "") if name in certified]


def _place(ingress: Ingress, host: str, path: IngressPath) -> _Place:
    return ingress.meta.key.namespace, host, path.written or "/"


def _origin(ingress: Ingress, path: IngressPath, problem: str = "") -> Origin:
    part = f"path {path.written or '/'}" if path.match else "default backend"
    return Origin("Ingress", *ingress.meta.key, part, problem)


def _refused(ingress: Ingress, path: IngressPath, problem: str) -> HttpRoute:
    return HttpRoute(Match(path.match), UNAVAILABLE, origin=_origin(ingress, path, problem))


def _sent(ingress: Ingress, path: IngressPath, location: Location) -> HttpRoute:
    """Return a route that sends clients elsewhere: to the very URL, or with their path and query to another host."""
    if not location.keeps_request:
        return HttpRoute(
            Match(path.match),
            DirectResponse(location.status),
            response=HeaderChanges(set=(("location", location.url),)),
            origin=_origin(ingress, path),
        )
    return HttpRoute(Match(path.match), location.redirect, origin=_origin(ingress, path))
