"""Routes, routing rules, interfaces and addresses of this host, as the kernel lists them. Pure.

Properties are those of one route alone. Policy routing rules (`ip rule`) that lead to other tables are compared with
the routes, for the packets of this host that they divert. Interfaces show which networks never leave this host.

Envoy binds with IP_FREEBIND, so an unassigned address "serves" as well; only the kernel's local table proves an address
of this host: one check for `up`, `preview`, `watch`, `doctor` and `host setup` (`survey`). Sets of numbers, no single
addresses: ::/0 costs as much as 127.77.0.0/27.

Not here: reading, adding and removing routes, rules and interfaces (`host/netlink`), and the meaning of all routes
together for pools (`planning/pool_routes`) and for pods (`planning/endpoints`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from locallb.model.identities import Family, IPAddress, IPNetwork
from locallb.model.ranges import AddressRange, Span, intersect, merge, range_of, span_of, spans_of, subtract
from locallb.patterns import pattern

_BRIDGE = "bridge"
_VIRTUAL_PORTS = frozenset({"veth", "tun", "dummy"})
"""Kinds of bridge ports behind which are containers and virtual machines. Physical ones have no kind."""
_HYPERVISOR = pattern(r"(vboxnet|vmnet)\d+")
"""Host-only networks of VirtualBox and VMware, with drivers that report no kind."""


class Interface(Struct, frozen=True):
    """A network interface, as the kernel lists it."""

    name: str
    index: int
    kind: str = ""
    """`bridge`, `veth`, `tun`, …; empty for hardware and drivers that give none."""
    master: int = 0
    """The index of the bridge that it is a port of."""


def networks_of_host(interfaces: Iterable[Interface]) -> frozenset[str]:
    """Return the interfaces with networks between this host and its own containers and virtual machines.

    A bridge with any other port is excluded: with the network card in it, its network is the office's.
    """
    existing = tuple(interfaces)
    open_bridges = {port.master for port in existing if port.master and port.kind not in _VIRTUAL_PORTS}
    return frozenset(
        interface.name
        for interface in existing
        if (interface.kind == _BRIDGE and interface.index not in open_bridges)
        or (not interface.kind and not interface.master and _HYPERVISOR.fullmatch(interface.name))
    )


def is_host_only(route: HostRoute | None, networks: frozenset[str]) -> bool:
    """Return whether packets that take `route` reach this host itself, or a neighbour in one of `networks`.

    A network that exists on this host only can't have another machine's API server in it. A private range proves
    nothing: 10.0.0.0/8 may be the company's.
    """
    if route is None:
        return False
    return route.kind == "local" or (route.kind == "unicast" and route.gateway is None and route.device in networks)


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


class HostRoute(Struct, frozen=True):
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
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # versions are equal


LOOKUP, NO_ACTION = "lookup", "nop"
_EVERYTHING = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
_THROW = "9"
"""A kind of route: go on with the next rule."""


class HostRule(Struct, frozen=True):
    """A rule, as the kernel lists it."""

    version: int
    priority: int
    table: int = MAIN_TABLE
    action: str = LOOKUP
    source: IPNetwork | None = None
    destination: IPNetwork | None = None
    mark: int = 0
    mask: int = 0
    """The bits of a packet's mark that must equal those of `mark`."""
    device: bool = False
    """It is about forwarded packets, or packets that leave by one interface."""
    special: bool = False
    """It asks for more than is read: users, ports."""
    inverted: bool = False
    longer_than: int = -1
    """Routes with no more bits than these don't count."""

    def catches(self, own: Iterable[IPAddress]) -> bool:
        """Return whether it may match unmarked packets that this host sends from one of its `own` addresses.

        An unknown condition of a rule counts as matched.
        """
        source = self.source
        misses = self.device or bool(self.mark & self.mask) or (source and not any(map(source.__contains__, own)))
        return misses or self._requires if self.inverted else not misses

    @property
    def _requires(self) -> bool:
        return bool(self.source or self.destination or self.special)


class Diversion(Struct, frozen=True):
    """Packets of this host that a rule may route differently than the main table."""

    network: IPNetwork
    owner: str
    yields: bool
    """A longer prefix in the main table comes first."""


def diversions(rules: Iterable[HostRule], routes: Sequence[HostRoute]) -> tuple[Diversion, ...]:
    """Return what is led elsewhere before the main table decides for good; sorted, each once.

    VPNs make such rules: WireGuard leads packets without its own mark to a table of its own, unless the main table has
    a better route than the default route; Tailscale has table 52.
    """
    own = [route.destination[0] for route in routes if route.is_own]
    caught = sorted((rule for rule in rules if rule.catches(own)), key=lambda rule: rule.priority)
    diverted = {diversion for version in _EVERYTHING for diversion in _of_family(version, caught, routes)}
    return tuple(sorted(diverted, key=str))


def _of_family(version: int, rules: Iterable[HostRule], routes: Sequence[HostRoute]) -> Iterator[Diversion]:
    yields = False
    for rule in rules:
        if rule.version != version or rule.action == NO_ACTION:
            continue
        if rule.action == LOOKUP and rule.table == MAIN_TABLE:
            for_all = not (rule.source or rule.destination or rule.special)
            if for_all and rule.longer_than < 0:
                return
            yields = yields or for_all
        elif rule.action != LOOKUP:
            yield Diversion(_within(rule, _EVERYTHING[version]) or _EVERYTHING[version], _name(rule), yields)
        elif rule.table not in {LOCAL_TABLE, DEFAULT_TABLE}:
            for route in routes:
                if (
                    route.table == rule.table
                    and route.kind != _THROW
                    and route.destination.prefixlen > rule.longer_than
                ):
                    where = _within(rule, route.destination)
                    if where and where.version == version and route.is_usual:
                        yield Diversion(where, f"{route.owner} ({_name(rule)})", yields)


def _within(rule: HostRule, network: IPNetwork) -> IPNetwork | None:
    """Return the part of `network` that a rule is about."""
    wanted = None if rule.inverted else rule.destination
    if wanted is None or inside(network, wanted):
        return network
    return wanted if inside(wanted, network) else None


def _name(rule: HostRule) -> str:
    where = f"table {rule.table}" if rule.action == LOOKUP else rule.action
    return f"ip rule {rule.priority}: {where}"


_PUBLIC = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "2000::/3"}
_NOT_PUBLIC = {
    Family.IPV4: (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
    ),
    Family.IPV6: ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
}  # fmt: skip
"""IANA's registries of special-purpose addresses, as far as they aren't global."""


class HostAddresses(Struct, frozen=True):
    """Addresses in this host's tables, at one moment."""

    local: tuple[AddressRange, ...] = ()
    """Addresses that are provably this host's, whatever the route; sorted and disjoint in each family."""
    own: tuple[tuple[IPAddress, str], ...] = ()
    """The addresses of interfaces other than lo, each with its interface: they face a network."""
    broadcast: frozenset[IPAddress] = frozenset()
    """Broadcast addresses of networks of this host, which can be bound and not connected to."""
    routes: tuple[HostRoute, ...] = ()
    """Ways to addresses that pools may have, the default route apart."""

    @property
    def on_link(self) -> tuple[IPv6Network, ...]:
        """The IPv6 networks that this host is a member of: there neighbours ask for each address."""
        return tuple(
            route.destination
            for route in self.routes
            if isinstance(route.destination, IPv6Network) and route.is_connected
        )

    def interface(self, address: IPAddress) -> str:
        """Return the interface other than lo that has `address`, empty if none does."""
        return next((device for own, device in self.own if own == address), "")


def survey(routes: Sequence[HostRoute], bindable: Collection[IPAddress] | None = None) -> HostAddresses:
    """Work out what the routes prove. `bindable` restricts IPv6 to these, for who can't bind behind a local route.

    In the local table as anywhere the longest prefix counts: a broadcast or anycast address within a local prefix isn't
    one to connect to.
    """
    spans = _proven(routes)
    if bindable is not None:
        spans[Family.IPV6] = intersect(spans[Family.IPV6], [(int(address), int(address)) for address in bindable])
    return HostAddresses(
        local=tuple(range_of(family, span) for family in Family for span in spans[family]),
        own=tuple(sorted({(route.destination[0], route.device) for route in routes if route.is_own}, key=str)),
        broadcast=frozenset(route.destination[0] for route in routes if route.kind == "broadcast"),
        routes=tuple(route for route in routes if route.is_usual and (route.is_local or route.leads_elsewhere)),
    )


def _proven(routes: Iterable[HostRoute]) -> dict[Family, list[Span]]:
    spans: dict[Family, list[Span]] = {family: [] for family in Family}
    for family, local, other in _by_length(routes):
        spans[family] = subtract([*spans[family], *local], other)
    return spans


def _by_length(routes: Iterable[HostRoute]) -> Iterator[tuple[Family, list[Span], list[Span]]]:
    """Sort the local table by length of prefix, each with what is local and what is anything else."""
    table: dict[tuple[int, int], tuple[list[Span], list[Span]]] = defaultdict(lambda: ([], []))
    for route in routes:
        if route.table == LOCAL_TABLE:
            local, other = table[route.destination.version, route.destination.prefixlen]
            (local if route.is_local else other).append(span_of(route.destination))
    for (version, _), (local, other) in sorted(table.items()):
        yield (Family.IPV4 if version == 4 else Family.IPV6), local, other  # noqa: PLR2004 - IP version 4


def usable(ranges: Iterable[AddressRange], family: Family, host: HostAddresses) -> list[Span]:
    """Return the addresses of `ranges` that Services may have on this host.

    Addresses that are provably its own; an interface's own address only if it is listed by itself, never out of a
    range; no other IPv6 address in a network that this host is a member of, where neighbours would never find it.
    """
    listed = list(ranges)
    wide = spans_of((span for span in listed if span.first != span.last), family)
    lone = spans_of((span for span in listed if span.first == span.last), family)
    local = spans_of(host.local, family)
    own = merge((int(address), int(address)) for address, _ in host.own if Family.of(address) is family)
    link = [*map(span_of, host.on_link)] if family is Family.IPV6 else []
    of_ranges = subtract(intersect(wide, local), [*own, *link])
    return merge([*of_ranges, *subtract(intersect(lone, local), subtract(link, own))])


def is_public(addresses: AddressRange) -> bool:
    """Return whether any of these addresses is one of the internet's."""
    family = Family.of(addresses.first)
    public, special = _spans(_PUBLIC[family]), _spans(*_NOT_PUBLIC[family])
    return bool(subtract(intersect(spans_of([addresses], family), public), special))


def _spans(*networks: str) -> list[Span]:
    return [span_of(ip_network(text)) for text in networks]
