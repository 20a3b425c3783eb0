"""Pools: interval arithmetic that agrees with counting by hand, and stays fast where counting is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.candidates import by_priority, candidates, listed, never
from locallb.config.settings import Pool
from locallb.model.identities import ClusterName, Family, ObjectKey
from locallb.model.objects import Service
from locallb.model.ranges import AddressRange, Span, intersect, merge, subtract
from locallb.planning.allocation import Slots, allows
from tests.support.strategies import IPV4, IPV6, pool_lists, span

NUMBERS = st.integers(0, 40)
SPANS = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair))), max_size=5)


def counted(spans: Sequence[Span]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


@given(SPANS, SPANS)
def test_subtracting_spans_is_subtracting_their_numbers(spans: list[Span], holes: list[Span]) -> None:
    """What is left is exact, sorted and disjoint."""
    remaining = subtract(spans, holes)
    assert counted(remaining) == counted(spans) - counted(holes)
    assert all(one[1] < other[0] for one, other in pairwise(remaining))


@given(SPANS, SPANS)
def test_intersecting_spans_is_intersecting_their_numbers(spans: list[Span], others: list[Span]) -> None:
    """What is common is exact, sorted and disjoint."""
    common = intersect(spans, others)
    assert counted(common) == counted(spans) & counted(others)
    assert all(one[1] < other[0] for one, other in pairwise(common))


@given(SPANS)
def test_merged_spans_neither_overlap_nor_touch(spans: list[Span]) -> None:
    """The shortest list of the same numbers."""
    merged = merge(spans)
    assert counted(merged) == counted(spans)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(merged))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.0", "the loopback network itself"),
        ("127.0.0.1", "localhost"),
        ("127.0.0.53", "systemd-resolved"),
        ("127.0.0.54", "systemd-resolved"),
        ("127.0.1.1", "the host's own name"),
        ("127.255.255.255", "a broadcast address"),
        ("0.0.0.0", "the unspecified address"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.255", "a broadcast address"),
        ("::", "the unspecified address"),
        ("::1", "localhost"),
        ("::ffff:127.77.0.5", "IPv4-mapped IPv6"),
        ("fe80::1", "link-local, which needs an interface"),
        ("ff02::1", "multicast"),
        ("127.0.0.2", None),
        ("127.77.0.0", None),
        ("172.18.255.224", None),
        ("::2", None),
        ("fd00:ff::e0", None),
    ],
)
def test_some_addresses_are_never_handed_out(text: str, why: str | None) -> None:
    """Those of the host itself, of everybody and of nobody; with the reason."""
    address = ip_address(text)
    assert never(address) == why
    usable = candidates(Pool("all", (span("0.0.0.0", "255.255.255.255"), span("::", "f" * 4 + ":f" * 7))), Family.IPV4)
    if address.version == 4:
        assert (address in usable) is (why is None)


def test_candidates_are_the_ranges_less_the_excluded_and_the_forbidden() -> None:
    """Overlapping ranges count once; numbers follow the addresses."""
    pool = Pool(
        "p",
        (span("127.0.0.50", "127.0.0.60"), span("127.0.0.0", "127.0.0.2"), span("127.0.0.58", "127.0.0.61")),
        (span("127.0.0.51", "127.0.0.52"), span("127.0.0.60", "127.0.0.99")),
    )
    usable = candidates(pool, Family.IPV4)
    assert [str(usable[number]).removeprefix("127.0.0.") for number in range(usable.size)] == [
        *("2", "50", "55", "56", "57", "58", "59")
    ]
    assert candidates(pool, Family.IPV6).size == 0
    assert ip_address("::1") not in usable


@given(pool_lists)
def test_numbers_and_addresses_of_candidates_agree(pools: tuple[Pool, ...]) -> None:
    """Every candidate has one number, everything else none."""
    for family, line in ((Family.IPV4, IPV4), (Family.IPV6, IPV6)):
        usable = candidates(pools[0], family)
        found = [usable[number] for number in range(usable.size)]
        assert [usable.number(address) for address in found] == list(range(usable.size))
        assert [address for address in line if address in usable] == found
        assert all(listed(pools[0], address) for address in found)


def test_a_pool_of_2_to_the_64_addresses_costs_nothing() -> None:
    """Its candidates are counted, found and taken without enumeration."""
    pool = Pool("big", (span("fd00::", "fd00::ffff:ffff:ffff:ffff"),), (span("fd00::5", "fd00::5"),))
    usable = candidates(pool, Family.IPV6)
    slots = Slots(usable)
    assert usable.size == 2**64 - 1
    assert usable.number(ip_address("fd00::6")) == 5
    assert slots.first_free(2**64 - 2) == ip_address("fd00::ffff:ffff:ffff:ffff")
    assert slots.take(ip_address("fd00::ffff:ffff:ffff:ffff"))
    assert slots.first_free(2**64 - 2) == ip_address("fd00::")


@given(st.integers(1, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=40))
def test_slots_find_what_a_walk_round_the_pool_finds(size: int, steps: list[tuple[bool, int]]) -> None:
    """Linear probing with wrap-around, whatever was taken before."""
    usable = candidates(Pool("p", (AddressRange(IPV4[0], IPV4[size - 1]),)), Family.IPV4)
    slots, claimed = Slots(usable), set[int]()
    for take, number in steps:
        if take:
            is_free = number % 12 < size and number % 12 not in claimed
            assert slots.take(IPV4[number % 12]) == is_free
            claimed |= {number % 12} & set(range(size))
        else:
            walk = [(number + step) % size for step in range(size)]
            expected = next((IPV4[number] for number in walk if number not in claimed), None)
            assert slots.first_free(number) == expected


def test_slots_stay_fast_when_all_prefer_the_same_slot() -> None:
    """50,000 Services at one slot of a nearly full pool: no quadratic walk, which would take minutes."""
    usable = candidates(Pool("p", (span("10.0.0.0", "10.0.255.255"),)), Family.IPV4)
    slots = Slots(usable)
    for number in range(50_000):
        address = slots.first_free(7)
        assert address == ip_address("10.0.0.7") + number
        assert slots.take(address)


@pytest.mark.parametrize(
    ("namespaces", "selector", "allowed"),
    [
        ((), {}, True),
        (("shop", "x"), {}, True),
        (("x",), {}, False),
        ((), {"tier": "web"}, True),
        ((), {"tier": "db"}, False),
        ((), {"tier": "web", "other": ""}, False),
        (("x",), {"tier": "web"}, False),
    ],
)
def test_a_pool_is_for_its_namespaces_and_labels(
    namespaces: tuple[str, ...], selector: dict[str, str], *, allowed: bool
) -> None:
    """Both must match; absent ones match everybody."""
    service = Service(ObjectKey(ClusterName("c"), "shop", "web"), (), labels={"tier": "web", "more": "x"})
    pool = Pool("p", (span("10.0.0.1", "10.0.0.1"),), namespaces=frozenset(namespaces), selector=selector)
    assert allows(pool, service) is allowed


def test_pools_are_tried_by_priority_then_as_written() -> None:
    """Higher first; equal ones in the order of the configuration."""
    pools = [Pool(name, (), priority=priority) for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5))]
    assert [pool.name for pool in by_priority(pools)] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ("10.0.0.0", "10.0.0.255", "10.0.0.0/24"),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.1-10.0.0.2"),
        ("10.0.0.2", "10.0.0.3", "10.0.0.2/31"),
        ("10.0.0.0", "10.0.0.2", "10.0.0.0-10.0.0.2"),
        ("0.0.0.0", "255.255.255.255", "0.0.0.0/0"),
        ("fd00::", "fd00::ffff:ffff:ffff:ffff", "fd00::/64"),
    ],
)
def test_a_range_is_written_as_a_network_where_it_is_one(first: str, last: str, text: str) -> None:
    """Otherwise with both ends, or as the single address."""
    assert str(span(first, last)) == text
