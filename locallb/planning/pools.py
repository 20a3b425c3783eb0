"""Which addresses a pool can hand out, and which of them are still free.

Everything is interval arithmetic: an IPv6 pool of 2**64 addresses costs as much as one of 32, because nothing is ever
enumerated. Who gets which address is decided in `allocation`, what a pool may look like in `parse_settings`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import accumulate

from locallb.planning.model import Family, IPAddress, Service
from locallb.planning.selection import selects
from locallb.planning.settings import AddressRange, Pool
from locallb.planning.snapshot import HostFacts

Span = tuple[int, int]
"""Numbers of addresses of one family, from the first to the last, both included."""


def span(addresses: AddressRange) -> Span:
    """Give a range's addresses as numbers."""
    return int(addresses.first), int(addresses.last)


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
    "::ffff:0:0/96": "IPv4 in IPv6 clothes",
    "fe80::/10": "link-local, which needs an interface",
    "ff00::/8": "multicast",
}
_NEVER_NETWORKS = [(ip_network(text), why) for text, why in _NEVER.items()]
_NEVER_SPANS = {
    family: [
        (int(network.network_address), int(network.broadcast_address))
        for network, _ in _NEVER_NETWORKS
        if Family.of(network) is family
    ]
    for family in Family
}


def never(address: IPAddress) -> str | None:
    """Tell why no pool may ever hand out `address`; None if one may."""
    return next((why for network, why in _NEVER_NETWORKS if address in network), None)


def merge(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap or touch; the result is sorted."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def subtract(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Take `holes` out of `spans`; the result is sorted and disjoint."""
    left = merge(spans)
    for hole in merge(holes):
        left = [piece for each in left for piece in _without(each, hole)]
    return left


def _without(whole: Span, hole: Span) -> Iterator[Span]:
    if hole[1] < whole[0] or whole[1] < hole[0]:
        yield whole
        return
    if whole[0] < hole[0]:
        yield whole[0], hole[0] - 1
    if hole[1] < whole[1]:
        yield hole[1] + 1, whole[1]


_BEYOND = 1 << 128
"""A number that no address has."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The addresses of one family that a pool may hand out at all, numbered from 0 to `size` - 1 in their order."""

    family: Family
    spans: tuple[Span, ...]
    """Sorted and disjoint."""
    numbers: tuple[int, ...]
    """For each span the number of its first address."""
    size: int

    def __getitem__(self, number: int) -> IPAddress:
        """Give the address of this number; `number` is below `size`."""
        place = bisect_right(self.numbers, number) - 1
        value = self.spans[place][0] + number - self.numbers[place]
        return IPv4Address(value) if self.family is Family.IPV4 else IPv6Address(value)

    def number(self, address: IPAddress) -> int | None:
        """Give the number of `address`, or None if it isn't among the candidates."""
        if Family.of(address) is not self.family:
            return None
        value = int(address)
        place = bisect_right(self.spans, (value, _BEYOND)) - 1
        if place < 0 or value > self.spans[place][1]:
            return None
        return self.numbers[place] + value - self.spans[place][0]

    def __contains__(self, address: IPAddress) -> bool:
        return self.number(address) is not None


def candidates(pool: Pool, family: Family, barred: Iterable[AddressRange] = ()) -> Candidates:
    """Give what `pool` may hand out in `family`: its ranges less its exclusions, what nobody may have and `barred`."""
    holes = [*_spans(pool.exclude, family), *_NEVER_SPANS[family], *_spans(barred, family)]
    spans = subtract(_spans(pool.ranges, family), holes)
    sizes = [last - first + 1 for first, last in spans]
    return Candidates(family, tuple(spans), tuple(accumulate(sizes[:-1], initial=0)), sum(sizes))


def useless_ranges(host: HostFacts) -> tuple[AddressRange, ...]:
    """Give the ranges that can't be used at all: not on this host, or in a network where nobody would find them."""
    absent = [AddressRange(first, last) for first, last in host.absent_ranges]
    return (*absent, *(AddressRange(network[0], network[-1]) for network in host.on_link))


def _spans(ranges: Iterable[AddressRange], family: Family) -> list[Span]:
    return [span(each) for each in ranges if Family.of(each.first) is family]


def listed(pool: Pool, address: IPAddress) -> bool:
    """Tell whether `address` is in the pool's ranges, excluded or not."""
    return any(first <= int(address) <= last for first, last in _spans(pool.ranges, Family.of(address)))


def allows(pool: Pool, service: Service) -> bool:
    """Tell whether the pool's namespaces and selector let `service` use it."""
    return selects(service, pool.namespaces, pool.selector)


def by_priority(pools: Iterable[Pool]) -> list[Pool]:
    """Sort pools as they are tried: highest priority first, equal ones in the order of the configuration."""
    return sorted(pools, key=lambda pool: -pool.priority)


class Slots:
    """Which candidates are free. Taking and finding are near constant time, however full or large the pool is.

    Each taken number points to a later one that may be free; `first_free` follows and shortens these paths.
    """

    def __init__(self, those: Candidates) -> None:
        self._candidates = those
        self._later: dict[int, int] = {}

    def take(self, address: IPAddress) -> bool:
        """Take `address`; return whether it was a free candidate."""
        number = self._candidates.number(address)
        if number is None or number in self._later:
            return False
        self._later[number] = number + 1
        return True

    def first_free(self, preferred: int) -> IPAddress | None:
        """Give the first free candidate from `preferred` (modulo size) on, going round; None if all are taken."""
        size = self._candidates.size
        if len(self._later) >= size:
            return None
        number = self._follow(preferred % size)
        return self._candidates[number if number < size else self._follow(0)]

    def _follow(self, start: int) -> int:
        end = start
        while end in self._later:
            end = self._later[end]
        while start != end:
            self._later[start], start = end, self._later[start]
        return end
