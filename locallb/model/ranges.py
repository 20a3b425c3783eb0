"""Ranges of addresses, and the arithmetic of networks and ranges as spans of numbers. Pure.

A span is its first and its last number, so that a set of addresses costs the same with one member or with 2**128.

Not here: the meaning of addresses (`routes`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, get_mixed_type_key
from operator import itemgetter

from msgspec import Struct

from locallb.model.identities import Family, IPAddress, IPNetwork

Span = tuple[int, int]
"""Numbers from the first to the last, both included."""


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
    remaining: list[Span] = []
    gaps = merge(holes)
    for first, last in merge(spans):
        start = first
        for hole in gaps[bisect_left(gaps, first, key=itemgetter(1)) :]:
            if hole[0] > last:
                break
            if start < hole[0]:
                remaining.append((start, hole[0] - 1))
            start = hole[1] + 1
        if start <= last:
            remaining.append((start, last))
    return remaining


def intersect(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return what both have; the result is sorted and disjoint."""
    common: list[Span] = []
    bounds = merge(others)
    for first, last in merge(spans):
        for other in bounds[bisect_left(bounds, first, key=itemgetter(1)) :]:
            if other[0] > last:
                break
            common.append((max(first, other[0]), min(last, other[1])))
    return common


class AddressRange(Struct, frozen=True):
    """Addresses of one family from `first` to `last`, both included."""

    first: IPAddress
    last: IPAddress

    def __contains__(self, address: IPAddress) -> bool:
        same_family = address.version == self.first.version
        return same_family and int(self.first) <= int(address) <= int(self.last)

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        size = int(self.last) - int(self.first) + 1
        prefix = self.first.max_prefixlen - (size.bit_length() - 1)
        aligned = size.bit_count() == 1 and int(self.first) % size == 0
        return f"{self.first}/{prefix}" if aligned else f"{self.first}-{self.last}"


def spans_of(ranges: Iterable[AddressRange], family: Family) -> list[Span]:
    """Return the addresses of one family as numbers."""
    return [(int(span.first), int(span.last)) for span in ranges if Family.of(span.first) is family]


def span_of(network: IPNetwork) -> Span:
    """Return the addresses of a network as numbers."""
    return int(network.network_address), int(network.broadcast_address)


def covered(network: IPNetwork, by: Iterable[IPNetwork]) -> bool:
    """Return whether all of `network` lies within `by`, which may cover it in pieces."""
    return not subtract([span_of(network)], (span_of(part) for part in by if part.version == network.version))


def range_of(family: Family, span: Span) -> AddressRange:
    """Write numbers as addresses again."""
    make: type[IPAddress] = IPv4Address if family is Family.IPV4 else IPv6Address
    return AddressRange(make(span[0]), make(span[1]))


def sorted_networks(networks: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    """Return each network once, by family, number and length."""
    return tuple(sorted(set(networks), key=get_mixed_type_key))
