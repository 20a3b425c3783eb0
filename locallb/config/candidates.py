"""The addresses that a pool may hand out: its ranges without exclusions and addresses that no pool may have."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import accumulate
from operator import itemgetter

from msgspec import Struct

from locallb.config.settings import Pool
from locallb.model.identities import Family, IPAddress
from locallb.model.ranges import Span, span_of, spans_of, subtract
from locallb.model.routes import usable
from locallb.model.snapshot import HostFacts

_NEVER = {
    "127.0.0.0": "the loopback network itself",
    "127.0.0.1": "localhost",
    "127.0.0.53": "systemd-resolved",
    "127.0.0.54": "systemd-resolved",
    "127.0.1.1": "the host's own name",
    "127.255.255.255": "a broadcast address",
    "0.0.0.0/32": "the unspecified address",
    "224.0.0.0/4": "multicast",
    "255.255.255.255": "a broadcast address",
    "::": "the unspecified address",
    "::1": "localhost",
    "::ffff:0:0/96": "IPv4-mapped IPv6",
    "fe80::/10": "link-local, which needs an interface",
    "ff00::/8": "multicast",
}


_NEVER_NETWORKS = [(ip_network(text), why) for text, why in _NEVER.items()]


NEVER_SPANS = {
    family: [span_of(network) for network, _ in _NEVER_NETWORKS if Family.of(network) is family] for family in Family
}
"""Addresses that no pool may ever assign, as numbers."""


def never(address: IPAddress) -> str | None:
    """Return why no pool may ever hand out `address`; None if one may."""
    return next((why for network, why in _NEVER_NETWORKS if address in network), None)


_BEYOND = 1 << 128
"""A number that no address has."""


class Candidates(Struct, frozen=True):
    """The addresses of one family that a pool may hand out, numbered from 0 to `size` - 1 in ascending order."""

    family: Family
    spans: tuple[Span, ...]
    """Sorted and disjoint."""
    numbers: tuple[int, ...]
    """For each span the number of its first address."""
    size: int

    def __getitem__(self, number: int) -> IPAddress:
        """Return the address of this number; `number` is below `size`."""
        place = bisect_right(self.numbers, number) - 1
        return self.address(self.spans[place][0] + number - self.numbers[place])

    def address(self, value: int) -> IPAddress:
        """Write a number of the spans as an address."""
        return IPv4Address(value) if self.family is Family.IPV4 else IPv6Address(value)

    def number(self, address: IPAddress) -> int | None:
        """Return the number of `address`, or None if it isn't among the candidates."""
        if Family.of(address) is not self.family:
            return None
        value = int(address)
        place = bisect_right(self.spans, (value, _BEYOND)) - 1
        if place < 0 or value > self.spans[place][1]:
            return None
        return self.numbers[place] + value - self.spans[place][0]

    def following(self, address: IPAddress) -> int:
        """Return the number of `address` or else of the next candidate after it, going round."""
        value = int(address)
        place = bisect_left(self.spans, value, key=itemgetter(1))
        return 0 if place == len(self.spans) else self.numbers[place] + max(0, value - self.spans[place][0])

    def __contains__(self, address: IPAddress) -> bool:
        return self.number(address) is not None


def candidates(pool: Pool, family: Family) -> Candidates:
    """Return the addresses that `pool` may give on some host: its ranges without exclusions and unusable addresses."""
    return _numbered(pool, family, spans_of(pool.ranges, family))


def possible(pool: Pool, family: Family, host: HostFacts) -> Candidates:
    """Return the candidates that are provably this host's; all of them if nothing is known of the host."""
    existing = host.addresses
    return _numbered(pool, family, usable(pool.ranges, family, existing)) if existing else candidates(pool, family)


def _numbered(pool: Pool, family: Family, ranges: Iterable[Span]) -> Candidates:
    spans = subtract(ranges, [*spans_of(pool.exclude, family), *NEVER_SPANS[family]])
    sizes = [last - first + 1 for first, last in spans]
    return Candidates(family, tuple(spans), tuple(accumulate(sizes[:-1], initial=0)), sum(sizes))


def listed(pool: Pool, address: IPAddress) -> bool:
    """Return whether `address` is in the pool's ranges, excluded or not."""
    return any(first <= int(address) <= last for first, last in spans_of(pool.ranges, Family.of(address)))


def by_priority(pools: Iterable[Pool]) -> list[Pool]:
    """Sort pools as they are tried: highest priority first, equal ones in the order of the configuration."""
    return sorted(pools, key=lambda pool: -pool.priority)
