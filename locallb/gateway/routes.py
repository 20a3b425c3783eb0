"""Translates the routes of one port into the hosts that a proxy serves there, and finds their backends.

A request belongs to the most specific listener of its host, and to no other one (listener isolation); there the routes
with the more specific hostname come first. With TLS the name in the client's hello decides, and a request for a host of
another listener is misdirected. An invalid BackendTLSPolicy is no fault of a route, but its backends get no clear text
instead.

Not here: ports, TLS and TCP (`translation`), addresses and endpoints (`planning.gateways`, `planning.backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.gateway.attachment import Attached
from locallb.gateway.backend_tls import BackendTlsPolicies, policy_failure
from locallb.gateway.listeners import MAX_GATEWAY_AUTHORITIES, Grants, covering, not_permitted, specificity
from locallb.model.faults import Fault
from locallb.model.gateway_objects import (
    BackendRef,
    GatewayRoute,
    Named,
    PlacedMatch,
    Rank,
    Reference,
    RouteKind,
    RouteRule,
    ordered,
    rank_among_others,
)
from locallb.model.gateway_of_cluster import BackendService, GatewayObjects
from locallb.model.http_routes import DirectResponse, Forward, HttpRoute, Match, Mirror, Origin, Redirect, Target
from locallb.model.http_serving import ANY, BackendTls, Certificate, Chain, HttpRoutes, Speaks, VirtualHost
from locallb.model.identities import ObjectKey, Protocol, UpstreamName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Service, ServicePort
from locallb.model.reasons import UNSUPPORTED, Failure
from locallb.model.texts import digest, part_id


class Bound(Struct, frozen=True, kw_only=True):
    """Requests to a proxy of a Gateway, or of Ingresses that share an address: the common result of binding either."""

    want: Service
    """As it is planned. If nothing can be served it has ports only if it keeps its address all the same."""
    chains: Mapping[int, tuple[Chain, ...]] = field(default_factory=dict)
    """Chains of TCP ports."""
    datagrams: Mapping[int, tuple[Target, ...]] = field(default_factory=dict)
    """Targets of UDP ports."""
    targets: Mapping[UpstreamName, BackendTarget] = field(default_factory=dict)
    """The upstreams, by name."""
    failure: Failure | None = None
    """The reason that nothing of it can be served."""

    @property
    def is_placed(self) -> bool:
        """Return whether it has an address: as long as it may be served again without a change of its own."""
        return self.failure is None or bool(self.want.ports)

    @property
    def key(self) -> ObjectKey:
        """The key of what it serves: of a Gateway, an Ingress, or a class of these."""
        return self.want.key

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The names that its rules are for, `*.` and a name among them."""
        return ()

    @property
    def refused_listeners(self) -> tuple[str, ...]:
        """The listeners of its own that aren't served although others are: a sentence each, with the reason."""
        return ()

    @property
    def faults(self) -> Mapping[str, Fault]:
        """Return the faults ordered by annotations of its rules, by object; a fault of its own precedes them."""
        return {}

    @property
    def prefix(self) -> str:
        """The prefix of the names of its upstreams, which no other one has."""
        return upstream_prefix(self.key)


def upstream_prefix(key: ObjectKey) -> str:
    """Return what the names of an object's upstreams begin with."""
    return f"{part_id(key)}-"


_SPOKEN = {"kubernetes.io/h2c": Speaks.HTTP2, "kubernetes.io/ws": Speaks.HTTP1}
"""Values of appProtocol that Kubernetes defines and that are served without TLS."""
_BY_TLS = ("kubernetes.io/wss",)
"""Application protocols over TLS, as a BackendTLSPolicy (GEP-1911) or an annotation of an Ingress configures it."""
_OF_REQUESTS = frozenset({RouteKind.HTTP, RouteKind.GRPC})


class BackendTarget(NamedTuple):
    """A port of a Service, and how it is spoken to."""

    service: ObjectKey
    port: ServicePort
    speaks: Speaks | None = None
    """None where it gets bytes or datagrams and no requests."""
    tls: BackendTls | None = None
    app_protocol: str = ""
    """The appProtocol of its port, if it has one."""

    @property
    def named(self) -> Named:
        """The Service in its cluster."""
        return Named(self.service.namespace, self.service.name)

    @property
    def name(self) -> str:
        """The name of its upstream, which becomes a file's: nothing in it comes from a cluster."""
        stated = [str(self.service), str(self.port), self.speaks, bool(self.tls)]
        return f"to-{digest(stated)[:12]}"


class Backends:
    """Finds the backends of one cluster's routes."""

    def __init__(self, objects: GatewayObjects) -> None:
        self.objects = objects
        self._grants = Grants(objects.grants)
        self.policies = BackendTlsPolicies(objects)

    def target(self, route: GatewayRoute, ref: BackendRef) -> BackendTarget | Failure:
        """Return the target of a route's reference, or the reason that it has none."""
        if (ref.group, ref.kind) != ("", "Service"):
            return Failure("InvalidKind", f"{ref.group or 'core'}/{ref.kind} {ref} can't be a backend; name a Service")
        key = Named(ref.namespace, ref.name)
        if not self._grants.allow(route.reference, Reference("", "Service", key)):
            return not_permitted(route.reference, Reference("", "Service", key))
        service = self.objects.services.get(key)
        if service is None:
            return Failure("BackendNotFound", f"Service {key} isn't there; make it, or correct backendRefs")
        if service.uses_name:
            why = f"Service {key} is of type ExternalName, to which routes may not lead; name another one"
            return Failure("InvalidKind", why)
        return self._port(route, ref, service)

    def served(self, target: BackendTarget) -> BackendTarget | Failure:
        """Return a target with the TLS that its policy requires, or why it may not be connected to."""
        policy = self.policies.of(target.named, target.port.name)
        if policy is None:
            return _unspoken(target) or target
        tls = self.policies.made(policy).tls
        if isinstance(tls, Failure):
            return policy_failure(policy, tls)
        unspoken = None if target.app_protocol in _BY_TLS else _unspoken(target)
        return unspoken or target._replace(tls=tls)

    def failures(self, route: GatewayRoute, *, opened: bool = False) -> Iterator[Failure]:
        """Return the reasons that references of a route can't be resolved, in order; `opened` as in `Upstreams.found`.

        An unsupported policy is such a reason: then the backend gets nothing.
        """
        for target in self._targets(route):
            by_policy = isinstance(target, BackendTarget) and (opened or target.speaks is not None)
            served = self.served(target) if by_policy and isinstance(target, BackendTarget) else target
            if isinstance(served, Failure):
                yield served

    def own_failures(self, route: GatewayRoute) -> Iterator[Failure]:
        """Yield troubles except those of policies, which are reported once for all routes."""
        for target in self._targets(route):
            if isinstance(target, Failure):
                yield target
            elif not self.policies.of(target.named, target.port.name) and (unspoken := _unspoken(target)):
                yield unspoken

    def _targets(self, route: GatewayRoute) -> Iterator[BackendTarget | Failure]:
        for rule in route.rules:
            for ref in rule.references:
                yield self.target(route, ref)

    def unused_policies(self, route: GatewayRoute) -> Iterator[str]:
        """Return the policies of backends that get unchanged bytes, where they have no effect."""
        for ref in (ref for rule in route.rules for ref in rule.backends):
            target = self.target(route, ref)
            if isinstance(target, BackendTarget) and (policy := self.policies.of(target.named, target.port.name)):
                yield f"BackendTLSPolicy {policy.meta.key} is for Service {target.named}, which gets bytes as they come"

    def _port(self, route: GatewayRoute, ref: BackendRef, service: BackendService) -> BackendTarget | Failure:
        protocol = Protocol.UDP if route.kind is RouteKind.UDP else Protocol.TCP
        for port, spoken in zip(service.ports, service.protocols, strict=True):
            if (port.port, port.protocol) == (ref.port, protocol):
                return self._spoken(route, service.key, port, spoken)
        why = f"Service {service.key} has no {protocol} port {ref.port or '(none is given)'}"
        return Failure("BackendNotFound", f"{why}; correct the port of backendRefs")

    def _spoken(self, route: GatewayRoute, key: Named, port: ServicePort, spoken: str) -> BackendTarget:
        target = BackendTarget(ObjectKey(self.objects.cluster, *key), port)
        if route.kind not in _OF_REQUESTS:
            return target
        speaks = Speaks.HTTP2 if route.kind is RouteKind.GRPC else _SPOKEN.get(spoken, Speaks.HTTP1)
        return target._replace(speaks=speaks, app_protocol=spoken)


def _unspoken(target: BackendTarget) -> Failure | None:
    """Return why a backend can't be spoken to without a policy, by its appProtocol."""
    spoken, where = target.app_protocol, f"Service {target.named} port {target.port.port}"
    if spoken in _BY_TLS:
        why = f"{where} has the appProtocol {spoken}, and no BackendTLSPolicy says how TLS is done; make one for it"
        return Failure("UnsupportedProtocol", why)
    if spoken.startswith("kubernetes.io/") and spoken not in _SPOKEN:
        why = f"{where} has the appProtocol {spoken}, which isn't served"
        return Failure("UnsupportedProtocol", f"{why}; use one of {', '.join((*_SPOKEN, *_BY_TLS))}")
    return None


class Resolved(NamedTuple):
    """What a reference leads to, whatever else the proxy reaches."""

    name: UpstreamName
    """Of the upstream; empty where there is none."""
    target: BackendTarget | Failure
    by_policy: Named | None = None
    """The Service, where policies apply to it."""


class Upstreams:
    """The upstreams of one Gateway, gathered while its routes are translated."""

    def __init__(
        self, backends: Backends, prefix: str, client: Certificate | None = None, memory: AnyMemo | None = None
    ) -> None:
        """Start empty; TLS backends are shown the certificate `client`, if any. `memory` caches translations."""
        self._backends, self._prefix, self._client = backends, prefix, client
        self.memory: AnyMemo = memory or Memo()
        self.targets: dict[UpstreamName, BackendTarget] = {}
        self.services: set[Named] = set()
        self.without_room: dict[Named, str] = {}
        """Reasons that Services aren't reached although their policies are supported."""
        self._remaining = MAX_GATEWAY_AUTHORITIES

    def found(self, route: GatewayRoute, ref: BackendRef, *, opened: bool = False) -> UpstreamName | Failure:
        """Return the name of a backend's upstream, or why the reference can't be resolved.

        `opened` are bytes with TLS terminated here; a client may have encrypted others itself.
        """
        return self.admit(self.resolve(route, ref, opened=opened))

    def resolve(
        self,
        route: GatewayRoute,
        ref: BackendRef,
        change: Callable[[BackendTarget], BackendTarget] = lambda target: target,
        *,
        opened: bool = False,
    ) -> Resolved:
        """Find the backend of a reference; `change` is applied to its target first."""
        intended = self._backends.target(route, ref)
        if isinstance(intended, Failure):
            return Resolved(UpstreamName(""), intended)
        by_policy = intended.named if opened or intended.speaks is not None else None
        target = self._backends.served(change(intended)) if by_policy else intended
        if isinstance(target, Failure):
            return Resolved(UpstreamName(""), target, by_policy)
        name = UpstreamName(f"{self._prefix}{target.name}")
        tls = replace(target.tls, client=self._client) if target.tls else None
        return Resolved(name, target._replace(tls=tls), by_policy)

    def resolved(self, route: GatewayRoute) -> Mapping[BackendRef, Resolved]:
        """Find the backends of all references of a route of HTTP, in order; they depend on no other route."""

        def find(route: GatewayRoute, *_: object) -> Mapping[BackendRef, Resolved]:
            return {ref: self.resolve(route, ref) for rule in route.rules for ref in _needed(rule)}

        found: Mapping[BackendRef, Resolved] = self.memory.of(
            ("resolved", route.reference), find, route, self._backends.objects, self._client
        )
        return found

    def admit(self, resolved: Resolved) -> UpstreamName | Failure:
        """Add an upstream if there is room for its authorities; return its name, or why there is none."""
        name, target, by_policy = resolved
        if by_policy:
            self.services.add(by_policy)
        if isinstance(target, Failure):
            return target
        if name not in self.targets:
            size = len(target.tls.authorities) if target.tls else 0
            if size > self._remaining:
                why = self.without_room[target.named] = _without_room(target.named)
                return Failure(UNSUPPORTED, why)
            self._remaining -= size
            self.targets[name] = target
        return name


def _without_room(service: Named) -> str:
    limit = f"{MAX_GATEWAY_AUTHORITIES >> 20} MiB"
    why = f"with its authorities those of all backends of this proxy would be more than {limit}"
    return f"Service {service} isn't spoken to: {why}; name smaller bundles in caCertificateRefs"


MISDIRECTED = DirectResponse(421)
"""To clients that reuse a connection for a host that it doesn't serve: they then open another one."""
REFUSED = DirectResponse(500)
"""To requests of an unserved rule, as the API specifies for unsupported filters: no other rule gets them."""


class Hosted(NamedTuple):
    """A listener's hostname, and what is attached to it."""

    hostname: str
    attached: Sequence[Attached]
    port: int
    name: str
    """Of the listener."""


def http_routes(hosted: Iterable[Hosted], upstreams: Upstreams) -> HttpRoutes:
    """Return the hosts of listeners that share a port."""
    by_listener = list(hosted)
    return HttpRoutes(tuple(host for listener in by_listener for host in _hosts(listener, by_listener, upstreams)))


def https_routes(mine: Hosted, others: Iterable[Hosted], upstreams: Upstreams) -> HttpRoutes:
    """Return the hosts of a listener that is found by SNI, where requests for hosts of `others` are misdirected.

    Those for a host that no listener has are answered 404.
    """
    other_listeners = list(others)
    hosts = _hosts(mine, (mine, *other_listeners), upstreams)
    elsewhere = [other.hostname or ANY for other in other_listeners]
    misdirected = VirtualHost(tuple(elsewhere), (HttpRoute(Match(), MISDIRECTED),)) if elsewhere else None
    return HttpRoutes((*hosts, *([misdirected] if misdirected else [])))


def _hosts(listener: Hosted, other_listeners: Sequence[Hosted], upstreams: Upstreams) -> Iterator[VirtualHost]:
    """Return the hosts of one listener, except the ones of another, more specific listener."""
    served = {id(attached.route): _served(attached.route, upstreams) for attached in listener.attached}
    routes_by_name: dict[str, list[_Served]] = {listener.hostname: []}
    for attached in listener.attached:
        for name in attached.names:
            routes_by_name.setdefault(name, []).append(served[id(attached.route)])
    homes: dict[str, Hosted] = {}
    for each in other_listeners:
        homes.setdefault(each.hostname, each)
    for name in sorted(routes_by_name, key=lambda name: (specificity(name), name)):
        names = covering(name)
        if next(homes[wider] for wider in names if wider in homes) is listener:
            nearest: dict[int, tuple[str, _Served]] = {}
            for wider in names:
                for each_served in routes_by_name.get(wider, ()):
                    nearest.setdefault(id(each_served), (wider, each_served))
            key = ("host", listener.port, listener.hostname, name)
            yield upstreams.memory.of(key, _host, name, tuple(nearest.values()), listener.name)


class _Served(Struct, frozen=True):
    """The rules of one route, as the proxy has them."""

    namespace: str
    matches: tuple[tuple[tuple[Rank, Rank], tuple[Any, ...], HttpRoute], ...]
    """Ranks among matches of its own namespace and of others, the order among equal ones, and what is served."""


def _served(route: GatewayRoute, upstreams: Upstreams) -> _Served:
    """Translate a route, once for all of its hosts."""
    admitted = {ref: upstreams.admit(to) for ref, to in upstreams.resolved(route).items()}
    served: _Served = upstreams.memory.of(("served", route.reference), _translated, route, admitted)
    return served


def _needed(rule: RouteRule) -> Iterator[BackendRef]:
    """Yield the references of a rule of which a proxy needs upstreams: none with weight 0 or beside an answer."""
    if not rule.problem and not rule.filters.redirect:
        yield from (ref for ref in rule.backends if ref.weight)
        yield from (mirror.backend for mirror in rule.filters.mirrors)


def _translated(route: GatewayRoute, upstreams: Mapping[BackendRef, UpstreamName | Failure]) -> _Served:
    """Translate a route with the upstream of each reference, or why there is none."""
    key = route.meta.key
    matches = [
        ((rank, rank_among_others(served.match, rank)), (route.meta.age, number, place), served)
        for number, rule in enumerate(route.rules)
        for origin in [Origin(route.kind, *key, f"rule {rule.name or number + 1}", rule.problem)]
        for place, (rank, served) in enumerate(_matches(rule, origin, route.meta.failing, upstreams))
    ]
    return _Served(route.meta.key.namespace, tuple(matches))


def _matches(
    rule: RouteRule, origin: Origin, fault: Fault | None, upstreams: Mapping[BackendRef, UpstreamName | Failure]
) -> Iterator[tuple[Rank, HttpRoute]]:
    if rule.problem:
        yield from ((rank, HttpRoute(match, REFUSED, origin=origin)) for match, rank in rule.ranked)
        return
    action, filters = _action(rule, upstreams), rule.filters
    for match, rank in rule.ranked:
        yield rank, HttpRoute(match, action, filters.request, filters.response, filters.cors, (), fault, origin)


def target_of(ref: BackendRef, upstream: UpstreamName | Failure) -> Target:
    """Make the share of a reference, which leads to an upstream, or why it leads to none."""
    name, why = (UpstreamName(""), upstream.message) if isinstance(upstream, Failure) else (upstream, "")
    return Target(name, ref.weight, ref.request, ref.response, str(ref), why)


def _action(rule: RouteRule, upstreams: Mapping[BackendRef, UpstreamName | Failure]) -> Forward | Redirect:
    filters = rule.filters
    if filters.redirect:
        return filters.redirect
    targets = tuple(target_of(backend, upstreams[backend]) for backend in rule.backends if backend.weight)
    mirrors = [(upstreams[mirror.backend], mirror) for mirror in filters.mirrors]
    return Forward(
        targets,
        filters.hostname,
        filters.path,
        tuple(
            Mirror(name, mirror.per_million, str(mirror.backend))
            for name, mirror in mirrors
            if not isinstance(name, Failure)
        ),
        rule.timeout,
        rule.attempt_timeout,
        rule.retry,
        rule.session,
    )


def _host(name: str, nearest: Iterable[tuple[str, _Served]], listener: str) -> VirtualHost:
    """Make a host of the routes that take its requests, each with its nearest hostname that covers `name`.

    They come in the order in which they are asked, up to a refusal of everything.
    """
    matches = [
        PlacedMatch(
            route.namespace,
            (specificity(theirs), own, *order),
            (specificity(theirs), among_others, *order),
            match.match.method,
            (theirs, match),
        )
        for theirs, route in nearest
        for (own, among_others), order, match in route.matches
    ]
    served, hostnames = [], []
    for (theirs, match), is_refused in ordered(matches):
        served.append(HttpRoute(match.match, REFUSED, origin=refused_origin(match.origin)) if is_refused else match)
        hostnames.append(theirs)
        if (match.match, match.action) == (Match(), REFUSED):
            break
    return VirtualHost((name or ANY,), tuple(served), listener, tuple(hostnames))


def refused_origin(origin: Origin | None) -> Origin | None:
    """Return the origin of a route that is refused because an unserved one of its namespace precedes it."""
    why = "its requests are those of a part of its namespace that isn't served"
    return replace(origin, problem=why) if origin else None
