"""Which port of which Service a reference to a backend means, and how that is spoken to.

Not here: which endpoints are behind a Service (`planning.backends`), nor what is answered where a reference leads
nowhere (`translation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from locallb.gateway.conditions import Trouble
from locallb.gateway.grants import Grants
from locallb.gateway.listeners import not_permitted
from locallb.model.gateway.objects import BackendTlsPolicy, Named, Reference, Route, RouteKind
from locallb.model.gateway.of_cluster import BackendService, GatewayObjects
from locallb.model.gateway.rules import BackendRef
from locallb.model.http.serving import BackendTls, Speaks
from locallb.model.identities import ObjectKey, Protocol
from locallb.model.naming import digest
from locallb.model.objects import ServicePort

_SPOKEN = {"kubernetes.io/h2c": Speaks.HTTP2, "kubernetes.io/ws": Speaks.HTTP1}
"""Values of appProtocol that Kubernetes defines and that are served."""


class BackendTarget(NamedTuple):
    """A port of a Service, and how it is spoken to."""

    service: ObjectKey
    port: ServicePort
    speaks: Speaks | None = None
    """None where it gets bytes or datagrams and no requests."""
    tls: BackendTls | None = None

    @property
    def name(self) -> str:
        """The name of its upstream, which becomes a file's: nothing in it comes from a cluster."""
        said = [str(self.service), str(self.port), self.speaks, bool(self.tls)]
        return f"to-{digest(said)[:12]}"


class Backends:
    """Finds the backends of one cluster's routes."""

    def __init__(self, objects: GatewayObjects) -> None:
        self._objects = objects
        self._grants = Grants(objects.grants)
        self._policies: dict[Named, list[BackendTlsPolicy]] = {}
        for policy in sorted(objects.policies, key=lambda policy: policy.meta.age):
            for _group, kind, name, _section in policy.targets:
                if kind == "Service":
                    self._policies.setdefault(Named(policy.meta.key.namespace, name), []).append(policy)

    def target(self, route: Route, ref: BackendRef) -> BackendTarget | Trouble:
        """Return what a reference of a route means, or why it leads nowhere."""
        if (ref.group, ref.kind) != ("", "Service"):
            return Trouble("InvalidKind", f"{ref.group or 'core'}/{ref.kind} {ref} can't be a backend; name a Service")
        key = Named(ref.namespace, ref.name)
        if not self._grants.allow(route.reference, Reference("", "Service", key)):
            return not_permitted(route.reference, Reference("", "Service", key))
        service = self._objects.services.get(key)
        if service is None:
            return Trouble("BackendNotFound", f"Service {key} isn't there; make it, or correct backendRefs")
        if service.uses_name:
            why = f"Service {key} is of type ExternalName, to which routes may not lead; name another one"
            return Trouble("InvalidKind", why)
        return self._port(route, ref, service)

    def troubles(self, route: Route) -> Iterator[Trouble]:
        """Return why references of a route lead nowhere, in order."""
        for rule in route.rules:
            for ref in (*rule.backends, *(mirror.backend for mirror in rule.filters.mirrors)):
                target = self.target(route, ref)
                if isinstance(target, Trouble):
                    yield target

    def _port(self, route: Route, ref: BackendRef, service: BackendService) -> BackendTarget | Trouble:
        protocol = Protocol.UDP if route.kind is RouteKind.UDP else Protocol.TCP
        for port, spoken in zip(service.ports, service.protocols, strict=True):
            if (port.port, port.protocol) == (ref.port, protocol):
                return self._spoken(route, service.key, port, spoken)
        why = f"Service {service.key} has no {protocol} port {ref.port or '(none is given)'}"
        return Trouble("BackendNotFound", f"{why}; correct the port of backendRefs")

    def _spoken(self, route: Route, key: Named, port: ServicePort, spoken: str) -> BackendTarget | Trouble:
        if spoken.startswith("kubernetes.io/") and spoken not in _SPOKEN:
            why = f"Service {key} port {port.port} has the appProtocol {spoken}, which isn't served"
            return Trouble("UnsupportedProtocol", f"{why}; use one of {', '.join(_SPOKEN)}")
        target = BackendTarget(ObjectKey(self._objects.cluster, *key), port)
        if route.kind not in {RouteKind.HTTP, RouteKind.GRPC}:
            return target
        speaks = Speaks.HTTP2 if route.kind is RouteKind.GRPC else _SPOKEN.get(spoken, Speaks.HTTP1)
        target, policy = target._replace(speaks=speaks), self._policy(key, port)
        if policy is None:
            return target
        tls = backend_tls(policy)
        return tls if isinstance(tls, Trouble) else target._replace(tls=tls)

    def _policy(self, key: Named, port: ServicePort) -> BackendTlsPolicy | None:
        """Return the policy of a Service's port: one for this very port first, then the oldest."""
        by_section = {
            section: policy
            for policy in reversed(self._policies.get(key, ()))
            for _group, kind, name, section in policy.targets
            if (kind, name) == ("Service", key.name)
        }
        return by_section.get(port.name) or by_section.get("")


class Upstreams:
    """The upstreams of one Gateway, gathered while its routes are translated."""

    def __init__(self, backends: Backends, prefix: str) -> None:
        self._backends, self._prefix = backends, prefix
        self.targets: dict[str, BackendTarget] = {}

    def name(self, route: Route, ref: BackendRef) -> str:
        """Return the name of a backend's upstream; empty where the reference leads nowhere."""
        target = self._backends.target(route, ref)
        if isinstance(target, Trouble):
            return ""
        name = f"{self._prefix}{target.name}"
        self.targets[name] = target
        return name


def backend_tls(policy: BackendTlsPolicy) -> BackendTls | Trouble:
    """Return what a policy asks for, or why that can't be had: then nobody is spoken to in clear text instead."""
    if policy.problem:
        return Trouble("Invalid", f"BackendTLSPolicy {policy.meta.key}: {policy.problem}")
    if policy.authorities or policy.well_known != "System":
        why = f"BackendTLSPolicy {policy.meta.key} names authorities that aren't read"
        return Trouble("NoValidCACertificate", f"{why}; use wellKnownCACertificates: System")
    try:
        return BackendTls(policy.hostname)
    except ValueError as error:
        return Trouble("Invalid", f"BackendTLSPolicy {policy.meta.key}: {error}")
