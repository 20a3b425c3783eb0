"""From Gateway API's objects to what each Gateway wants: addresses and ports, and what is served there.

Gateways are planned as Services are: what this makes of one is a `Service` of the model whose key names the kind, and
by port what the proxy serves. Nothing here knows addresses, endpoints or this host. Not here: hosts and routes
(`http_translation`), and what statuses say (`statuses`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from locallb.certificates import local
from locallb.gateway.attachment import Attached, Attachment, attach
from locallb.gateway.backends import Backends, Upstreams
from locallb.gateway.bound import Bound, upstream_prefix
from locallb.gateway.conditions import Trouble
from locallb.gateway.hostnames import covers, specificity
from locallb.gateway.http_translation import Hosted, http_routes, https_routes
from locallb.gateway.listeners import BoundListener, attached_sets, bound_listeners
from locallb.model.gateway.objects import (
    CONTROLLER,
    Gateway,
    GatewayClass,
    ListenerProtocol,
    ListenerSet,
    Reference,
    Route,
    TlsMode,
    WantedAddress,
)
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.http.routes import Target
from locallb.model.http.serving import Chain, TcpForward, Termination
from locallb.model.identities import Family, ObjectKey, ObjectKind, Protocol
from locallb.model.memory import Memory
from locallb.model.objects import FamilyPolicy, Service, ServicePort
from locallb.model.snapshot import LocalAuthority


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundGateway(Bound):
    """A Gateway of ours: what it wants, what is served, and all that its status is made from."""

    gateway: Gateway
    listeners: tuple[BoundListener, ...]
    sets: tuple[ListenerSet, ...]
    attachment: Attachment

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Those of the listeners that serve, and of the routes that are attached there."""
        serving = [(number, one.listener.hostname) for number, one in enumerate(self.listeners) if one.serves]
        attached = (
            (hostname, *(name for one in self.attachment.routes.get(number, ()) for name in one.names))
            for number, hostname in serving
        )
        return tuple(dict.fromkeys(name for names in attached for name in names if name))


def our_classes(objects: GatewayObjects, names: Collection[str] | None) -> tuple[GatewayClass, ...]:
    """Return the GatewayClasses that are served: those of our controller, of which `names` may choose."""
    return tuple(
        one for one in objects.classes if one.controller == CONTROLLER and (names is None or one.meta.key.name in names)
    )


def bind(
    objects: GatewayObjects,
    names: Collection[str] | None = None,
    memory: Memory[Any] | None = None,
    authority: LocalAuthority | None = None,
) -> tuple[BoundGateway, ...]:
    """Bind all that a cluster has, for the classes of these names (None: all of our controller).

    `authority` makes certificates for listeners that name none; None: those serve nothing. `memory` has those that were
    bound before: each is bound again for objects of its own, or what all share.
    """
    memory = memory or Memory()
    ours = {one.meta.key.name for one in our_classes(objects, names)}
    shared = shared_objects(objects, memory)
    by_parent: dict[Reference, dict[Reference, Route]] = {}
    for route in objects.routes:
        for parent in route.parents:
            by_parent.setdefault(Reference(parent.group, parent.kind, parent.key), {})[route.reference] = route
    bound = []
    for gateway in sorted(objects.gateways, key=lambda gateway: gateway.meta.key):
        if gateway.class_name in ours and not gateway.meta.deleting:
            sets = attached_sets(gateway, objects)
            owners = (gateway.reference, *(one.reference for one in sets))
            routes = {name: route for owner in owners for name, route in by_parent.get(owner, {}).items()}
            key = ObjectKey(objects.cluster, *gateway.meta.key, ObjectKind.GATEWAY)
            bound.append(memory.of(key, _bound, key, gateway, sets, tuple(routes.values()), shared, authority))
    return tuple(bound)


def shared_objects(objects: GatewayObjects, memory: Memory[Any]) -> GatewayObjects:
    """Return what routes and listeners of any Gateway may refer to: as one object for as long as it is equal."""
    shared = replace(objects, classes=(), gateways=(), listener_sets=(), routes=())
    same: GatewayObjects = memory.of((objects.cluster, "shared"), lambda known: known, shared)
    return same


def _bound(  # noqa: PLR0913, PLR0917 - all that decides about it, for a memory
    key: ObjectKey,
    gateway: Gateway,
    sets: tuple[ListenerSet, ...],
    routes: tuple[Route, ...],
    shared: GatewayObjects,
    authority: LocalAuthority | None,
) -> BoundGateway:
    """Bind one Gateway; `shared` is what routes and listeners of any Gateway may refer to."""
    listeners = bound_listeners(gateway, sets, shared, authority)
    attachment = attach(listeners, routes, shared.namespaces)
    trouble = _unusable(gateway, listeners)
    upstreams = Upstreams(Backends(shared), upstream_prefix(key))
    chains, datagrams = {}, {}
    for (port, transport), group in () if trouble else _by_port(listeners):
        attached = [(listeners[number], attachment.routes.get(number, ())) for number in group]
        if transport is Protocol.UDP:
            datagrams[port] = _datagrams(attached, upstreams)
        else:
            chains[port] = tuple(_chains(attached, upstreams))
    ports = sorted((*((port, Protocol.TCP) for port in chains), *((port, Protocol.UDP) for port in datagrams)))
    want = _want(gateway, key, tuple(ServicePort(port, transport) for port, transport in ports))
    return BoundGateway(
        want=want,
        chains=chains,
        datagrams=datagrams,
        targets=upstreams.targets,
        trouble=trouble,
        gateway=gateway,
        listeners=listeners,
        sets=sets,
        attachment=attachment,
    )


def _unusable(gateway: Gateway, listeners: Iterable[BoundListener]) -> Trouble | None:
    """Return why nothing of a Gateway is served."""
    if gateway.problem:
        return Trouble("Invalid", gateway.problem)
    if gateway.has_parameters:
        why = "spec.infrastructure.parametersRef names parameters, and none are known here; leave it out"
        return Trouble("InvalidParameters", why)
    if gateway.unsupported:
        return Trouble("Invalid", f"{', '.join(gateway.unsupported)} isn't served; leave it out")
    if trouble := next(filter(None, map(_odd_address, gateway.addresses)), None):
        return trouble
    if not any(one.serves for one in listeners):
        return Trouble("ListenersNotValid", "none of its listeners can be served; look at their conditions")
    return None


def _odd_address(wanted: WantedAddress) -> Trouble | None:
    if wanted.type != "IPAddress":
        why = f"spec.addresses asks for the {wanted.type} {wanted.text}; ask for an IPAddress or leave it out"
        return Trouble("UnsupportedAddress", why)
    if wanted.text and wanted.address is None:
        return Trouble("UnsupportedAddress", f"spec.addresses has {wanted.text!r}; give an IP address")
    return None


def _by_port(listeners: Sequence[BoundListener]) -> Iterable[tuple[tuple[int, Protocol], list[int]]]:
    """Return the listeners that serve, by number, for each port."""

    def port(number: int) -> tuple[int, Protocol]:
        return listeners[number].listener.port, listeners[number].transport

    serving = sorted((number for number, one in enumerate(listeners) if one.serves), key=lambda n: (port(n), n))
    return ((place, list(numbers)) for place, numbers in groupby(serving, key=port))


def _want(gateway: Gateway, key: ObjectKey, ports: tuple[ServicePort, ...]) -> Service:
    """Make the Service as which it is planned: the families are those of the addresses that it asks for."""
    meta = gateway.meta
    asked = {Family.of(one.address): one.address for one in reversed(gateway.addresses) if one.address}
    families = tuple(family for family in Family if family in asked) or (Family.IPV4,)
    return Service(
        key,
        ports,
        meta.uid,
        meta.created,
        families,
        FamilyPolicy.REQUIRE_DUAL if len(families) > 1 else FamilyPolicy.SINGLE,
        tuple(asked[family] for family in families if family in asked),
        labels={**meta.labels, **gateway.labels},
        annotations={**meta.annotations, **gateway.annotations},
    )


_Attached = tuple[BoundListener, Sequence[Attached]]


def _chains(attached: Sequence[_Attached], upstreams: Upstreams) -> Iterable[Chain]:
    """Return what becomes of the connections to one TCP port."""
    plain = [Hosted(one.listener.hostname, routes) for one, routes in attached if one.listener.protocol == "HTTP"]
    if plain:
        yield Chain(http_routes(plain, upstreams))
    for one, routes in attached:
        name, termination = one.listener.hostname, _termination(one, routes)
        if one.listener.protocol == ListenerProtocol.HTTPS:
            named = [Hosted(other.listener.hostname, ()) for other, _ in attached if other is not one]
            serves = https_routes(Hosted(name, routes), named, upstreams)
            yield Chain(serves, (name,) if name else (), termination)
        elif one.listener.protocol == ListenerProtocol.TLS:
            others = [other.listener.hostname for other, _ in attached if other is not one]
            yield from _by_name(one, routes, others, termination, upstreams)
        elif one.listener.protocol == ListenerProtocol.TCP:
            yield Chain(_forward(routes[:1], upstreams))


def _termination(one: BoundListener, routes: Sequence[Attached]) -> Termination | None:
    """Return how TLS ends at a listener; None where it doesn't.

    A certificate of our own has the listener's hostname, and those of its routes that this doesn't stand for.
    """
    tls, authority = one.listener.tls, one.authority
    if tls is None or tls.mode is not TlsMode.TERMINATE:
        return None
    if authority is None:
        return Termination(one.certificates)
    hosts = {one.listener.hostname, *(name for each in routes for name in each.names)}
    believed = [host for host in hosts if host and local.certifies(authority, host)]
    name = f"{one.owner.kind.lower()}s/{one.owner.key}/{one.listener.name}"
    return Termination((local.certificate(authority, name, believed),))


def _by_name(
    one: BoundListener,
    routes: Sequence[Attached],
    others: Sequence[str],
    termination: Termination | None,
    upstreams: Upstreams,
) -> Iterable[Chain]:
    """Return a chain for each hostname of TLSRoutes: that of the oldest, unless another listener has the name."""
    mine = one.listener.hostname
    for name in sorted({name for each in routes for name in each.names}, key=specificity):
        if any(covers(other, name) and specificity(other) < specificity(mine) for other in others):
            continue
        having = [each for each in routes if name in each.names]
        yield Chain(_forward(having[:1], upstreams), (name,) if name else (), termination)


def _forward(routes: Sequence[Attached], upstreams: Upstreams) -> TcpForward:
    return TcpForward(
        tuple(
            Target(upstreams.name(one.route, ref), ref.weight)
            for one in routes
            for rule in one.route.rules
            for ref in rule.backends
            if ref.weight
        )
    )


def _datagrams(attached: Sequence[_Attached], upstreams: Upstreams) -> tuple[Target, ...]:
    """Return what is behind a UDP port: the backends of the oldest UDPRoute."""
    forward = _forward([one for _, routes in attached for one in routes[:1]][:1], upstreams)
    return tuple(target for target in forward.targets if target.upstream)
