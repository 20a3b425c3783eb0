"""Which addresses of a cluster's pods this host reaches for certain, by its routes and by the cluster's Nodes.

A route says where packets go, not who is there: a VPN's 10.0.0.0/8, the bridge of Docker and another cluster's Node
all lead away from pods that have such addresses here. So only these count, where no longer prefix says otherwise:
a route by one of the cluster's own Nodes, a network that Nodes are in themselves, and any route but the default one
where this host is one of the Nodes. Not here: whether a pod lets this host in, which is for the proxy to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from locallb.model.identities import IPAddress, IPNetwork
from locallb.model.objects import Node
from locallb.model.routes import Route


class Way(NamedTuple):
    """A destination of this host's routes, in numbers, and whether what is there is the cluster's."""

    version: int
    first: int
    last: int
    leads: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """What this host reaches of one cluster's pods."""

    ways: tuple[Way, ...] = ()
    """Longest prefixes first; empty where none leads to the cluster."""

    def has(self, address: IPAddress) -> bool:
        """Return whether packets to `address` come to the cluster."""
        version, number = address.version, int(address)
        return next((leads for v, first, last, leads in self.ways if v == version and first <= number <= last), False)


def reach_of(nodes: Sequence[Node], routes: Iterable[Route]) -> Reach:
    """Work out what is reached of the cluster that has `nodes`: the very same where nothing has changed."""
    return _reach(frozenset(address for node in nodes for address in node.addresses), tuple(routes))


@lru_cache(maxsize=64)
def _reach(nodes: frozenset[IPAddress], routes: tuple[Route, ...]) -> Reach:
    by_destination: dict[IPNetwork, list[Route]] = {}
    for route in routes:
        by_destination.setdefault(route.destination, []).append(route)
    is_node = any(one.is_own and one.destination[0] in nodes for one in routes)
    ways = [
        Way(where.version, int(where[0]), int(where[-1]), all(_leads(one, nodes, is_node=is_node) for one in some))
        for where, some in by_destination.items()
    ]
    ways.sort(key=lambda way: (way.last - way.first, way))
    return Reach(tuple(ways)) if any(way.leads for way in ways) else Reach()


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
