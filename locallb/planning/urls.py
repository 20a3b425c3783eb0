"""URLs of ports: by a planned listener of HTTP, by what a Service says of its port, else by its number. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address

from locallb.dns.zones import is_hostname, name_fault
from locallb.model.http_serving import HttpListener, HttpRoutes
from locallb.model.identities import IPAddress, Protocol
from locallb.model.objects import ServicePort
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
