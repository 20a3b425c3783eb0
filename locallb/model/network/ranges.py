"""Ranges of addresses and networks, and the same as spans of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from locallb.model.identities import Family, IPAddress, IPNetwork
from locallb.model.network.spans import Span, subtract


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
