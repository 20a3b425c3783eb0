"""Translates Gateway API objects into the requests of each Gateway: addresses, ports, and traffic to serve.

Gateways are planned as Services are: the result is a `Service` of the model with a key that names the kind, and the
traffic of each port. It is independent of addresses, endpoints and this host.

Not here: hosts and routes of HTTP (`routes`), conflicts of listeners (`listeners`), and statuses (`statuses`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, compress, count, groupby

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.certificates import local
from locallb.gateway.attachment import Attached, Attachment, attach
from locallb.gateway.listeners import BoundListener, attached_sets, bound_listeners, client_pair, covers, specificity
from locallb.gateway.routes import (
    Backends,
    Bound,
    Hosted,
    Upstreams,
    http_routes,
    https_routes,
    target_of,
    upstream_prefix,
)
from locallb.model.faults import Fault
from locallb.model.gateway_objects import (
    CONTROLLER,
    Gateway,
    GatewayClass,
    GatewayRoute,
    ListenerProtocol,
    ListenerSet,
    Named,
    Reference,
    RouteKind,
    TlsMode,
    WantedAddress,
)
from locallb.model.gateway_of_cluster import GatewayObjects
from locallb.model.http_routes import NO_CHANGES, Target
from locallb.model.http_serving import Chain, TcpForward, Termination
from locallb.model.identities import ClusterName, Family, ObjectKey, ObjectKind, Protocol
from locallb.model.memory import AnyMemo, Memo, few_replaced
from locallb.model.objects import FamilyPolicy, Service, ServicePort
from locallb.model.reasons import LISTENERS_NOT_VALID, Failure
from locallb.model.snapshot import LocalAuthority

AttachedListener = tuple[BoundListener, Sequence[Attached]]
"""A listener and the routes attached to it."""


def chains_of_port(
    attached: Sequence[AttachedListener], upstreams: Upstreams, refused: Iterable[BoundListener] = ()
) -> Iterable[Chain]:
    """Return the filter chains of one TCP port; clients of `refused` listeners get no other one.

    TLS is terminated or passed through, and TCP goes to its targets.
    """
    refused = list(refused)
    chains = list(_served(attached, refused, upstreams))
    yield from chains
    yield from _closed([bound for bound, _ in attached] + refused, chains)


def _served(
    attached: Sequence[AttachedListener], refused: Sequence[BoundListener], upstreams: Upstreams
) -> Iterable[Chain]:
    plain = [
        Hosted(bound.listener.hostname, routes, bound.listener.port, bound.listener.name)
        for bound, routes in attached
        if bound.listener.protocol == "HTTP"
    ]
    if plain:
        closed = [bound.listener for bound in refused if bound.listener.protocol == "HTTP"]
        hostnames = {hosted.hostname for hosted in plain}
        for listener in closed:
            if listener.hostname and listener.hostname not in hostnames:
                hostnames.add(listener.hostname)
                plain.append(Hosted(listener.hostname, (), plain[0].port, listener.name))
        yield Chain(http_routes(plain, upstreams))
    by_name = [bound for bound, _ in attached] + [bound for bound in refused if _is_found_by_name(bound)]
    for bound, routes in attached:
        name, termination = bound.listener.hostname, _termination(bound, routes)
        elsewhere = dict.fromkeys(other.listener.hostname for other in by_name if other is not bound)
        others = [other for other in elsewhere if other != name]
        if bound.listener.protocol == ListenerProtocol.HTTPS:
            named = [Hosted(other, (), bound.listener.port, "") for other in others]
            mine = Hosted(name, routes, bound.listener.port, bound.listener.name)
            serves = https_routes(mine, named, upstreams)
            yield Chain(serves, (name,) if name else (), termination)
        elif bound.listener.protocol == ListenerProtocol.TLS:
            yield from _by_name(bound, routes, others, termination, upstreams)
        elif bound.listener.protocol == ListenerProtocol.TCP:
            yield Chain(_forward(routes[:1], upstreams))


def _is_found_by_name(bound: BoundListener) -> bool:
    return bool(bound.listener.hostname) and bound.listener.protocol in {ListenerProtocol.HTTPS, ListenerProtocol.TLS}


def _closed(listeners: Iterable[BoundListener], chains: Sequence[Chain]) -> Iterable[Chain]:
    """Return chains without a backend for names that belong to a listener and would reach a less specific one.

    The listener is refused, or for TLS and without a route for the name.
    """
    with_tls = [chain for chain in chains if chain.termination or chain.by_tls]
    claimed = {name for chain in with_tls for name in chain.names or ("",)}
    for name in dict.fromkeys(bound.listener.hostname for bound in listeners if _is_found_by_name(bound)):
        if name not in claimed and any(covers(other, name) for other in claimed):
            yield Chain(TcpForward(()), (name,), by_tls=True)


def _termination(bound: BoundListener, routes: Sequence[Attached]) -> Termination | None:
    """Return how TLS ends at a listener; None where it doesn't.

    A certificate of our own has the listener's hostname, and those of its routes that this doesn't cover.
    """
    tls, authority = bound.listener.tls, bound.authority
    if tls is None or tls.mode is not TlsMode.TERMINATE:
        return None
    if authority is None:
        return Termination(bound.certificates, bound.clients)
    hosts = {bound.listener.hostname, *(name for route in routes for name in route.names)}
    believed = [host for host in hosts if host and local.certifies(authority, host)]
    name = f"{bound.owner.kind.lower()}s/{bound.owner.key}/{bound.listener.name}"
    return Termination((local.certificate(authority, name, believed),), bound.clients)


def _by_name(
    bound: BoundListener,
    routes: Sequence[Attached],
    others: Sequence[str],
    termination: Termination | None,
    upstreams: Upstreams,
) -> Iterable[Chain]:
    """Return a chain for each hostname of TLSRoutes: that of the oldest, unless another listener has the name."""
    mine = bound.listener.hostname
    for name in sorted({name for route in routes for name in route.names}, key=specificity):
        if any(covers(other, name) and specificity(other) < specificity(mine) for other in others):
            continue
        having = [route for route in routes if name in route.names]
        serves = _forward(having[:1], upstreams, opened=termination is not None)
        yield Chain(serves, (name,) if name else (), termination, by_tls=True)


def _forward(routes: Sequence[Attached], upstreams: Upstreams, *, opened: bool = False) -> TcpForward:
    """Return where bytes go; those of a route that isn't accepted go nowhere."""
    return TcpForward(
        tuple(
            replace(
                target_of(ref, upstreams.found(route.route, ref, opened=opened)),
                request=NO_CHANGES,
                response=NO_CHANGES,
            )
            for route in routes
            if route.accepted
            for rule in route.route.rules
            for ref in rule.backends
            if ref.weight
        )
    )


def datagrams_of_port(attached: Sequence[AttachedListener], upstreams: Upstreams) -> tuple[Target, ...]:
    """Return the backends of a UDP port: those of the oldest UDPRoute."""
    forward = _forward([route for _, routes in attached for route in routes[:1]][:1], upstreams)
    return tuple(target for target in forward.targets if target.upstream)


class RoutesByParent(Struct):
    """Knows which routes name each parent, updated incrementally. For one thread and one cluster.

    Most changes are of a route or two, which then replace their former versions in place. Where that isn't certain, all
    routes are sorted again. This saves work and decides nothing.
    """

    _routes: Sequence[GatewayRoute] = ()
    _made: Mapping[Reference, tuple[GatewayRoute, ...]] = field(default_factory=dict)
    _numbers: Mapping[Reference, int] = field(default_factory=dict)
    """Indexes of the last requested parents."""
    _together: tuple[Sequence[Reference], list[tuple[GatewayRoute, ...]]] | None = None
    """The last requested parents, and their routes."""

    def of(self, routes: Sequence[GatewayRoute]) -> Mapping[Reference, tuple[GatewayRoute, ...]]:
        """Return the routes of each parent, in order; no two have a name together."""
        if not self._put_others(routes):
            self._made, self._together = _by_parent(routes), None
        self._routes = routes
        return self._made

    def each(self, parents: Sequence[Reference]) -> list[tuple[GatewayRoute, ...]]:
        """Return the routes of these parents, of which no two are the same, as `of` found them last."""
        if self._together is None or self._together[0] is not parents:
            self._together = parents, [self._made.get(parent, ()) for parent in parents]
            self._numbers = {parent: number for number, parent in enumerate(parents)}
        return [*self._together[1]]

    def _put_others(self, routes: Sequence[GatewayRoute]) -> bool:
        """Put others in the places of some; return whether that was all, as names and parents are the same."""
        where = few_replaced(self._routes, routes)
        pairs = [(self._routes[number], routes[number]) for number in where or ()]
        if where is None or any(old.reference != new.reference or _parents(old) != _parents(new) for old, new in pairs):
            return False
        made = dict(self._made)
        for old, new in pairs:
            for parent in _parents(old):
                made[parent] = tuple(new if route is old else route for route in made[parent])
                if self._together and parent in self._numbers:
                    self._together[1][self._numbers[parent]] = made[parent]
        self._made = made
        return True


def _by_parent(routes: Iterable[GatewayRoute]) -> Mapping[Reference, tuple[GatewayRoute, ...]]:
    by_parent: dict[Reference, dict[Reference, GatewayRoute]] = {}
    for route in routes:
        for parent in route.parents:
            by_parent.setdefault(parent.reference, {})[route.reference] = route
    return {parent: tuple(by_reference.values()) for parent, by_reference in by_parent.items()}


def _parents(route: GatewayRoute) -> list[Reference]:
    return [parent.reference for parent in route.parents]


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
    bound = tuple(
        retained.of(
            own[0].meta.key,
            partial(_bound, memory.of((cluster, "parts of", own[0].meta.key), Memo)),
            *(cluster, *own, shared, authority),
        )
        for own in rows
    )
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
    memory: AnyMemo,
    cluster: ClusterName,
    gateway: Gateway,
    sets: tuple[ListenerSet, ...],
    routes: tuple[GatewayRoute, ...],
    shared: GatewayObjects,
    authority: LocalAuthority | None,
) -> BoundGateway:
    """Bind one Gateway; `shared` is what routes and listeners of any Gateway may refer to.

    `memory` caches what concerns one of its routes or hosts alone.
    """
    key = ObjectKey(cluster, *gateway.meta.key, ObjectKind.GATEWAY)
    listeners = bound_listeners(gateway, sets, shared, authority)
    attachment = attach(listeners, routes, shared.namespaces, memory)
    failure = _unusable(gateway, listeners)
    shown = client_pair(gateway, shared)
    resolved, client = (shown, None) if isinstance(shown, Failure) else (None, shown)
    upstreams = Upstreams(Backends(shared), upstream_prefix(key), client, memory)
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
    memory.evict_unused()
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
