"""Which packets of this host rules lead elsewhere: the rules of VPNs and of Nodes, as a table."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from locallb.model.routes import HostRoute, HostRule, diversions

LOCAL, MAIN, LAST = HostRule(4, 0, 255), HostRule(4, 32766), HostRule(4, 32767, 253)
WIREGUARD = (HostRule(4, 32764, longer_than=0), HostRule(4, 32765, 51820, mark=0xCA6C, mask=0xFFFFFFFF, inverted=True))
TAILSCALE = (
    HostRule(4, 5210, mark=0x80000, mask=0xFF0000),
    HostRule(4, 5250, action="unreachable", mark=0x80000, mask=0xFF0000),
    HostRule(4, 5270, 52),
)
OWN = HostRoute(ip_network("192.0.2.7/32"), "local", "eth0", table=255)
ROUTES = (
    OWN,
    HostRoute(ip_network("10.244.1.0/24"), "unicast", "eth0", ip_address("192.0.2.1")),
    HostRoute(ip_network("0.0.0.0/0"), "unicast", "wg0", table=51820),
    HostRoute(ip_network("10.0.0.0/8"), "unicast", "tailscale0", table=52),
    HostRoute(ip_network("127.0.0.0/8"), "9", table=52),
    HostRoute(ip_network("0.0.0.0/0"), "unicast", "eth1", table=100),
)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), []),
        (WIREGUARD, [("0.0.0.0/0", True)]),
        (TAILSCALE, [("10.0.0.0/8", False)]),
        ((replace(TAILSCALE[-1], priority=40000),), []),
        ((HostRule(4, 100, 100),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, 100, longer_than=0),), []),
        ((HostRule(4, 100, 100, destination=ip_network("10.244.0.0/16")),), [("10.244.0.0/16", False)]),
        ((HostRule(4, 100, 52, destination=ip_network("192.168.0.0/16")),), []),
        ((HostRule(4, 100, 100, destination=ip_network("10.9.0.0/16"), inverted=True),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, 100, source=OWN.destination),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, 100, source=ip_network("198.51.100.1/32")),), []),
        ((HostRule(4, 100, 100, source=ip_network("198.51.100.1/32"), inverted=True),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, 100, device=True),), []),
        ((HostRule(4, 100, 100, special=True),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, 100, inverted=True),), []),
        ((HostRule(4, 100, 100, mark=0x200, mask=0xF00),), []),
        ((HostRule(4, 100, 100, mark=0x200, mask=0xFF),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, action="prohibit"),), [("0.0.0.0/0", False)]),
        ((HostRule(4, 100, action="nop"),), []),
        ((HostRule(4, 50, destination=ip_network("10.9.0.0/16")), HostRule(4, 100, 100)), [("0.0.0.0/0", False)]),
        ((HostRule(4, 50), HostRule(4, 100, 100)), []),
        ((HostRule(6, 100, 100),), []),
    ],
)
def test_default_routing_rules_divert_nothing(rules: tuple[HostRule, ...], expected: list[tuple[str, bool]]) -> None:
    """The three that every Linux has lead nothing elsewhere."""
    diverted = diversions((LAST, *rules, MAIN, LOCAL), ROUTES)
    assert [(str(one.network), one.yields) for one in diverted] == expected


def test_diversion_names_its_device_and_table() -> None:
    """By device and table."""
    (diverted,) = diversions(TAILSCALE, ROUTES)
    assert diverted.owner == "the VPN on tailscale0 (ip rule 5270: table 52)"
