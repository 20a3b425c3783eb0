"""Routes of a host to the Nodes of a cluster."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from locallb.model.routes import HostRoute

BRIDGE = HostRoute(ip_network("172.18.0.0/16"), "unicast", "br-kind")
DEFAULT = HostRoute(ip_network("0.0.0.0/0"), "unicast", "eth0", ip_address("192.0.2.1"))


def by(gateway: str, *networks: str) -> tuple[HostRoute, ...]:
    """Make routes by a gateway in the Nodes' network, beside that network and the default route."""
    made = (HostRoute(ip_network(network), "unicast", "br-kind", ip_address(gateway)) for network in networks)
    return BRIDGE, DEFAULT, *made
