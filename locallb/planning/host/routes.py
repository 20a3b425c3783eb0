"""Pools against the host's routes: what is local already, what a local route would break, what can't work at all.

Pure: routes are an argument. Not here: how routes are read, added and removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, summarize_address_range

from locallb.planning.model import IPAddress, IPNetwork
from locallb.planning.reasons import Problem, Reason
from locallb.planning.settings import Pool

PROTOCOL = 77
"""Who made a route, in the kernel's table (`proto 77`): how ours are told apart."""
LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
"""Local on every Linux."""
_LINK_LOCAL = (IPv6Network("fe80::/10"), IPv6Network("ff00::/8"), IPv4Network("224.0.0.0/4"))
_DOCKER = ("docker", "br-", "podman", "cni", "virbr")
_VPN = ("tun", "tap", "wg", "ppp", "tailscale", "nordlynx", "utun", "zt", "ipsec", "vpn")


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the host, as the kernel lists it."""

    destination: IPNetwork
    kind: str
    """`local`, `unicast`, `broadcast`, …"""
    device: str = ""
    gateway: IPAddress | None = None
    table: int = 254
    protocol: int = 0
    """Who made it; PROTOCOL for ours."""

    @property
    def owner(self) -> str:
        """Say what the route belongs to, as far as its device tells."""
        if self.device.startswith(_DOCKER):
            return f"the network of Docker or virtual machines on {self.device}"
        if self.device.startswith(_VPN):
            return f"the VPN on {self.device}"
        via = f" via {self.gateway}" if self.gateway else ""
        return f"the route to {self.destination}{via} on {self.device or 'no device'}"


@dataclass(frozen=True, slots=True)
class PoolRoute:
    """A prefix of a pool that needs a local route, and how it stands."""

    pool: str
    prefix: IPNetwork
    local: bool = False
    """Every address of it is this host's already."""
    problem: Problem | None = None
    """Why it can't be made local."""
    note: str = ""
    """What to mind all the same."""


def prefixes(pool: Pool) -> tuple[IPNetwork, ...]:
    """Give the prefixes of a pool outside the loopback networks."""
    found: list[IPNetwork] = []
    for one in pool.ranges:
        found += _summarized(one.first, one.last)
    return tuple(prefix for prefix in found if not any(inside(prefix, loopback) for loopback in LOOPBACK))


def pool_routes(pools: Iterable[Pool], routes: Sequence[Route]) -> tuple[PoolRoute, ...]:
    """Hold every prefix of the pools against the routes."""
    return tuple(_judge(pool.name, prefix, routes) for pool in pools for prefix in prefixes(pool))


def is_local(prefix: IPNetwork, routes: Iterable[Route]) -> bool:
    """Tell whether every address of `prefix` is this host's: by one route, or by several that add up."""
    local = [route.destination for route in routes if route.kind == "local"]
    if any(inside(prefix, one) for one in local):
        return True
    within = [one for one in local if inside(one, prefix)]
    return sum(one.num_addresses for one in set(within)) >= prefix.num_addresses


def connected(routes: Iterable[Route]) -> tuple[IPv6Network, ...]:
    """Give the IPv6 prefixes of networks that this host is a member of: there neighbours ask for each address."""
    return tuple(
        route.destination
        for route in routes
        if isinstance(route.destination, IPv6Network) and _is_connected(route) and not _is_odd(route.destination)
    )


def is_way(route: Route) -> bool:
    """Tell whether a route leads to its destination for certain: the default route may lead nowhere near it."""
    return route.destination.prefixlen > 0 and route.kind in {"unicast", "local"}


def on_link(where: IPv6Network, pool: str, prefix: IPNetwork) -> Problem:
    """Say that an IPv6 pool lies in a connected network."""
    return Problem(
        Reason.POOL_ON_LINK,
        f"pool {pool}: {prefix} lies in {where}, a network that this host is connected to, where neighbours would "
        f"never find its addresses; choose a prefix outside of it, for example one below fd00:ff::/64",
    )


def inside(inner: IPNetwork, outer: IPNetwork) -> bool:
    """Tell whether `outer` has all of `inner`."""
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # versions are equal


def _judge(pool: str, prefix: IPNetwork, routes: Sequence[Route]) -> PoolRoute:
    local = is_local(prefix, routes)
    others = [route for route in routes if _counts(route) and prefix.overlaps(route.destination)]
    problems = [problem for route in others if (problem := _problem(pool, prefix, route, local=local))]
    notes = [_note(pool, prefix, route) for route in others if _is_connected(route)]
    return PoolRoute(pool, prefix, local, min(problems, default=None), "" if problems else "; ".join(notes))


def _problem(pool: str, prefix: IPNetwork, route: Route, *, local: bool) -> Problem | None:
    where = route.destination
    if isinstance(where, IPv6Network) and _is_connected(route):
        return on_link(where, pool, prefix)
    if local:
        return None  # what is, is; nothing would be made
    if route.kind == "local":
        if route.device == "lo":
            return None
        why = f"has this host's own address {where.network_address} on {route.device}"
    elif _is_connected(route) and inside(prefix, where) and prefix != where:
        return None
    else:
        why = f"overlaps {route.owner}: what is reached there now would be cut off"
    return Problem(Reason.POOL_OVERLAPS, f"pool {pool}: {prefix} {why}; choose another prefix in local-lb:pools")


def _note(pool: str, prefix: IPNetwork, route: Route) -> str:
    return (
        f"pool {pool}: {prefix} lies in {route.destination} of {route.owner}: nothing there may hand out the same "
        "addresses (limit its DHCP or `--ip-range`)"
    )


def _counts(route: Route) -> bool:
    """Leave out what overlaps everything or belongs to the kernel."""
    return route.destination.prefixlen > 0 and route.kind in {"unicast", "local"} and not _is_odd(route.destination)


def _is_connected(route: Route) -> bool:
    return route.kind == "unicast" and route.gateway is None and not route.device.startswith(("lo", *_VPN))


def _is_odd(destination: IPNetwork) -> bool:
    return any(inside(destination, one) for one in (*_LINK_LOCAL, *LOOPBACK))


def _summarized(first: IPAddress, last: IPAddress) -> list[IPNetwork]:
    return list(summarize_address_range(first, last))
