"""Which addresses are provably the host's: as tables over routes, and as laws over whatever pools and tables exist."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.candidates import candidates, possible
from locallb.config.services import parse_range
from locallb.config.settings import Pool
from locallb.host.doctor import FindingLevel, HostInspection, examine
from locallb.model.identities import Family, IPAddress
from locallb.model.ranges import AddressRange
from locallb.model.routes import HostRoute, is_public, survey
from locallb.model.snapshot import HostFacts
from locallb.planning.pool_routes import pool_notices, pool_routes, unchecked
from tests.support.allocation import given as allocated
from tests.support.allocation import service, terms
from tests.support.inspections import GOOD
from tests.support.strategies import route

LAN = (
    route("127.0.0.0/8"),
    route("127.255.255.255/32", "broadcast"),
    route("::1/128"),
    route("0.0.0.0/0", "unicast", "eth0", 254),
    route("192.0.2.0/24", "unicast", "eth0", 254),
    route("192.0.2.2/32", device="eth0"),
    route("192.0.2.255/32", "broadcast", "eth0"),
    route("fd00:1::/64", "unicast", "eth0", 254),
    route("fd00:1::2/128", device="eth0"),
    route("fe80::5/128", device="eth0"),
    route("ff00::/8", "multicast", "eth0"),
)
"""A host with one interface and no address of ours."""


def pool(*ranges: str) -> Pool:
    """Make a pool of ranges as the configuration writes them."""
    read = [parse_range(text) for text in ranges]
    return Pool("p", tuple(span for span in read if isinstance(span, AddressRange)))


def host(*routes: HostRoute) -> HostFacts:
    """Make the facts of a host with these routes beside those of LAN."""
    return HostFacts(addresses=survey([*LAN, *routes]))


@pytest.mark.parametrize(
    ("ranges", "routes", "requested", "expected"),
    [
        (["8.0.0.0/8"], [], "", "NotOnHost"),
        (["8.8.8.8"], [], "8.8.8.8", "NotOnHost"),
        (["2001:db8::/32"], [], "", "NotOnHost"),
        (["2001:db8::/125"], [route("2001:db8::/125")], "2001:db8::5", "2001:db8::5"),
        (["8.8.8.0/29"], [route("8.8.8.0/29")], "8.8.8.3", "8.8.8.3"),
        (["8.8.8.0/29"], [route("8.8.8.0/29", table=100)], "", "NotOnHost"),
        (["8.8.8.0/29"], [route("0.0.0.0/0", table=100)], "", "NotOnHost"),
        (["8.8.8.0/29"], [route("8.8.8.0/29", "unicast", "lo", 254)], "", "NotOnHost"),
        (["8.8.8.0/29"], [route("8.8.8.0/30"), route("8.8.8.4/30")], "8.8.8.7", "8.8.8.7"),
        (["8.8.8.0/29"], [route("8.8.8.0/29"), route("8.8.8.0/30", "unreachable")], "8.8.8.3", "NotOnHost"),
        (["8.8.8.0/29"], [route("8.8.8.0/29"), route("8.8.8.7/32", "broadcast", "br0")], "8.8.8.7", "InUse"),
        (["192.0.2.0/28"], [], "", "NotOnHost"),
        (["192.0.2.0/28"], [], "192.0.2.2", "Excluded"),
        (["192.0.2.0/28"], [route("192.0.2.0/28")], "192.0.2.2", "Excluded"),
        (["192.0.2.2"], [], "", "192.0.2.2"),
        (["192.0.2.0/28", "192.0.2.2"], [], "", "192.0.2.2"),
        (["192.0.2.2-192.0.2.3"], [route("192.0.2.3/32", device="eth1")], "", "NotOnHost"),
        (["fd00:1::/120"], [route("fd00:1::/120")], "", "PoolOnLink"),
        (["fd00:1::/120"], [], "fd00:1::2", "Excluded"),
        (["fd00:1::2"], [], "", "fd00:1::2"),
        (["fd00:1::3"], [route("fd00:1::3/128")], "", "PoolOnLink"),
        (["127.77.0.0/27"], [], "127.77.0.9", "127.77.0.9"),
        (["0.0.0.0/0"], [], "8.194.47.0", "NotOnHost"),
        (["0.0.0.0/0"], [], "192.0.2.2", "Excluded"),
        (["0.0.0.0/0"], [], "127.1.2.3", "127.1.2.3"),
    ],
)
def test_pool_addresses_are_given_only_if_they_are_this_hosts(
    ranges: Sequence[str], routes: Sequence[HostRoute], requested: str, expected: str
) -> None:
    """By the local table and its longest prefix; an interface's own address only where it is listed by itself."""
    family = Family.IPV6 if ":" in ranges[0] else Family.IPV4
    asker = service("web", *([requested] if requested else []), families=(family,))
    assert terms(allocated(asker, pools=[pool(*ranges)], host=host(*routes))["web"]) == expected


def test_oversized_pool_gives_only_addresses_of_this_host() -> None:
    """The doctor reports the same: the rest isn't this host's."""
    for ranges in ("126.0.0.0/7", "0.0.0.0/0"):
        address = ip_address(terms(allocated(service("web"), pools=[pool(ranges)], host=host())["web"]))
        assert address in ip_network("127.0.0.0/8")
        assert any("isn't this host's" in text or "more than one host can have" in text for text in reported(ranges))


def reported(*ranges: str, routes: Sequence[HostRoute] = ()) -> tuple[str, ...]:
    """Return what is said of a pool."""
    return pool_notices([pool(*ranges)], host(*routes))


@pytest.mark.parametrize(
    ("ranges", "routes", "expected"),
    [
        ("127.77.0.0/27", [], []),
        ("10.0.0.0/29", [route("10.0.0.0/29")], []),
        ("8.8.8.0/29", [], ["8.8.8.0/29 is public: with a local route this host would no longer reach"]),
        ("8.8.8.0/29", [route("8.8.8.0/29")], ["8.8.8.0/29 is public: this host doesn't reach"]),
        ("192.0.2.2", [], ["192.0.2.2 is this host's own address on eth0"]),
        ("192.0.2.128/28", [], ["lies in 192.0.2.0/24 of the route to 192.0.2.0/24 on eth0"]),
        (
            "192.0.2.0/28",
            [route("192.0.2.0/28")],
            ["lies in 192.0.2.0/24", "leaves out 192.0.2.2, an address of eth0"],
        ),
    ],
)
def test_pool_with_public_or_local_networks_is_reported(
    ranges: str, routes: Sequence[HostRoute], expected: list[str]
) -> None:
    """Public prefixes, networks that this host is a member of, addresses that face one; nothing without a reason."""
    sentences = reported(ranges, routes=routes)
    assert bool(sentences) is bool(expected)
    assert all(any(terms in sentence for sentence in sentences) for terms in expected), sentences


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("8.8.8.0/29", True),
        ("9.255.255.255-10.0.0.0", True),
        ("10.0.0.0/8", False),
        ("172.16.0.0/12", False),
        ("172.15.0.0-172.31.255.255", True),
        ("100.64.0.0/10", False),
        ("127.0.0.0/8", False),
        ("240.0.0.0/8", False),
        ("203.0.113.0/24", False),
        ("2001:db8::/64", False),
        ("2a00:1450::/32", True),
        ("fd00:ff::/64", False),
        ("::/0", True),
    ],
)
def test_public_addresses_are_those_of_the_internet(text: str, public: bool) -> None:  # noqa: FBT001 - a table
    """Every other one is set apart by IANA."""
    assert is_public(pool(text).ranges[0]) is public


def test_no_host_can_have_everything() -> None:
    """A route for half of the world is never offered, also where nothing else is connected."""
    for text in ("0.0.0.0/0", "::/0", "64.0.0.0/2"):
        alone = survey([route("127.0.0.0/8"), route("::1/128")])
        assert any(route.problem for route in pool_routes([pool(text)], alone))


def test_pool_check_without_host_facts_says_so() -> None:
    """But for what every Linux has."""
    assert unchecked([pool("127.77.0.0/27")]) == ()
    assert unchecked([pool("127.77.0.0/27", "8.8.8.0/29")]) == (
        "no host is known here: whether 8.8.8.0/29 (pool p) can be used is found out where the stack runs",
    )
    assert terms(allocated(service("web", "8.8.8.1"), pools=[pool("8.8.8.0/29")], host=HostFacts())["web"]) == "8.8.8.1"


def test_pool_of_all_addresses_is_computed_without_enumeration() -> None:
    """Neither the pool nor a thousand routes are checked address by address."""
    many = [route(f"10.{number // 250}.{number % 250}.0/24") for number in range(1000)]
    facts = host(*many, route("fd00:2::/64"))
    assert possible(pool("0.0.0.0/0"), Family.IPV4, facts).size > 1000 << 8
    assert possible(pool("::/0"), Family.IPV6, facts).size == 1 << 64
    assert len(pool_notices([pool("0.0.0.0/0", "::/0")], facts)) < 20


# --- laws -----------------------------------------------------------------------------------------------------------

UNIVERSE: tuple[IPAddress, ...] = tuple(
    base + number for base in (ip_address("10.0.0.0"), ip_address("fd00::")) for number in range(16)
)


@st.composite
def networks(draw: st.DrawFn) -> str:
    """Draw a network of the universe, a wider one, or a single address."""
    address = draw(st.sampled_from(UNIVERSE))
    length = address.max_prefixlen - draw(st.sampled_from([0, 0, 1, 2, 4, 8]))
    return str(ip_network((address, length), strict=False))


routes = st.lists(
    st.builds(
        route,
        networks(),
        st.sampled_from(["local", "local", "local", "unicast", "broadcast", "unreachable"]),
        st.sampled_from(["lo", "lo", "eth0", "tun0"]),
        st.sampled_from([255, 255, 255, 254, 100]),
    ),
    max_size=8,
)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Draw a pool of the universe: ranges, prefixes and single addresses."""
    texts = draw(st.lists(networks() | st.sampled_from(UNIVERSE).map(str), min_size=1, max_size=4))
    return pool(*texts)


def is_the_hosts(address: IPAddress, table: Sequence[HostRoute]) -> bool:
    """Look an address up as the kernel does: the longest prefix of the local table counts."""
    having = [route for route in table if route.table == 255 and address in route.destination]
    longest = max((route.destination.prefixlen for route in having), default=0)
    return bool(having) and all(route.kind == "local" for route in having if route.destination.prefixlen == longest)


def has_interface(address: IPAddress, table: Sequence[HostRoute]) -> bool:
    """Return whether an interface other than lo has the address."""
    return any(route.is_own and route.destination[0] == address for route in table)


@given(pools(), routes)
def test_exactly_what_the_facts_prove_can_be_given(some: Pool, table: list[HostRoute]) -> None:
    """Never an address outside of it, nor an interface's own out of a range; and nothing else is kept back."""
    existing = survey(table)
    lone = {span.first for span in some.ranges if span.first == span.last}
    for family in Family:
        here = possible(some, family, HostFacts(addresses=existing))
        for address in UNIVERSE:
            if Family.of(address) is family and address in candidates(some, family):
                own = has_interface(address, table)
                linked = any(route.is_connected and address in route.destination for route in table)
                alone = own and address in lone
                hidden = (own and not alone) or (linked and family is Family.IPV6 and not alone)
                assert (address in here) is (is_the_hosts(address, table) and not hidden)


@given(st.lists(pools(), min_size=1, max_size=1), routes)
def test_the_doctor_calls_usable_what_a_service_can_get(some: list[Pool], table: list[HostRoute]) -> None:
    """One answer everywhere: a pool without any address is a problem, and one without a problem has addresses."""
    facts = HostFacts(addresses=survey(table))
    observed = replace_pools(some, facts)
    levels = {finding.level for finding in examine(observed) if finding.topic == "pools"}
    usable = any(possible(some[0], family, facts).size for family in Family)
    if not usable:
        assert FindingLevel.PROBLEM in levels
    if FindingLevel.OK in levels:
        assert usable


def replace_pools(some: list[Pool], facts: HostFacts) -> HostInspection:
    return replace(GOOD, pools=tuple(some), host=facts, routes=pool_routes(some, facts.addresses))
