"""Filter chains of one port of a Gateway: TLS termination or passthrough, and TCP and UDP targets.

Not here: hosts and routes of HTTP (`http_translation`), and which listeners share a port (`gateway.translation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from locallb.certificates import local
from locallb.gateway.hostnames import covers, specificity
from locallb.gateway.listeners.listeners import BoundListener
from locallb.gateway.routes.attachment import Attached
from locallb.gateway.routes.backends import Upstreams
from locallb.gateway.routes.http_translation import Hosted, http_routes, https_routes
from locallb.model.gateway.objects import ListenerProtocol, TlsMode
from locallb.model.http.routes import Target
from locallb.model.http.serving import Chain, TcpForward, Termination

AttachedListener = tuple[BoundListener, Sequence[Attached]]
"""A listener and the routes attached to it."""


def chains_of_port(
    attached: Sequence[AttachedListener], upstreams: Upstreams, refused: Iterable[BoundListener] = ()
) -> Iterable[Chain]:
    """Return the filter chains of one TCP port; clients of `refused` listeners get no other one."""
    refused = list(refused)
    chains = list(_served(attached, refused, upstreams))
    yield from chains
    yield from _closed([bound for bound, _ in attached] + refused, chains)


def _served(
    attached: Sequence[AttachedListener], refused: Sequence[BoundListener], upstreams: Upstreams
) -> Iterable[Chain]:
    plain = [Hosted(bound.listener.hostname, routes) for bound, routes in attached if bound.listener.protocol == "HTTP"]
    if plain:
        names = dict.fromkeys(bound.listener.hostname for bound in refused if bound.listener.protocol == "HTTP")
        plain += [Hosted(name, ()) for name in names if name and all(name != hosted.hostname for hosted in plain)]
        yield Chain(http_routes(plain, upstreams))
    by_name = [bound for bound, _ in attached] + [bound for bound in refused if _is_found_by_name(bound)]
    for bound, routes in attached:
        name, termination = bound.listener.hostname, _termination(bound, routes)
        elsewhere = dict.fromkeys(other.listener.hostname for other in by_name if other is not bound)
        others = [other for other in elsewhere if other != name]
        if bound.listener.protocol == ListenerProtocol.HTTPS:
            named = [Hosted(other, ()) for other in others]
            serves = https_routes(Hosted(name, routes), named, upstreams)
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
            Target(upstreams.name(route.route, ref, opened=opened), ref.weight)
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
