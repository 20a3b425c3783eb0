"""Routes in the network namespace of a process, read from /proc, which needs no right to enter it.

In these tables only the metric identifies a route's owner. In a pod /proc has the pod's processes, and other ones under
the numbers that the engine names. Not here: this host's own routes (`netlink`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

from locallb.model.network.routes import PodRoute


def pod_routes_of(pid: int, metric: int) -> frozenset[PodRoute] | None:
    """Return the routes of this metric where a process is; None where /proc doesn't say.

    It says nothing of a process that isn't there or is hidden from this user, nor of another one of that number.
    """
    try:
        if _network_of(str(pid)) == _network_of("self"):
            return None
        four, six = _lines(pid, "route"), _lines(pid, "ipv6_route")
    except OSError:
        return None
    return frozenset((*_of_ipv4(four, metric), *_of_ipv6(six, metric)))


def _network_of(process: str) -> int:
    """Return what no other network has: each has files of its own, which anybody may see. Raises OSError."""
    return Path(f"/proc/{process}/net/route").stat().st_ino


def _lines(pid: int, name: str) -> list[list[str]]:
    """Read a table; empty where the kernel has no such. Raises OSError."""
    with suppress(FileNotFoundError):
        return [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()]
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
