"""Routes of the host, as the kernel lists them, and properties of each route alone.

Pure: routes are an argument. Not here: reading, adding and removing routes, and the meaning of all routes together.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from locallb.model.identities import IPAddress, IPNetwork

PROTOCOL = 77
"""Protocol number of our routes in the kernel's table (`proto 77`), which distinguishes them from other routes."""
POD_PROTOCOL = 78
"""The same of routes to pods. The metric of such a route identifies its owner."""
LOCAL_TABLE = 255
"""The table that the kernel reads first, and the only one that makes an address this host's own: a route of type
`local` in another table (as transparent proxies have it) is about marked packets.
"""
LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
"""Local on every Linux."""
MAIN_TABLE, DEFAULT_TABLE = 254, 253
"""Tables that the kernel reads for every packet; others are for packets that rules select."""
_WIDEST_OF_DEFAULT = 3
"""Bits of the longest prefix that counts as the default route: 0.0.0.0/1 and 2000::/3 are such."""
_LINK_LOCAL = (IPv6Network("fe80::/10"), IPv6Network("ff00::/8"), IPv4Network("224.0.0.0/4"))
_DEAD_ENDS = {"blackhole", "unreachable", "8", "9"}
"""The last two are prohibit and throw."""
_DOCKER = ("docker", "br-", "podman", "cni", "virbr")
_VPN = ("tun", "tap", "wg", "ppp", "tailscale", "nordlynx", "utun", "zt", "ipsec", "vpn")


class Route(Struct, frozen=True):
    """A route of the host, as the kernel lists it."""

    destination: IPNetwork
    kind: str
    """`local`, `unicast`, `broadcast`, …"""
    device: str = ""
    gateway: IPAddress | None = None
    table: int = 254
    protocol: int = 0
    """Protocol number of its creator; PROTOCOL or POD_PROTOCOL for ours."""
    metric: int = 0
    """Of routes to one destination the kernel takes the one with the lowest."""

    @property
    def owner(self) -> str:
        """Return the owner of the route, as far as its device shows it."""
        if self.device.startswith(_DOCKER):
            return f"the network of Docker or virtual machines on {self.device}"
        if self.device.startswith(_VPN):
            return f"the VPN on {self.device}"
        if self.is_dead_end:
            return "kept from leading anywhere"
        via = f" via {self.gateway}" if self.gateway else ""
        return f"the route to {self.destination}{via} on {self.device or 'no device'}"

    @property
    def is_local(self) -> bool:
        """Whether it makes its destination this host's own, for every packet."""
        return self.kind == "local" and self.table == LOCAL_TABLE

    @property
    def is_own(self) -> bool:
        """Whether its destination is an address of an interface other than lo."""
        return self.is_local and self.device != "lo" and self.destination.num_addresses == 1

    @property
    def is_connected(self) -> bool:
        """Whether it leads to a network that this host is a member of."""
        return self.kind == "unicast" and self.gateway is None and not self.device.startswith(("lo", *_VPN))

    @property
    def is_way(self) -> bool:
        """Whether it certainly leads to its destination: the default route may not."""
        return self.destination.prefixlen > 0 and self.kind in {"unicast", "local"}

    @property
    def is_dead_end(self) -> bool:
        """Whether it drops packets to its destination."""
        return self.kind in _DEAD_ENDS

    @property
    def counts_for_all(self) -> bool:
        """Whether it affects packets to possible pod addresses, from any sender."""
        return self.table in {LOCAL_TABLE, MAIN_TABLE, DEFAULT_TABLE} and not any(
            inside(self.destination, network) for network in _LINK_LOCAL
        )

    @property
    def is_default(self) -> bool:
        """Whether it is for destinations without a better route: the default route, or half of it as VPNs have it."""
        return self.destination.prefixlen <= _WIDEST_OF_DEFAULT

    @property
    def leads_elsewhere(self) -> bool:
        """Whether it leads off this host, except the default route."""
        return self.is_way and self.kind == "unicast"

    @property
    def is_usual(self) -> bool:
        """Whether it covers addresses that pools may have: neither loopback, link-local nor multicast."""
        return not any(inside(self.destination, network) for network in (*_LINK_LOCAL, *LOOPBACK))


class PodRoute(Struct, frozen=True):
    """A way to pods: by the Node that has them."""

    destination: IPNetwork
    gateway: IPAddress

    def __str__(self) -> str:
        return f"{self.destination} via {self.gateway}"

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Its key for sorting."""
        network = self.destination
        return network.version, int(network.network_address), network.prefixlen, int(self.gateway)

    @classmethod
    def parse(cls, text: str) -> PodRoute:
        """Read what was printed. Raises ValueError."""
        destination, _, gateway = text.partition(" via ")
        route = cls(ip_network(destination), ip_address(gateway))
        if route.destination.version != route.gateway.version:
            raise ValueError(f"{text} is of two families")
        return route


def inside(inner: IPNetwork, outer: IPNetwork) -> bool:
    """Return whether `outer` has all of `inner`."""
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # versions are equal
