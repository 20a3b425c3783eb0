"""Redirects under port mapping: a redirect of a Gateway or Ingress to itself names the mapped port.

Pure. A redirect leads to itself without a hostname, or with a hostname that it routes. A redirect to another host
names that host's own port, which isn't mapped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.http.routes import Redirect, Route
from locallb.model.http.serving import Chain, HttpRoutes, VirtualHost
from locallb.model.identities import Protocol
from locallb.model.objects import ServicePort

_OF_SCHEMES = {"http": 80, "https": 443}


def with_mapped_redirects(
    chains: tuple[Chain, ...], entrance: ServicePort, ports: Iterable[ServicePort], every: Iterable[Sequence[Chain]]
) -> tuple[Chain, ...]:
    """Return the chains of the port `entrance` with redirects to the numbers by which clients reach `ports`.

    `every` has the chains of all ports. The identical chains are returned if no port is mapped.
    """
    numbers = {port.port: port.number for port in ports if port.protocol is Protocol.TCP and port.number != port.port}
    if not numbers:
        return chains
    here = frozenset(
        name for chains_of_port in every for chain in chains_of_port for host in _hosts(chain) for name in host.domains
    )
    return tuple(_chain(chain, _Mapping(entrance, numbers, here)) for chain in chains)


class _Mapping(Struct, frozen=True):
    """Inputs of a redirect's port."""

    entrance: ServicePort
    numbers: Mapping[int, int]
    """Of mapped ports."""
    here: frozenset[str]
    """The hostnames for which there are routes."""

    def redirect(self, to: Redirect) -> Redirect:
        """Return a redirect that clients can follow."""
        requested = to.port or _OF_SCHEMES.get(to.scheme, 0)
        if self._leads_elsewhere(to.hostname):
            return to if requested else replace(to, port=self.entrance.port)
        number = self.numbers.get(requested)
        return replace(to, port=number) if number else to

    def _leads_elsewhere(self, hostname: str) -> bool:
        parts = hostname.split(".")
        wider = ("*." + ".".join(parts[number:]) for number in range(1, len(parts)))
        return bool(hostname) and self.here.isdisjoint({hostname, *wider})


def _hosts(chain: Chain) -> Sequence[VirtualHost]:
    return chain.serves.hosts if isinstance(chain.serves, HttpRoutes) else ()


def _chain(chain: Chain, mapping: _Mapping) -> Chain:
    if not isinstance(chain.serves, HttpRoutes):
        return chain
    hosts = (
        replace(host, routes=tuple(_route(route, mapping) for route in host.routes)) for host in chain.serves.hosts
    )
    return replace(chain, serves=replace(chain.serves, hosts=tuple(hosts)))


def _route(route: Route, mapping: _Mapping) -> Route:
    return replace(route, action=mapping.redirect(route.action)) if isinstance(route.action, Redirect) else route
