"""Network interfaces of this host, and networks that never leave it: between it and its containers and VMs.

A network that exists on this host only can't have another machine's API server in it. A private range proves nothing:
10.0.0.0/8 may be the company's. Not here: reading interfaces and routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from locallb.model.network.routes import Route

_BRIDGE = "bridge"
_VIRTUAL_PORTS = frozenset({"veth", "tun", "dummy"})
"""Kinds of bridge ports behind which are containers and virtual machines. Physical ones have no kind."""
_HYPERVISOR = re.compile(r"(vboxnet|vmnet)\d+")
"""Host-only networks of VirtualBox and VMware, with drivers that report no kind."""


class Interface(Struct, frozen=True):
    """A network interface, as the kernel lists it."""

    name: str
    index: int
    kind: str = ""
    """`bridge`, `veth`, `tun`, …; empty for hardware and drivers that give none."""
    master: int = 0
    """The index of the bridge that it is a port of."""


def networks_of_host(interfaces: Iterable[Interface]) -> frozenset[str]:
    """Return the interfaces with networks between this host and its own containers and virtual machines.

    A bridge with any other port is excluded: with the network card in it, its network is the office's.
    """
    existing = tuple(interfaces)
    open_bridges = {port.master for port in existing if port.master and port.kind not in _VIRTUAL_PORTS}
    return frozenset(
        interface.name
        for interface in existing
        if (interface.kind == _BRIDGE and interface.index not in open_bridges)
        or (not interface.kind and not interface.master and _HYPERVISOR.fullmatch(interface.name))
    )


def is_host_only(route: Route | None, networks: frozenset[str]) -> bool:
    """Return whether packets that take `route` reach this host itself, or a neighbour in one of `networks`."""
    if route is None:
        return False
    return route.kind == "local" or (route.kind == "unicast" and route.gateway is None and route.device in networks)
