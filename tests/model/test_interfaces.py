"""Networks that never leave this host, by what the kernel lists of its interfaces and routes."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.routes import HostRoute, Interface, is_host_only, networks_of_host

KINDS = st.sampled_from(
    ["", "bridge", "veth", "tun", "dummy", "bond", "vlan", "vxlan", "wireguard", "gretap", "ipvlan"]
)
INTERFACES = st.lists(
    st.builds(Interface, st.from_regex(r"[a-z]{1,4}\d", fullmatch=True), st.integers(1, 6), KINDS, st.integers(0, 6)),
    unique_by=(lambda each: each.name, lambda each: each.index),
)
CARD, VM, BRIDGE = Interface("eth0", 2), Interface("vnet0", 3, "tun", 9), Interface("br0", 9, "bridge")


@pytest.mark.parametrize(
    ("interfaces", "networks"),
    [
        ([Interface("docker0", 5, "bridge")], {"docker0"}),
        ([BRIDGE, VM, Interface("ve1", 4, "veth", 9), Interface("virbr0-nic", 6, "dummy", 9)], {"br0"}),
        ([BRIDGE, VM, Interface("eth0", 2, "", 9)], set()),  # the office's network, bridged to virtual machines
        ([BRIDGE, Interface("bond0", 2, "bond", 9)], set()),
        ([BRIDGE, Interface("eth0.7", 2, "vlan", 9)], set()),
        ([BRIDGE, Interface("vx0", 2, "vxlan", 9)], set()),
        ([CARD, Interface("tun0", 3, "tun"), Interface("wg0", 4, "wireguard")], set()),  # VPNs
        ([Interface("vboxnet0", 7), Interface("vmnet8", 8)], {"vboxnet0", "vmnet8"}),
        ([Interface("vboxnet0x", 7)], set()),
    ],
)
def test_only_bridges_without_a_way_out_are_of_this_host(interfaces: list[Interface], networks: set[str]) -> None:
    """Whatever else is plugged into a bridge may lead to any machine."""
    assert networks_of_host(interfaces) == networks


@given(INTERFACES)
def test_no_network_of_this_host_has_hardware_or_a_tunnel_in_it(interfaces: list[Interface]) -> None:
    """Nor is a card one itself, however it is called, unless a hypervisor's driver calls it so."""
    named = {each.name: each for each in interfaces}
    for network in map(named.__getitem__, networks_of_host(interfaces)):
        assert network.kind == "bridge" or network.name.startswith(("vboxnet", "vmnet"))
        ports = [each for each in interfaces if each.master == network.index]
        assert {port.kind for port in ports} <= {"veth", "tun", "dummy"}


@pytest.mark.parametrize(
    ("route", "remains"),
    [
        (HostRoute(ip_network("10.0.0.9"), "local", "lo"), True),
        (HostRoute(ip_network("172.18.0.2"), "unicast", "br0"), True),
        (HostRoute(ip_network("10.244.0.2"), "unicast", "br0", ip_address("172.18.0.2")), False),
        (HostRoute(ip_network("10.0.0.2"), "unicast", "eth0"), False),
        (HostRoute(ip_network("10.0.0.2"), "unicast", "tun0"), False),
        (HostRoute(ip_network("172.18.255.255"), "broadcast", "br0"), False),
        (None, False),
    ],
)
def test_packets_stay_on_this_host_only_without_a_gateway(route: HostRoute | None, *, remains: bool) -> None:
    """A router in such a network may forward them anywhere: a container with a VPN does."""
    assert is_host_only(route, frozenset({"br0"})) is remains
