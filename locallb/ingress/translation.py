"""From Ingresses that have an address together to what is served there, and what is told of what isn't.

They are planned as one Service is, as a Gateway is; nothing here knows addresses, endpoints or this host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from locallb.config.ingress_settings import IngressSettings
from locallb.config.settings import Settings
from locallb.gateway.backends import Backends, BackendTarget, Upstreams
from locallb.gateway.bound import Bound, upstream_prefix
from locallb.gateway.capacity import MOST_ENTRIES
from locallb.ingress.classes import grouped
from locallb.ingress.hosts import Action, Hosts, within_bounds
from locallb.ingress.tls import certificates, chains
from locallb.model.formatting import clipped
from locallb.model.gateway.ingresses import Ingress, IngressBackend
from locallb.model.gateway.objects import Named, Route, RouteKind
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.gateway.rules import BackendRef
from locallb.model.http.routes import Answer, Forward, Target
from locallb.model.http.serving import Chain
from locallb.model.identities import ObjectKey, ObjectKind, Uid
from locallb.model.memory import Memory
from locallb.model.objects import EMPTY, Service, ServicePort
from locallb.model.snapshot import LocalAuthority

_UNAVAILABLE = 503
"""What is answered where a backend leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundIngresses(Bound):
    """Ingresses that have an address together, the oldest first."""

    ingresses: tuple[Ingress, ...]
    notices: tuple[str, ...] = ()
    """What of them isn't served."""

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Those of rules and of TLS, the oldest Ingress' first."""
        return tuple(dict.fromkeys(host for one in self.ingresses for host in one.hosts))


def bind_ingresses(
    objects: GatewayObjects,
    settings: Settings,
    memory: Memory[Any] | None = None,
    authority: LocalAuthority | None = None,
) -> tuple[BoundIngresses, ...]:
    """Bind all that a cluster has; `memory` has those that were bound before.

    `authority` makes certificates for hosts without a Secret; None: those aren't served by TLS.
    """
    memory = memory or Memory()
    shared = replace(
        objects, classes=(), gateways=(), listener_sets=(), routes=(), ingresses=(), ingress_classes=(), namespaces={}
    )
    return tuple(
        memory.of(key, _bound, key, ingresses, shared, settings.ingress, authority)
        for key, ingresses in sorted(grouped(objects, settings).items())
    )


def _bound(
    key: ObjectKey,
    ingresses: Sequence[Ingress],
    shared: GatewayObjects,
    settings: IngressSettings,
    authority: LocalAuthority | None,
) -> BoundIngresses:
    backends, ingresses = _Backends(shared, key), tuple(within_bounds(ingresses, MOST_ENTRIES))
    hosts = Hosts.of([one for one in ingresses if not one.problem], backends.action)
    shown = certificates([one for one in ingresses if not one.problem], shared, authority)
    by_port: dict[int, tuple[Chain, ...]] = {settings.http: (Chain(hosts.table(hosts.names)),)}
    if shown.by_name:
        by_port[settings.https] = tuple(chains(shown, hosts))
    troubles = [*_problems(ingresses), *backends.troubles]
    troubles += [
        (one, f"{host or 'every host'}{path}: the older {_named(other)} has it; remove one of both")
        for one, host, path, other in hosts.conflicts
    ]
    troubles += shown.problems
    said = (f"{key.cluster}: {_named(one)}: {why}" for one, why in troubles)
    return BoundIngresses(
        want=_want(key, ingresses, tuple(map(ServicePort, by_port))),
        chains=by_port,
        targets=backends.targets,
        ingresses=tuple(ingresses),
        notices=tuple(dict.fromkeys(said)),
    )


def _want(key: ObjectKey, ingresses: Sequence[Ingress], ports: tuple[ServicePort, ...]) -> Service:
    """Make the Service as which they are planned; labels count where there is but one Ingress of the address."""
    alone = ingresses[0].meta if key.kind is ObjectKind.INGRESS else None
    labels, annotations = (alone.labels, alone.annotations) if alone else (EMPTY, EMPTY)
    created = min(one.meta.created for one in ingresses)
    uid = alone.uid if alone else Uid("")
    return Service(key, ports, uid, created, labels=labels, annotations=annotations)


def _named(ingress: Ingress) -> str:
    return f"Ingress {clipped(str(ingress.meta.key))}"


def _problems(ingresses: Sequence[Ingress]) -> Iterator[tuple[Ingress, str]]:
    """Return what can't be understood of Ingresses."""
    for one in ingresses:
        if one.problem:
            yield one, one.problem
        yield from ((one, why) for why in one.refused)
        for rule in () if one.problem else one.rules:
            yield from ((one, why) for why in (rule.problem, *(path.problem for path in rule.paths)) if why)


class _Backends:
    """What becomes of requests to backends, and the upstreams that it takes."""

    def __init__(self, objects: GatewayObjects, key: ObjectKey) -> None:
        self._objects = objects
        self._upstreams = Upstreams(Backends(objects), upstream_prefix(key))
        self.troubles: list[tuple[Ingress, str]] = []

    @property
    def targets(self) -> dict[str, BackendTarget]:
        return self._upstreams.targets

    def action(self, ingress: Ingress, backend: IngressBackend) -> Action:
        """Return what becomes of requests; a backend that leads nowhere answers that it is unavailable."""
        port = self._port(ingress, backend)
        if isinstance(port, int):
            route = Route(RouteKind.HTTP, ingress.meta)
            ref = BackendRef("", "Service", ingress.meta.key.namespace, backend.service, port)
            upstream = self._upstreams.find(route, ref)
            if isinstance(upstream, str):
                return Forward((Target(upstream),))
            port = upstream.message
        self.troubles.append((ingress, port))
        return Answer(_UNAVAILABLE)

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
