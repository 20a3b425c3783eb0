"""Backend references: the Service port that each means, and the protocol and TLS to reach it.

An invalid policy is no fault of a route, but its backends get no clear text instead. Not here: the endpoints of a
Service (`planning.backends`), and the answer to requests without a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from locallb.gateway.backend_tls.policies import Policies
from locallb.gateway.backend_tls.validation import policy_failure
from locallb.gateway.conditions import UNSUPPORTED, Failure
from locallb.gateway.grants import Grants, not_permitted
from locallb.gateway.listeners.capacity import MAX_GATEWAY_AUTHORITIES
from locallb.model.gateway.objects import Named, Reference, Route, RouteKind
from locallb.model.gateway.of_cluster import BackendService, GatewayObjects
from locallb.model.gateway.rules import BackendRef
from locallb.model.http.backends import BackendTls, Speaks
from locallb.model.http.serving import Certificate
from locallb.model.identities import ObjectKey, Protocol, UpstreamName
from locallb.model.naming import digest
from locallb.model.objects import ServicePort

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
        self._objects = objects
        self._grants = Grants(objects.grants)
        self.policies = Policies(objects)

    def target(self, route: Route, ref: BackendRef) -> BackendTarget | Failure:
        """Return the target of a route's reference, or the reason that it has none."""
        if (ref.group, ref.kind) != ("", "Service"):
            return Failure("InvalidKind", f"{ref.group or 'core'}/{ref.kind} {ref} can't be a backend; name a Service")
        key = Named(ref.namespace, ref.name)
        if not self._grants.allow(route.reference, Reference("", "Service", key)):
            return not_permitted(route.reference, Reference("", "Service", key))
        service = self._objects.services.get(key)
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

    def failures(self, route: Route, *, opened: bool = False) -> Iterator[Failure]:
        """Return the reasons that references of a route can't be resolved, in order; `opened` as in `Upstreams.name`.

        An unsupported policy is such a reason: then the backend gets nothing.
        """
        for target in self._targets(route):
            by_policy = isinstance(target, BackendTarget) and (opened or target.speaks is not None)
            served = self.served(target) if by_policy and isinstance(target, BackendTarget) else target
            if isinstance(served, Failure):
                yield served

    def own_failures(self, route: Route) -> Iterator[Failure]:
        """Yield troubles except those of policies, which are reported once for all routes."""
        for target in self._targets(route):
            if isinstance(target, Failure):
                yield target
            elif not self.policies.of(target.named, target.port.name) and (unspoken := _unspoken(target)):
                yield unspoken

    def _targets(self, route: Route) -> Iterator[BackendTarget | Failure]:
        for rule in route.rules:
            for ref in (*rule.backends, *(mirror.backend for mirror in rule.filters.mirrors)):
                yield self.target(route, ref)

    def unused_policies(self, route: Route) -> Iterator[str]:
        """Return the policies of backends that get unchanged bytes, where they have no effect."""
        for ref in (ref for rule in route.rules for ref in rule.backends):
            target = self.target(route, ref)
            if isinstance(target, BackendTarget) and (policy := self.policies.of(target.named, target.port.name)):
                yield f"BackendTLSPolicy {policy.meta.key} is for Service {target.named}, which gets bytes as they come"

    def _port(self, route: Route, ref: BackendRef, service: BackendService) -> BackendTarget | Failure:
        protocol = Protocol.UDP if route.kind is RouteKind.UDP else Protocol.TCP
        for port, spoken in zip(service.ports, service.protocols, strict=True):
            if (port.port, port.protocol) == (ref.port, protocol):
                return self._spoken(route, service.key, port, spoken)
        why = f"Service {service.key} has no {protocol} port {ref.port or '(none is given)'}"
        return Failure("BackendNotFound", f"{why}; correct the port of backendRefs")

    def _spoken(self, route: Route, key: Named, port: ServicePort, spoken: str) -> BackendTarget:
        target = BackendTarget(ObjectKey(self._objects.cluster, *key), port)
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


class Upstreams:
    """The upstreams of one Gateway, gathered while its routes are translated."""

    def __init__(self, backends: Backends, prefix: str, client: Certificate | None = None) -> None:
        """Gather them; by TLS they are shown `client`, if there is one."""
        self._backends, self._prefix, self._client = backends, prefix, client
        self.targets: dict[UpstreamName, BackendTarget] = {}
        self.services: set[Named] = set()
        """Start empty; TLS backends are shown the certificate `client`, if any."""
        self.without_room: dict[Named, str] = {}
        """Reasons that Services aren't reached although their policies are supported."""
        self._remaining = MAX_GATEWAY_AUTHORITIES

    def name(self, route: Route, ref: BackendRef, *, opened: bool = False) -> UpstreamName:
        """Return the name of a backend's upstream; empty if the reference can't be resolved.

        `opened` are bytes with TLS terminated here; a client may have encrypted others itself.
        """
        upstream = self.find(route, ref, opened=opened)
        return UpstreamName("") if isinstance(upstream, Failure) else upstream

    def find(
        self,
        route: Route,
        ref: BackendRef,
        change: Callable[[BackendTarget], BackendTarget] = lambda target: target,
        *,
        opened: bool = False,
    ) -> UpstreamName | Failure:
        """Return the name of a backend's upstream, or why there is none; `change` is applied to its target first."""
        intended = self._backends.target(route, ref)
        if isinstance(intended, Failure):
            return intended
        by_policy = opened or intended.speaks is not None
        self.services |= {intended.named} if by_policy else set()
        target = self._backends.served(change(intended)) if by_policy else intended
        if isinstance(target, Failure):
            return target
        name = UpstreamName(f"{self._prefix}{target.name}")
        if name not in self.targets and target.tls:
            size = len(target.tls.authorities)
            if size > self._remaining:
                why = self.without_room[target.named] = _without_room(target.named)
                return Failure(UNSUPPORTED, why)
            self._remaining -= size
        tls = replace(target.tls, client=self._client) if target.tls else None
        self.targets[name] = target._replace(tls=tls)
        return name


def _without_room(service: Named) -> str:
    limit = f"{MAX_GATEWAY_AUTHORITIES >> 20} MiB"
    why = f"with its authorities those of all backends of this proxy would be more than {limit}"
    return f"Service {service} isn't spoken to: {why}; name smaller bundles in caCertificateRefs"
