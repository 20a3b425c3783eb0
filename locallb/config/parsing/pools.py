"""Parses the pools: names, ranges and exclusions, and rejects pools that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_network

from locallb.config.candidates import candidates, never
from locallb.config.parsing.selection import parse_namespaces, parse_selector
from locallb.config.settings import Pool
from locallb.config.values import Mistakes, parse_address
from locallb.model.formatting import shown
from locallb.model.identities import Family, IPAddress
from locallb.model.network.ranges import AddressRange

DEFAULT_POOL = Pool("default", (AddressRange(IPv4Address("127.77.0.0"), IPv4Address("127.77.0.31")),))
"""The pool of a stack without the key `pools`: 32 addresses that every Linux host has, without any right."""

_KEYS = ("name", "addresses", "exclude", "priority", "namespaces", "selector")
_RANGES = "a list such as [127.77.0.0/27, 127.78.0.10-127.78.0.20]"
_EXAMPLE = "{name: shop, addresses: [127.77.0.0/27]}"


def parse_pools(mistakes: Mistakes, value: object) -> tuple[Pool, ...]:
    """Read the key `pools`. A pool with a mistake in its ranges is left out of the result."""
    entries = list(mistakes.items("pools", value, f"a list such as [{_EXAMPLE}]"))
    if isinstance(value, list | tuple) and not entries:
        mistakes.add("pools", "the list is empty; name a pool, or leave the key out for the default 127.77.0.0/27")
    pools = [pool for key, entry in entries if (pool := _pool(mistakes, key, entry))]
    _complain_of_names(mistakes, pools)
    _complain_of_overlaps(mistakes, pools)
    return tuple(pools)


def _pool(mistakes: Mistakes, key: str, value: object) -> Pool | None:
    entry = mistakes.mapping(key, value, _EXAMPLE)
    if not entry:
        if isinstance(value, Mapping) and not value:
            mistakes.add(key, f"the pool is empty; write {_EXAMPLE}")
        return None
    mistakes.unknown(f"{key}.", entry, _KEYS)
    pool = Pool(
        name=mistakes.label(f"{key}.name", entry.get("name"), "shop"),
        ranges=_ranges(mistakes, f"{key}.addresses", entry.get("addresses")),
        exclude=_ranges(mistakes, f"{key}.exclude", entry.get("exclude", [])),
        priority=mistakes.number(f"{key}.priority", entry.get("priority", 0)),
        namespaces=parse_namespaces(mistakes, f"{key}.namespaces", entry.get("namespaces", [])),
        selector=parse_selector(mistakes, f"{key}.selector", entry.get("selector", {})),
    )
    _complain_of_emptiness(mistakes, key, pool, entry.get("addresses"))
    return pool if pool.name and pool.ranges else None


def _ranges(mistakes: Mistakes, key: str, value: object) -> tuple[AddressRange, ...]:
    ranges = []
    for item_key, item in mistakes.items(key, value, _RANGES):
        text = mistakes.text(item_key, item, "127.77.0.0/27 or 127.78.0.10-127.78.0.20")
        parsed = text and parse_range(text)
        if isinstance(parsed, AddressRange):
            ranges.append(parsed)
        elif parsed:
            mistakes.add(item_key, parsed)
    return tuple(ranges)


def parse_range(text: str) -> AddressRange | str:
    """Parse a CIDR, a start-end range or a single address; return a text with the mistake for anything else."""
    if "/" in text:
        return _cidr(text)
    first_text, dash, last_text = (part.strip() for part in text.partition("-"))
    first, last = parse_address(first_text), parse_address(last_text if dash else first_text)
    if first is None or last is None:
        return f"{shown(text)} is neither a CIDR nor a range; write 127.77.0.0/27 or 127.78.0.10-127.78.0.20"
    if first.version != last.version:
        return f"{text} begins with {Family.of(first)} and ends with {Family.of(last)}; write one range for each family"
    if int(last) < int(first):
        return f"{text} ends before it begins; write {last}-{first}"
    return AddressRange(first, last)


def _cidr(text: str) -> AddressRange | str:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return f"{shown(text)} is neither a CIDR nor a range; write 127.77.0.0/27 or 127.78.0.10-127.78.0.20"
    written = parse_address(text.partition("/")[0])
    if written != network.network_address:
        return f"{text} has bits set beyond its prefix; write {network} for the network, or {written} for one address"
    return AddressRange(network.network_address, network.broadcast_address)


def _complain_of_emptiness(mistakes: Mistakes, key: str, pool: Pool, addresses: object) -> None:
    if isinstance(addresses, list | tuple) and not addresses:
        mistakes.add(f"{key}.addresses", f"the list is empty; write {_RANGES}")
    for part in pool.ranges:
        if not _usable([part], ()):
            what = never(part.first)
            mistakes.add(f"{key}.addresses", f"{part} is never handed out ({what}); choose another range")
    if _usable(pool.ranges, ()) and not _usable(pool.ranges, pool.exclude):
        mistakes.add(f"{key}.exclude", "nothing is left of the pool; exclude less, or remove the pool")
    for excluded in pool.exclude:
        if pool.ranges and not any(_common(excluded, other) for other in pool.ranges):
            mistakes.add(f"{key}.exclude", f"{excluded} is not in the pool; remove it")


def _usable(ranges: Iterable[AddressRange], exclude: Iterable[AddressRange]) -> bool:
    pool = Pool("", tuple(ranges), tuple(exclude))
    return any(candidates(pool, family).size for family in Family)


def _complain_of_names(mistakes: Mistakes, pools: Sequence[Pool]) -> None:
    names = [pool.name for pool in pools]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        mistakes.add("pools", f"{names.count(name)} pools are called {name}; give each a name of its own")


def _complain_of_overlaps(mistakes: Mistakes, pools: Sequence[Pool]) -> None:
    """Name every pair of pools that have addresses in common, and the lowest range of these."""
    for number, pool in enumerate(pools):
        for other in pools[:number]:
            common = [overlap for mine in pool.ranges for theirs in other.ranges if (overlap := _common(mine, theirs))]
            if common:
                first = min(common, key=lambda overlap: (overlap.first.version, int(overlap.first)))
                where = f"the pools {other.name} and {pool.name} overlap in {first}"
                mistakes.add("pools", f"{where}; take it out of one of them")


def _common(mine: AddressRange, other: AddressRange) -> AddressRange | None:
    if mine.first.version != other.first.version:
        return None
    first, last = max(int(mine.first), int(other.first)), min(int(mine.last), int(other.last))
    make: type[IPAddress] = IPv4Address if mine.first.version == 4 else IPv6Address  # noqa: PLR2004 - IP version 4
    return AddressRange(make(first), make(last)) if first <= last else None
