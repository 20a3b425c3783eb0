"""Which addresses a pool can hand out, and which of them are still free.

Everything is interval arithmetic: an IPv6 pool of 2**64 addresses costs as much as one of 32, because nothing is ever
enumerated. Who gets which address is decided in `allocation`, what a pool may look like in `parse_settings`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import accumulate
from operator import itemgetter

from locallb.planning.host.addresses import spans_of, usable
from locallb.planning.model import Family, IPAddress, Service
from locallb.planning.selection import selects
from locallb.planning.settings import Pool
from locallb.planning.snapshot import HostFacts
from locallb.planning.spans import Span, subtract

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
NEVER_SPANS = {
    family: [
        (int(network.network_address), int(network.broadcast_address))
        for network, _ in _NEVER_NETWORKS
        if Family.of(network) is family
    ]
    for family in Family
}
"""What no pool may ever hand out, as numbers."""


def never(address: IPAddress) -> str | None:
    """Tell why no pool may ever hand out `address`; None if one may."""
    return next((why for network, why in _NEVER_NETWORKS if address in network), None)


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
        return self.address(self.spans[place][0] + number - self.numbers[place])

    def address(self, value: int) -> IPAddress:
        """Write a number of the spans as an address."""
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

    def following(self, address: IPAddress) -> int:
        """Return the number of `address` or else of the next candidate after it, going round."""
        value = int(address)
        place = bisect_left(self.spans, value, key=itemgetter(1))
        return 0 if place == len(self.spans) else self.numbers[place] + max(0, value - self.spans[place][0])

    def __contains__(self, address: IPAddress) -> bool:
        return self.number(address) is not None


def candidates(pool: Pool, family: Family) -> Candidates:
    """Return what `pool` may give on some host: its ranges less its exclusions and what nobody may have."""
    return _numbered(pool, family, spans_of(pool.ranges, family))


def possible(pool: Pool, family: Family, host: HostFacts) -> Candidates:
    """Return those candidates that are provably this host's; all of them where nothing is known of the host."""
    known = host.addresses
    return _numbered(pool, family, usable(pool.ranges, family, known)) if known else candidates(pool, family)


def _numbered(pool: Pool, family: Family, ranges: Iterable[Span]) -> Candidates:
    spans = subtract(ranges, [*spans_of(pool.exclude, family), *NEVER_SPANS[family]])
    sizes = [last - first + 1 for first, last in spans]
    return Candidates(family, tuple(spans), tuple(accumulate(sizes[:-1], initial=0)), sum(sizes))


def listed(pool: Pool, address: IPAddress) -> bool:
    """Tell whether `address` is in the pool's ranges, excluded or not."""
    return any(first <= int(address) <= last for first, last in spans_of(pool.ranges, Family.of(address)))


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
