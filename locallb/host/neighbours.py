"""Whether an address is of this host: its own, or of a container or virtual machine that runs on it.

Not here: what a network must be like for that (`model.network.interfaces`).
"""

from __future__ import annotations

from ipaddress import IPv6Address

from locallb.host import netlink
from locallb.model.identities import IPAddress
from locallb.model.network.interfaces import is_host_only, networks_of_host


def is_of_host(address: IPAddress) -> bool:
    """Return whether packets to `address` stay on this host now; False where the kernel doesn't say."""
    if isinstance(address, IPv6Address):
        if address.scope_id:
            return False
        address = address.ipv4_mapped or address
    if address.is_loopback or address.is_unspecified:  # the latter leads to loopback, too
        return True
    try:
        return is_host_only(netlink.route_to(address), networks_of_host(netlink.interfaces()))
    except netlink.RouteError:
        return False
