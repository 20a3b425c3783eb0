"""Published ports: which number a container has inside, and at which address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Pool
from locallb.model.identities import IPAddress, Protocol, ProxyId
from locallb.model.ranges import AddressRange
from locallb.model.snapshot import Subnet
from locallb.planning.planned import SocketAddress
from locallb.runtimes.planners import internal_addresses, published_ports

ADDRESSES = [ip_address(text) for text in ("127.77.0.5", "fd00:ff::e5", "127.77.0.6")]
PLACES = st.sets(
    st.tuples(
        st.sampled_from(ADDRESSES),
        st.integers(1, 40) | st.sampled_from([9_999, 10_000, 10_001, 65_535]),
        st.sampled_from([Protocol.TCP, Protocol.UDP]),
    ),
    max_size=12,
)
PROXY = ProxyId("0" * 12)
GARDENERS = (Subnet(ip_network("172.18.0.0/24"), ip_address("172.18.0.1")), Subnet(ip_network("fd00:10::/64")))


def pool(*ranges: str) -> Pool:
    """Make a pool of `first-last` ranges."""
    ends = [text.split("-") for text in ranges]
    return Pool("p", tuple(AddressRange(ip_address(first), ip_address(last)) for first, last in ends))


GARDENERS_POOL = pool("172.18.255.224-172.18.255.255", "fd00:ff::e0-fd00:ff::ff")


@given(PLACES)
def test_every_place_has_a_container_port_of_its_own(places: set[SocketAddress]) -> None:
    """Each place once, no two of a protocol at one number, and the same in any order."""
    published = published_ports(places)
    assert {(mapping.address, mapping.port, mapping.protocol) for mapping in published} == places
    assert len({(mapping.container_port, mapping.protocol) for mapping in published}) == len(places)
    assert published_ports(sorted(places, key=str, reverse=True)) == published


@given(PLACES)
def test_the_first_address_keeps_the_services_own_numbers(places: set[SocketAddress]) -> None:
    """IPv4 before IPv6: who reads `docker ps` finds what the Service says."""
    own = {
        (mapping.port, mapping.protocol)
        for mapping in published_ports(places)
        if mapping.container_port == mapping.port
    }
    assert own == {(port, protocol) for _, port, protocol in places}


def inside(
    *addresses: str, subnets: tuple[Subnet, ...] = GARDENERS, pools: tuple[Pool, ...] = (GARDENERS_POOL,)
) -> str:
    """Return the fixed addresses as a text."""
    wanted = [ip_address(address) for address in addresses]
    found: list[IPAddress] = list(internal_addresses(wanted, subnets, pools, PROXY))
    return " ".join(map(str, found))


def test_in_gardeners_layout_the_last_byte_is_the_same_inside_and_outside() -> None:
    """Both families."""
    assert inside("172.18.255.229", "fd00:ff::e5") == "172.18.0.229 fd00:10::e5"


def test_the_broadcast_address_and_the_gateway_are_nobodys() -> None:
    """Docker chooses for the Service at .255: so all 32 addresses can be used."""
    assert inside("172.18.255.255") == ""
    gateway = (Subnet(ip_network("172.18.0.0/24"), ip_address("172.18.0.230")),)
    assert inside("172.18.255.230", subnets=gateway) == ""


@pytest.mark.parametrize(
    ("subnet", "found"),
    [
        (Subnet(ip_network("172.18.0.0/16")), "172.18.0.229"),
        (Subnet(ip_network("172.18.0.0/24"), handed_out=ip_network("172.18.0.0/25")), "172.18.0.229"),
        (Subnet(ip_network("172.18.0.0/24"), handed_out=ip_network("172.18.0.128/25")), ""),
        (Subnet(ip_network("172.18.0.0/25")), ""),
    ],
)
def test_where_docker_hands_out_addresses_none_is_fixed(subnet: Subnet, found: str) -> None:
    """A node that lost its address to us would be another node: so it is outside of the IP range, or from .224 on."""
    assert inside("127.77.0.229", subnets=(subnet,), pools=(pool("127.77.0.224-127.77.0.255"),)) == found


def test_low_addresses_are_left_to_nodes() -> None:
    """Docker counts from .2 on; with an IP range above, they are free."""
    low, subnet = (pool("127.77.0.0-127.77.0.31"),), ip_network("172.18.0.0/24")
    assert inside("127.77.0.5", subnets=(Subnet(subnet),), pools=low) == ""
    above = Subnet(subnet, handed_out=ip_network("172.18.0.128/25"))
    assert inside("127.77.0.5", subnets=(above,), pools=low) == "172.18.0.5"


def test_two_addresses_of_one_last_byte_get_none() -> None:
    """Whoever came second would not start."""
    assert inside("172.18.255.229", pools=(GARDENERS_POOL, pool("127.77.0.229-127.77.0.229"))) == ""
    assert inside("172.18.255.229", pools=(pool("172.18.254.0-172.18.255.255"),)) == ""


def test_an_address_of_another_owners_container_is_left_to_it() -> None:
    """Docker chooses then, and goes on to do so when that container is gone: else this one would be replaced."""
    subnet = Subnet(ip_network("172.18.0.0/24"), claimed=frozenset({ip_address("172.18.0.229")}))
    assert inside("172.18.255.229", subnets=(subnet,)) == ""
    assert inside("172.18.255.230", subnets=(subnet,)) == "172.18.0.230"
    later = replace(subnet, claimed=frozenset(), chosen=frozenset({PROXY}))
    assert inside("172.18.255.229", subnets=(later,)) == ""
    assert inside("172.18.255.229", subnets=(replace(later, chosen=frozenset({ProxyId("1" * 12)})),)) != ""
