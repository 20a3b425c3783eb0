"""Addresses that are provably this host's: one check for `up`, `preview`, `watch`, `doctor` and `host setup`.

Envoy binds with IP_FREEBIND, so an unassigned address "serves" as well; only the kernel's local table proves an
address. Sets of numbers, never single addresses: ::/0 costs as much as 127.77.0.0/27. Not here: reading the table, and
its meaning for a whole pool (`pool_routes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv6Network, ip_network

from msgspec import Struct

from locallb.model.identities import Family, IPAddress
from locallb.model.ranges import AddressRange, Span, intersect, merge, range_of, span_of, spans_of, subtract
from locallb.model.routes import LOCAL_TABLE, HostRoute

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
