"""Routes in the network namespace of a process, read from /proc, which needs no right to enter it.

The tables there say whose a route is by its metric alone. In a pod /proc has the pod's processes, and others under the
numbers of those that the engine names. Not here: this host's own routes (`netlink`).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

from locallb.model.network.routes import PodRoute


def pod_routes_of(pid: int, metric: int) -> frozenset[PodRoute]:
    """Return the routes of this metric where a process is; none where it has ended."""
    four, six = _lines(pid, "route"), _lines(pid, "ipv6_route")
    return frozenset((*_of_ipv4(four, metric), *_of_ipv6(six, metric)))


def is_seen(pid: int) -> bool:
    """Return whether /proc has this process, which has a network of its own, and not another one of that number."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    except PermissionError:
        return True  # somebody else's
    except OSError:
        return False


def _lines(pid: int, name: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()]
    except OSError:
        return []


def _of_ipv4(lines: list[list[str]], metric: int) -> Iterator[PodRoute]:
    for _, destination, gateway, _, _, _, number, mask, *_ in lines[1:]:
        if int(number) == metric:
            yield PodRoute(ip_network(f"{_address(destination)}/{_address(mask)}"), _address(gateway))


def _address(hexadecimal: str) -> IPv4Address:
    return IPv4Address(bytes.fromhex(hexadecimal)[::-1])


def _of_ipv6(lines: list[list[str]], metric: int) -> Iterator[PodRoute]:
    for destination, bits, _, _, gateway, number, *_ in lines:
        if int(number, 16) == metric:
            network = ip_network((bytes.fromhex(destination), int(bits, 16)))
            yield PodRoute(network, IPv6Address(bytes.fromhex(gateway)))
