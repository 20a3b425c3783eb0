"""Conflicts of routes to pods: with networks of others, or with networks that no cluster may claim.

Not here: which routes are wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network

from msgspec import Struct

from locallb.model.formatting import counted
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork
from locallb.model.network.ranges import span_of
from locallb.model.network.routes import LOOPBACK, PodRoute, Route
from locallb.model.network.routing_rules import Diversion

_WIDEST = {Family.IPV4: 8, Family.IPV6: 16}
_SPECIAL = (
    *LOOPBACK,
    *map(ip_network, ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/8", "fe80::/10", "ff00::/8")),
)


class Claimed:
    """Destinations that have routes, with their owners; networks contain each other or are disjoint."""

    def __init__(self, routes: Iterable[Route], diversions: Iterable[Diversion] = ()) -> None:
        self._by: dict[tuple[int, int, int], list[tuple[IPAddress | None, str]]] = {}
        self._firsts: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for route in routes:
            self._note(route.destination, route.gateway, f"{route.destination} is {route.owner}")
        for diversion in diversions:
            self._note(diversion.network, None, f"{diversion.network} is led elsewhere: {diversion.owner}")
        self._settle()

    def add(self, cluster: ClusterName, routes: Iterable[PodRoute]) -> None:
        """Note what a cluster of this stack gets."""
        for route in routes:
            self._note(route.destination, route.gateway, f"cluster {cluster} has pods in {route.destination} as well")
        self._settle()

    def against(self, route: PodRoute) -> str:
        """Return the conflicts with `route`; empty without any, or if the existing route has the same gateway."""
        network, version = route.destination, route.destination.version
        first, last = span_of(network)
        for bits in range(network.prefixlen + 1):
            start = first >> (network.max_prefixlen - bits) << (network.max_prefixlen - bits)
            for gateway, what in self._by.get((version, start, bits), ()):
                if bits < network.prefixlen or gateway != route.gateway:
                    return what
        inner = self._firsts[version]
        for start, bits in inner[bisect_left(inner, (first, network.prefixlen + 1)) :]:
            if start > last:
                break
            if bits > network.prefixlen:
                return self._by[version, start, bits][0][1]
        return ""

    def _note(self, network: IPNetwork, gateway: IPAddress | None, what: str) -> None:
        key = network.version, int(network[0]), network.prefixlen
        if key not in self._by:
            self._firsts[network.version].append(key[1:])
        self._by.setdefault(key, []).append((gateway, what))

    def _settle(self) -> None:
        for firsts in self._firsts.values():
            firsts.sort()


class Refusals(Struct, frozen=True):
    """Reasons that prevent a route."""

    others: Claimed
    near: Sequence[IPNetwork] | None
    """Networks with possible gateways; None if no host is known."""
    named: Mapping[ClusterName, tuple[IPNetwork, ...]]

    def why(self, cluster: ClusterName, route: PodRoute) -> str:
        """Return why `route` isn't made; empty if it is."""
        network = route.destination
        if network.prefixlen < _WIDEST[Family.of(network)] or any(_meet(network, special) for special in _SPECIAL):
            return f"{network} is no network of pods"
        if network.is_global and network not in self.named.get(cluster, ()):
            return f"{network} is public; name it in the source's podCIDRs if pods are there all the same"
        if what := self.others.against(route):
            return what
        if self.near is not None and not any(route.gateway in network for network in self.near):
            return f"{route.gateway} is in no network that this host or its proxies are members of"
        return ""


def _meet(network: IPNetwork, other: IPNetwork) -> bool:
    return network.version == other.version and network.overlaps(other)


def reported(cluster: ClusterName, refused: Mapping[PodRoute, str], remedy: str) -> Iterator[str]:
    """Explain which routes of one cluster aren't made, and why."""
    for route, why in [*refused.items()][:1]:
        more = f", nor {counted(len(refused) - 1, 'other')} of its routes" if len(refused) > 1 else ""
        yield f"{cluster}: the route {route} to its pods isn't made{more}: {why}; remove what is in the way{remedy}"
