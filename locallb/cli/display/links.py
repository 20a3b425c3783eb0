"""URLs of what serves, for a browser: composed of addresses, numbers and checked names, and of nothing else.

A cluster chooses names of Services and hostnames; so whatever becomes part of a URL is a number, an address that was
parsed, or a name of letters, digits, hyphens and dots. Not here: opening them (`commands.open_address`).
"""

from __future__ import annotations

from ipaddress import IPv6Address

from msgspec import Struct

from locallb.cli.display.service_table import is_routed
from locallb.dns.names import is_hostname, name_fault
from locallb.model.http.serving import HttpListener
from locallb.model.identities import IPAddress, ObjectKey, Protocol
from locallb.model.objects import ServicePort
from locallb.planning.planned import PlannedPort
from locallb.planning.status import Row, State

_USUAL = {"http": 80, "https": 443}
_HTTPS = frozenset({443, 8443})
_WEB = frozenset({80, 443, 8080, 8443})


class Link(Struct, frozen=True):
    """Where a browser finds a port."""

    key: ObjectKey
    port: ServicePort
    url: str


def links(row: Row, planned: tuple[PlannedPort, ...] = ()) -> tuple[Link, ...]:
    """Return a link for each port of TCP that serves, those that look like the Web's first."""
    if not row.addresses:
        return ()
    by_port = {(port.port.port, port.port.protocol): port for port in planned}
    host = next(filter(_is_usable, row.names), "") or _host(row.addresses[0])
    serving = [port.port for port in row.ports if port.state is State.SERVING]
    ports = [port for port in serving if port.protocol is Protocol.TCP]
    return tuple(
        Link(row.key, port, _url(_scheme(port, by_port.get((port.port, port.protocol))), host, port.number))
        for port in sorted(ports, key=lambda port: not _is_of_the_web(port))
    )


def _is_usable(name: str) -> bool:
    """Return whether this host's resolver knows a name that one host may have."""
    return not name_fault(name) and is_hostname(name) and is_routed(name)


def _host(address: IPAddress) -> str:
    """Write an address as URLs have it, without a zone, which is any text."""
    return f"[{IPv6Address(int(address))}]" if isinstance(address, IPv6Address) else str(address)


def _url(scheme: str, host: str, number: int) -> str:
    return f"{scheme}://{host}/" if number == _USUAL[scheme] else f"{scheme}://{host}:{number}/"


def _scheme(port: ServicePort, planned: PlannedPort | None) -> str:
    """Return the scheme: by the planned listener of HTTP, else by the port's own number and name."""
    chains = [
        chain
        for listener in (planned.listeners if planned else ())
        if isinstance(listener, HttpListener)
        for chain in listener.chains
    ]
    secured = (
        any(chain.termination or chain.by_tls for chain in chains)
        if chains
        else port.port in _HTTPS or port.name.partition("-")[0] == "https"
    )
    return "https" if secured else "http"


def _is_of_the_web(port: ServicePort) -> bool:
    return port.port in _WEB or port.name.partition("-")[0] in _USUAL
