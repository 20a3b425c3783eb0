"""What clients meet of a placement, in words: URLs, hostnames, ports that take requests without TLS, allowed clients.

A URL is made by a planned listener of HTTP, by what a Service says of its port, else by its number. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address

from locallb.dns.zones import is_hostname, name_fault
from locallb.model.http_routes import DirectResponse, Redirect
from locallb.model.http_serving import ANY, Chain, HttpListener, HttpRoutes, VirtualHost
from locallb.model.identities import IPAddress, IPNetwork, Protocol
from locallb.model.objects import ServicePort
from locallb.model.ranges import sorted_networks
from locallb.planning.planned import Placement, PlannedPort

_USUAL = {"http": 80, "https": 443}
_BY_PROTOCOL = {"http": "http", "kubernetes.io/ws": "http", "https": "https", "kubernetes.io/wss": "https"}
"""Schemes by appProtocol; any other is none that a browser or curl speaks by itself."""
_BY_NAME = {"http": "http", "web": "http", "https": "https", "websecure": "https"}
"""Schemes by a port's name, up to its first hyphen."""
_OTHERS = frozenset({"dns", "grpc", "mongo", "mysql", "postgres", "postgresql", "redis", "ssh"})
"""Names of ports that speak something else, whatever their number."""
_BY_NUMBER = {
    **dict.fromkeys((80, 3000, 5000, 8000, 8008, *range(8080, 8091), 8888, 9090), "http"),
    **dict.fromkeys((443, 8443, 9443), "https"),
}
"""Schemes by a port's number, where nothing else says it."""


def url_host(address: IPAddress) -> str:
    """Write an address as URLs have it, without a zone, which is any text."""
    return f"[{IPv6Address(int(address))}]" if isinstance(address, IPv6Address) else str(address)


def url(scheme: str, host: str, number: int) -> str:
    """Write a URL; without a scheme, which is a port that isn't known to speak HTTP, a host and its port."""
    if not scheme:
        return f"{host}:{number}"
    return f"{scheme}://{host}/" if number == _USUAL[scheme] else f"{scheme}://{host}:{number}/"


def scheme_of(port: ServicePort, planned: PlannedPort | None) -> str:
    """Return the scheme: by the planned listener of HTTP, else by what the Service says of the port, else its number.

    The number is the Service's own, whatever port clients use.
    """
    chains = [
        chain
        for listener in (planned.listeners if planned else ())
        if isinstance(listener, HttpListener)
        for chain in listener.chains
    ]
    if chains:
        of_http = [chain for chain in chains if isinstance(chain.serves, HttpRoutes)]
        if any(chain.termination for chain in of_http) or any(chain.by_tls for chain in chains):
            return "https"
        return "http" if of_http else ""
    if port.app_protocol:
        return _BY_PROTOCOL.get(port.app_protocol.lower(), "")
    for word in (port.name.partition("-")[0], str(port.target_port or "").partition("-")[0]):
        if word in _BY_NAME or word in _OTHERS:
            return _BY_NAME.get(word, "")
    return _BY_NUMBER.get(port.port, "")


def urls_of(placement: Placement) -> Iterator[str]:
    """Return the URLs below `localhost`, and those of ports of HTTP by each hostname, else by each address."""
    yield from (each.url for each in placement.local_urls)
    names = [name for name in hostnames_of(placement) if is_hostname(name)]
    hosts = names or [url_host(address) for address in placement.addresses]
    for planned in placement.ports:
        scheme = scheme_of(planned.port, planned) if planned.port.protocol is Protocol.TCP else ""
        if scheme and planned.listeners:
            yield from (url(scheme, host, planned.port.number) for host in hosts)


def hostnames_of(placement: Placement) -> list[str]:
    """Return the names of a load balancer in the stack's zones."""
    return [name for name in map(str, placement.names) if not name_fault(name)]


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
