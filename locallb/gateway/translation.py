"""Translates Gateway API objects into the requests of each Gateway: addresses, ports, and traffic to serve.

Gateways are planned as Services are: the result is a `Service` of the model with a key that names the kind, and the
traffic of each port. It is independent of addresses, endpoints and this host. Not here: hosts and routes (`routes`),
and statuses (`status`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, compress, count, groupby

from msgspec.structs import replace

from locallb.gateway.conditions import LISTENERS_NOT_VALID, Failure
from locallb.gateway.gathering import RoutesByParent
from locallb.gateway.listeners.listeners import BoundListener, attached_sets, bound_listeners
from locallb.gateway.listeners.pairs import client_pair
from locallb.gateway.routes.attachment import Attachment, attach
from locallb.gateway.routes.backends import Backends, Upstreams
from locallb.gateway.routes.bound import Bound, upstream_prefix
from locallb.gateway.routes.chains import chains_of_port, datagrams_of_port
from locallb.model.faults import Fault
from locallb.model.gateway.objects import (
    CONTROLLER,
    Gateway,
    GatewayClass,
    ListenerProtocol,
    ListenerSet,
    Named,
    Reference,
    Route,
    RouteKind,
    WantedAddress,
)
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.identities import ClusterName, Family, ObjectKey, ObjectKind, Protocol
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import FamilyPolicy, Service, ServicePort
from locallb.model.snapshot import LocalAuthority


class BoundGateway(Bound, frozen=True, kw_only=True):
    """A Gateway of ours: its request, what is served, and the inputs of its status."""

    gateway: Gateway
    listeners: tuple[BoundListener, ...]
    sets: tuple[ListenerSet, ...]
    attachment: Attachment
    services: frozenset[Named] = frozenset()
    """Services to which policies apply."""
    resolved: Failure | None = None
    """The reason that backends can't be shown the configured certificate."""
    without_room: tuple[str, ...] = ()
    """Services that aren't reached because others use all the room for authorities."""

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Return the hostnames of served listeners, and of their attached routes."""
        serving = [
            (number, listener.listener.hostname) for number, listener in enumerate(self.listeners) if listener.serves
        ]
        attached = (
            (hostname, *(name for one in self.attachment.routes.get(number, ()) if one.accepted for name in one.names))
            for number, hostname in serving
        )
        return tuple(dict.fromkeys(name for names in attached for name in names if name))

    @property
    def refused_listeners(self) -> tuple[str, ...]:
        """The listeners of its own that aren't served although others are: a sentence each, with the reason."""
        mine = () if self.failure else (each for each in self.listeners if each.owner == self.gateway.reference)
        return tuple(f"{self.key} {each.refusal}" for each in mine if not each.serves)

    @property
    def faults(self) -> Mapping[str, Fault]:
        """The faults ordered for requests of attached routes, by route."""
        routes = [one.route for attached in self.attachment.routes.values() for one in attached if one.accepted]
        requested = [route for route in routes if route.kind in {RouteKind.HTTP, RouteKind.GRPC}]
        return {f"{route.kind} {route.meta.key}": fault for route in requested if (fault := route.meta.failing)}


def our_classes(objects: GatewayObjects, names: Collection[str] | None) -> tuple[GatewayClass, ...]:
    """Return the GatewayClasses that are served: those of our controller, of which `names` may choose."""
    return tuple(
        gateway_class
        for gateway_class in objects.classes
        if gateway_class.controller == CONTROLLER and (names is None or gateway_class.meta.key.name in names)
    )


def bind(
    objects: GatewayObjects,
    names: Collection[str] | None = None,
    memory: AnyMemo | None = None,
    authority: LocalAuthority | None = None,
) -> tuple[BoundGateway, ...]:
    """Bind all Gateways of a cluster, for the classes of these names (None: all of our controller).

    `authority` makes certificates for listeners without one; None: these serve nothing. `memory` caches earlier
    bindings: each Gateway is bound again if its own or shared objects changed.
    """
    memory, cluster = memory or Memo(), objects.cluster
    ours = {gateway_class.meta.key.name for gateway_class in our_classes(objects, names)}
    shared = shared_objects(objects, memory)
    grouping: RoutesByParent = memory.of((cluster, "by parent"), RoutesByParent)
    by_parent = grouping.of(objects.routes)
    gateways, references = memory.of((cluster, "in order"), _in_order, objects.gateways, ours)
    sets = [attached_sets(gateway, objects) for gateway in gateways] if objects.listener_sets else [()] * len(gateways)
    routes = grouping.each(references)
    for number in compress(count(), sets):
        every = chain(routes[number], *(by_parent.get(listener_set.reference, ()) for listener_set in sets[number]))
        routes[number] = tuple({route.reference: route for route in every}.values())
    retained: Memo[BoundGateway] = memory.of((cluster, "bound"), Memo)
    rows = zip(gateways, sets, routes, strict=True)
    bound = tuple(retained.of(own[0].meta.key, _bound, cluster, *own, shared, authority) for own in rows)
    retained.evict_unused()
    return bound


def _in_order(gateways: Iterable[Gateway], ours: Collection[str]) -> tuple[tuple[Gateway, ...], tuple[Reference, ...]]:
    """Return the Gateways of these classes in the order of names, and how others refer to each."""
    mine = (gateway for gateway in gateways if gateway.class_name in ours and not gateway.meta.deleting)
    in_order = tuple(sorted(mine, key=lambda gateway: gateway.meta.key))
    return in_order, tuple(gateway.reference for gateway in in_order)


def shared_objects(objects: GatewayObjects, memory: AnyMemo) -> GatewayObjects:
    """Return the objects that routes and listeners of any Gateway may refer to: identical while they are equal."""
    shared = replace(objects, classes=(), gateways=(), listener_sets=(), routes=())
    same: GatewayObjects = memory.of((objects.cluster, "shared"), lambda existing: existing, shared)
    return same


def _bound(  # noqa: PLR0913, PLR0917 - all that decides about it, for a memory
    cluster: ClusterName,
    gateway: Gateway,
    sets: tuple[ListenerSet, ...],
    routes: tuple[Route, ...],
    shared: GatewayObjects,
    authority: LocalAuthority | None,
) -> BoundGateway:
    """Bind one Gateway; `shared` is what routes and listeners of any Gateway may refer to."""
    key = ObjectKey(cluster, *gateway.meta.key, ObjectKind.GATEWAY)
    listeners = bound_listeners(gateway, sets, shared, authority)
    attachment = attach(listeners, routes, shared.namespaces)
    failure = _unusable(gateway, listeners)
    shown = client_pair(gateway, shared)
    resolved, client = (shown, None) if isinstance(shown, Failure) else (None, shown)
    upstreams = Upstreams(Backends(shared), upstream_prefix(key), client)
    chains, datagrams = {}, {}
    for (port, transport), group in () if failure else _by_port(listeners):
        attached = [(listeners[number], attachment.routes.get(number, ())) for number in group]
        if transport is Protocol.UDP:
            datagrams[port] = datagrams_of_port(attached, upstreams)
        else:
            refused = [bound for bound in listeners if bound.listener.port == port and not bound.serves]
            chains[port] = tuple(chains_of_port(attached, upstreams, refused))
    places = (*((port, Protocol.TCP) for port in chains), *((port, Protocol.UDP) for port in datagrams))
    ports = sorted(_retained_ports(listeners) if failure and failure.reason == LISTENERS_NOT_VALID else places)
    want = _want(gateway, key, tuple(ServicePort(port, transport) for port, transport in ports))
    return BoundGateway(
        want=want,
        chains=chains,
        datagrams=datagrams,
        targets=upstreams.targets,
        failure=failure,
        gateway=gateway,
        listeners=listeners,
        sets=sets,
        attachment=attachment,
        services=frozenset(upstreams.services),
        resolved=resolved,
        without_room=tuple(upstreams.without_room.values()),
    )


def _unusable(gateway: Gateway, listeners: Iterable[BoundListener]) -> Failure | None:
    """Return why nothing of a Gateway is served."""
    if gateway.problem:
        return Failure("Invalid", gateway.problem)
    if gateway.has_parameters:
        why = "spec.infrastructure.parametersRef names parameters, and none are known here; leave it out"
        return Failure("InvalidParameters", why)
    if gateway.unsupported:
        return Failure("Invalid", f"{', '.join(gateway.unsupported)} isn't served; leave it out")
    if failure := next(filter(None, map(_odd_address, gateway.addresses)), None):
        return failure
    if not any(listener.serves for listener in listeners):
        return Failure(LISTENERS_NOT_VALID, "none of its listeners can be served; look at their conditions")
    return None


def _retained_ports(listeners: Iterable[BoundListener]) -> set[tuple[int, Protocol]]:
    """Return the ports of a Gateway that keeps its address although none of its listeners can be served now."""
    existing = [bound for bound in listeners if bound.listener.protocol in set(ListenerProtocol)]
    return {(bound.listener.port, bound.transport) for bound in existing}


def _odd_address(wanted: WantedAddress) -> Failure | None:
    if wanted.type != "IPAddress":
        why = f"spec.addresses asks for the {wanted.type} {wanted.text}; ask for an IPAddress or leave it out"
        return Failure("UnsupportedAddress", why)
    if wanted.text and wanted.address is None:
        return Failure("UnsupportedAddress", f"spec.addresses has {wanted.text!r}; give an IP address")
    return None


def _by_port(listeners: Sequence[BoundListener]) -> Iterable[tuple[tuple[int, Protocol], list[int]]]:
    """Return the listeners that serve, by number, for each port."""

    def port(number: int) -> tuple[int, Protocol]:
        return listeners[number].listener.port, listeners[number].transport

    serving = sorted(
        (number for number, listener in enumerate(listeners) if listener.serves), key=lambda n: (port(n), n)
    )
    return ((place, list(numbers)) for place, numbers in groupby(serving, key=port))


def _want(gateway: Gateway, key: ObjectKey, ports: tuple[ServicePort, ...]) -> Service:
    """Make the Service as which it is planned: its families are those of its requested addresses."""
    meta = gateway.meta
    requested = {
        Family.of(address.address): address.address for address in reversed(gateway.addresses) if address.address
    }
    families = tuple(family for family in Family if family in requested) or (Family.IPV4,)
    return Service(
        key,
        ports,
        meta.uid,
        meta.created,
        families,
        FamilyPolicy.REQUIRE_DUAL if len(families) > 1 else FamilyPolicy.SINGLE,
        tuple(requested[family] for family in families if family in requested),
        labels={**meta.labels, **gateway.labels},
        annotations={**meta.annotations, **gateway.annotations},
        fault=meta.fault,
    )
