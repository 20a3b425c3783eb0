"""Redirects to another port of the same Gateway or Ingresses, where clients find that at a mapped number.

Pure. Not here: redirects to other hosts, whose ports are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from locallb.model.http.routes import Redirect, Route
from locallb.model.http.serving import Chain, HttpRoutes
from locallb.model.identities import Protocol
from locallb.model.objects import ServicePort

_OF_SCHEMES = {"http": 80, "https": 443}


def with_mapped_redirects(chains: tuple[Chain, ...], ports: Iterable[ServicePort]) -> tuple[Chain, ...]:
    """Return chains whose redirects lead to where clients find `ports`; the very same where none is mapped."""
    numbers = {port.port: port.number for port in ports if port.protocol is Protocol.TCP and port.number != port.port}
    return tuple(_chain(chain, numbers) for chain in chains) if numbers else chains


def _chain(chain: Chain, numbers: Mapping[int, int]) -> Chain:
    if not isinstance(chain.serves, HttpRoutes):
        return chain
    hosts = (replace(host, routes=tuple(_route(each, numbers) for each in host.routes)) for host in chain.serves.hosts)
    return replace(chain, serves=replace(chain.serves, hosts=tuple(hosts)))


def _route(route: Route, numbers: Mapping[int, int]) -> Route:
    to = route.action
    if not isinstance(to, Redirect) or to.hostname:
        return route
    number = numbers.get(to.port or _OF_SCHEMES.get(to.scheme, 0))
    return replace(route, action=replace(to, port=number)) if number else route
