"""The backends of Ingresses and their upstreams. Not here: which requests go there (`rules`)."""

from __future__ import annotations

from functools import partial

from locallb.gateway.routes.backends import Backends, BackendTarget, Upstreams
from locallb.gateway.routes.bound import upstream_prefix
from locallb.ingress.annotations.policy import BackendProtocol
from locallb.model.formatting import clipped
from locallb.model.gateway.ingresses import Ingress, IngressBackend
from locallb.model.gateway.objects import Named, Route, RouteKind
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.gateway.rules import BackendRef
from locallb.model.http.backends import BackendTls
from locallb.model.identities import ObjectKey, UpstreamName

_ANY_CLIENT = BackendTls("", believes_all=True)


class IngressBackends:
    """Finds backends, and records unresolved references."""

    def __init__(self, objects: GatewayObjects, key: ObjectKey) -> None:
        self._objects = objects
        self._upstreams = Upstreams(Backends(objects), upstream_prefix(key))
        self.failures: list[tuple[Ingress, str]] = []

    @property
    def targets(self) -> dict[UpstreamName, BackendTarget]:
        """The upstreams, by name."""
        return self._upstreams.targets

    def upstream(
        self, ingress: Ingress, backend: IngressBackend, spoken: BackendProtocol | None = None
    ) -> UpstreamName:
        """Return the name of a backend's upstream; empty if it can't be resolved."""
        port = self._port(ingress, backend)
        if isinstance(port, int):
            route = Route(RouteKind.HTTP, ingress.meta)
            ref = BackendRef("", "Service", ingress.meta.key.namespace, backend.service, port)
            upstream = self._upstreams.find(route, ref, partial(_spoken, spoken=spoken))
            if isinstance(upstream, str):
                return upstream
            port = upstream.message
        self.failures.append((ingress, port))
        return UpstreamName("")

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
