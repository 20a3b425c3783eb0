"""What of a placement clients meet, in words: hostnames, ports that take requests without TLS, allowed clients. Pure.

Not here: reading the same back from Envoy's files (`report.deployed`).
"""

from __future__ import annotations

from collections.abc import Iterator

from locallb.model.http_routes import DirectResponse, Redirect
from locallb.model.http_serving import ANY, Chain, HttpListener, HttpRoutes, VirtualHost
from locallb.model.identities import IPNetwork
from locallb.model.ranges import sorted_networks
from locallb.planning.planned import Placement


def hostnames_claimed(placement: Placement) -> tuple[str, ...]:
    """Return for which hostnames it takes requests or TLS; `*` is every hostname."""
    return tuple(dict.fromkeys(name for _, chain in _chains(placement) for name in _hostnames(chain)))


def ports_without_tls(placement: Placement) -> tuple[str, ...]:
    """Return the ports that take requests without TLS, and not only to send them elsewhere by https."""
    clear = (
        port
        for port, chain in _chains(placement)
        if chain.termination is None
        for host in _claimed(chain)
        if any(not _is_answered(route.action) for route in host.routes)
    )
    return tuple(dict.fromkeys(clear))


def clients_allowed(placement: Placement) -> tuple[IPNetwork, ...]:
    """Return the networks of clients that are let in; none: all."""
    listeners = (listener for port in placement.ports for listener in port.listeners)
    return sorted_networks(span for each in listeners for span in each.source_ranges)


def _chains(placement: Placement) -> Iterator[tuple[str, Chain]]:
    for port in placement.ports:
        for listener in port.listeners:
            if isinstance(listener, HttpListener):
                yield from ((str(port.port), chain) for chain in listener.chains)


def _hostnames(chain: Chain) -> Iterator[str]:
    if isinstance(chain.serves, HttpRoutes):
        yield from (name for host in _claimed(chain) for name in host.domains)
    elif chain.names or chain.termination or chain.by_tls:
        yield from chain.names or (ANY,)


def _claimed(chain: Chain) -> Iterator[VirtualHost]:
    """Return the hosts with more than answers that the proxy gives itself."""
    return (host for host in chain.hosts if any(not isinstance(route.action, DirectResponse) for route in host.routes))


def _is_answered(action: object) -> bool:
    return isinstance(action, DirectResponse) or (isinstance(action, Redirect) and action.scheme == "https")
