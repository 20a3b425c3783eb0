"""Pod addresses that this host certainly reaches, by its routes and by the cluster's Nodes.

A route names the next hop, not the owner of the destination: a VPN's 10.0.0.0/8, Docker's bridge and another cluster's
Node all lead away from pods with such addresses here. So only these count, unless a longer prefix leads elsewhere:
a route by one of the cluster's own Nodes, a network of the Nodes themselves except the pod ranges behind each
(spec.podCIDRs), and any route but the default one if this host is one of the Nodes. Destinations of a rule
(`ip rule`) never count. Not here: whether a pod accepts this host, which the proxy finds out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from locallb.model.identities import IPAddress, IPNetwork
from locallb.model.network.ranges import span_of
from locallb.model.network.routes import Route, inside
from locallb.model.network.routing_rules import Diversion
from locallb.model.objects import Node


class Destination(NamedTuple):
    """A destination of this host's routes, as numbers, and whether it leads to the cluster."""

    version: int
    first: int
    last: int
    leads: bool


class Reach(Struct, frozen=True):
    """The pod addresses of one cluster that this host reaches."""

    destinations: tuple[Destination, ...] = ()
    """Longest prefixes first; empty if no route leads to the cluster."""

    def has(self, address: IPAddress) -> bool:
        """Return whether packets to `address` reach the cluster."""
        version, number = address.version, int(address)
        return next(
            (leads for v, first, last, leads in self.destinations if v == version and first <= number <= last), False
        )


def reach_of(nodes: Sequence[Node], routes: Iterable[Route], diversions: tuple[Diversion, ...] = ()) -> Reach:
    """Return the reach of the cluster that has `nodes`: the identical object if nothing has changed."""
    addresses = frozenset(address for node in nodes for address in node.addresses)
    behind = frozenset(network for node in nodes for network in node.pod_cidrs)
    return _reach(addresses, behind, tuple(routes), diversions)


@lru_cache(maxsize=64)  # all routes are gone through: not for each Node or EndpointSlice that changes
def _reach(
    nodes: frozenset[IPAddress],
    behind: frozenset[IPNetwork],
    routes: tuple[Route, ...],
    diversions: tuple[Diversion, ...],
) -> Reach:
    """Compute the reach; `behind` are networks behind Nodes: their addresses don't answer in the Nodes' own network."""
    by_destination: dict[IPNetwork, list[Route]] = {}
    for route in routes:
        by_destination.setdefault(route.destination, []).append(route)
    is_node = any(route.is_own and route.destination[0] in nodes for route in routes)
    destinations = [
        Destination(
            where.version, *span_of(where), all(_leads(route, nodes, is_node=is_node) for route in existing_routes)
        )
        for where, existing_routes in by_destination.items()
    ]
    links = (
        []
        if is_node
        else [where for where, existing_routes in by_destination.items() if any(map(_is_link, existing_routes))]
    )
    destinations += [_nowhere(route) for route in behind if _is_passed_on(route, links, by_destination)]
    destinations += [
        _nowhere(diversion.network)
        for diversion in diversions
        if diversion.yields and diversion.network not in by_destination
    ]
    destinations.sort(key=lambda destination: (destination.last - destination.first, destination))
    destinations[:0] = [_nowhere(diversion.network) for diversion in diversions if not diversion.yields]
    return Reach(tuple(destinations)) if any(destination.leads for destination in destinations) else Reach()


def _nowhere(network: IPNetwork) -> Destination:
    return Destination(network.version, *span_of(network), leads=False)


def _is_link(route: Route) -> bool:
    return route.gateway is None and not route.is_local


def _is_passed_on(network: IPNetwork, links: Iterable[IPNetwork], routes: Collection[IPNetwork]) -> bool:
    """Return whether `network` is in one of `links` and has no route of its own."""
    around = max((link.prefixlen for link in links if network != link and inside(network, link)), default=None)
    if around is None:
        return False
    return not any(network.supernet(new_prefix=bits) in routes for bits in range(network.prefixlen, around, -1))


def _leads(route: Route, nodes: Iterable[IPAddress], *, is_node: bool) -> bool:
    if route.is_default or not (route.is_local or route.kind == "unicast"):
        return False
    if is_node and not route.is_local:
        return True
    if route.gateway is not None:
        return route.gateway in nodes
    return (route.is_local or (route.is_connected and bool(route.device))) and any(
        node in route.destination for node in nodes
    )
