"""Links to what serves: URLs for a browser, or an address and its port where it isn't known to speak HTTP.

A cluster chooses names of Services and hostnames; so whatever becomes part of a link is a number, an address that was
parsed, or a name of letters, digits, hyphens and dots. Not here: opening them (`commands.open_address`).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address
from pathlib import Path

from msgspec import Struct

from locallb.dns.names import is_hostname, is_wildcard, name_fault
from locallb.host.setup.hosts_file import HOSTS, applies_to
from locallb.host.setup.resolver_plan import routing_files
from locallb.model.http.serving import HttpListener, HttpRoutes
from locallb.model.identities import ROUTED, IPAddress, ObjectKey, Protocol
from locallb.model.objects import ServicePort
from locallb.planning.planned import PlannedPort
from locallb.planning.status import Row, State
from locallb.storage import files

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


class Link(Struct, frozen=True):
    """Where a port is found."""

    key: ObjectKey
    port: ServicePort
    scheme: str
    """`http` or `https`; empty where it isn't known to speak HTTP."""
    url: str
    """Without a scheme an address, or a name, and a port."""


def links(row: Row, planned: tuple[PlannedPort, ...] = ()) -> tuple[Link, ...]:
    """Return a link for each serving TCP port, HTTP ports first."""
    if not row.addresses:
        return ()
    by_port = {(port.port.port, port.port.protocol): port for port in planned}
    host = _name(row) or _host(row.addresses[0])
    serving = [port.port for port in row.ports if port.state is State.SERVING and port.port.protocol is Protocol.TCP]
    found = [(port, _scheme(port, by_port.get((port.port, port.protocol)))) for port in serving]
    made = [Link(row.key, port, scheme, _url(scheme, host, port.number)) for port, scheme in found]
    return tuple(sorted(made, key=lambda link: not link.scheme))


def next_step(rows: Sequence[Row]) -> str:
    """Suggest what to try: a Service that serves at all its ports and speaks HTTP, else what comes closest.

    What routes answer at an address, they say themselves.
    """
    candidates = [(row, found[0]) for row in rows if (found := links(row))]
    if not candidates:
        return ""
    row, link = min(candidates, key=lambda candidate: _distance(*candidate))
    name = _name(row)
    if row.key.kind in ROUTED and not (name and link.scheme):
        return f"`locallb status {row.key}`"
    if name or not link.scheme:
        return link.url
    return f"curl {'-k ' if link.scheme == 'https' else ''}{link.url}"  # no certificate has an address


def _distance(row: Row, link: Link) -> tuple[bool, bool, bool]:
    """Return how far something is from a Service that is worth a try: the smallest is the best."""
    is_routed_kind = row.key.kind in ROUTED
    return row.state is not State.SERVING, not (is_routed_kind or link.scheme), is_routed_kind


def is_routed(name: str) -> bool:
    """Return whether `host setup` has this host's resolver ask for a name; wildcards can't be asked for."""
    return not is_wildcard(name) and (any(Path(path).exists() for path in routing_files(name)) or _is_in_hosts(name))


def _is_in_hosts(name: str) -> bool:
    """Return whether `host setup` has written a name into /etc/hosts."""
    try:
        return applies_to(files.read(Path(HOSTS)) or "", name)
    except files.FilesError:
        return False


def _name(row: Row) -> str:
    """Return the first name that this host's resolver knows and one host may have; empty without one."""
    return next((name for name in row.names if not name_fault(name) and is_hostname(name) and is_routed(name)), "")


def _host(address: IPAddress) -> str:
    """Write an address as URLs have it, without a zone, which is any text."""
    return f"[{IPv6Address(int(address))}]" if isinstance(address, IPv6Address) else str(address)


def _url(scheme: str, host: str, number: int) -> str:
    if not scheme:
        return f"{host}:{number}"
    return f"{scheme}://{host}/" if number == _USUAL[scheme] else f"{scheme}://{host}:{number}/"


def _scheme(port: ServicePort, planned: PlannedPort | None) -> str:
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
