"""What this host allows: ports, inotify instances, addresses, and the sockets that are in the way.

Facts of one moment, read from /proc or found by binding and letting go at once. Nothing is changed, no right is needed.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Network, ip_address
from pathlib import Path

from locallb.clients import ClientError
from locallb.clients.descriptors import held
from locallb.clients.routes import RouteError, routes
from locallb.clients.sockets import LISTEN, Row, rows
from locallb.planning.host.routes import Route, connected, is_way
from locallb.planning.model import IPAddress, IPNetwork, Protocol
from locallb.planning.settings import AddressRange, Pool
from locallb.planning.snapshot import HostFacts, Socket

_STATUS = "/proc/self/status"
_PORT_START = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
_NAMESPACE_INSTANCES = "/proc/sys/user/max_inotify_instances"
"""The same limit in a user namespace (a rootless container), where it may be lower; the lowest one counts."""
_KERNEL_PORT_START, _KERNEL_INSTANCES = 1024, 128
"""What kernels do that don't tell."""
_NET_BIND_SERVICE = 10
"""The number of the capability."""
_IPV4 = 4
_LOOPBACK = IPv4Network("127.0.0.0/8")
_SCRATCH = "127.255.255.254"
"""Where ports are tried; nobody listens just there."""
_TRIED_ONE_BY_ONE = 1024
"""Addresses of a range that are tried each; of a larger one the ends and the middle speak for all."""
_PROTOCOLS = ((Protocol.TCP, socket.SOCK_STREAM, LISTEN), (Protocol.UDP, socket.SOCK_DGRAM, ""))


class HostError(ClientError):
    """This host can't be looked at: one sentence."""


def host_facts(pools: Iterable[Pool], our_pids: Collection[int], *, strict: bool = False) -> HostFacts:
    """Find out what this host allows; sockets and inotify instances of `our_pids` don't count as others'.

    `strict`: addresses are bound by one who can't do without them, as Docker's proxy can't: a local route is not enough
    for IPv6.

    Raises:
        HostError: if this host has no /proc as Linux has it.

    """
    status = _status()
    in_use = {protocol: [row for row in rows(protocol, state) if row.port] for protocol, _, state in _PROTOCOLS}
    found = held({row.inode for listed in in_use.values() for row in listed}, our_pids)
    foreign = {protocol: [row for row in in_use[protocol] if row.inode not in found.ours] for protocol in in_use}
    known = _routes()
    routed = [route.destination for route in known if route.kind == "local"]
    absent, absent_ranges = _absent(pools, [one for one in routed if not strict or one.version == _IPV4])
    broadcast = _broadcast(pools, known)
    return HostFacts(
        unprivileged_port_start=_port_start(status),
        watches=max(0, inotify_limit() - found.inotify),
        sockets=tuple(sorted(_sockets(foreign, found.holders), key=_order)),
        absent=frozenset(absent) | broadcast,
        broadcast=broadcast,
        absent_ranges=tuple(absent_ranges),
        on_link=connected(known),
        routed=tuple(sorted({r.destination for r in known if is_way(r)}, key=str)) if known else None,
    )


def inotify_limit() -> int:
    """Tell how many inotify instances a user may have here."""
    limit = _number(_INSTANCES, _KERNEL_INSTANCES)
    return min(limit, _number(_NAMESPACE_INSTANCES, limit))


def _routes() -> tuple[Route, ...]:
    """Read the routes; where that isn't allowed, addresses are judged by binding them alone."""
    try:
        return routes()
    except RouteError:
        return ()


def _status() -> dict[str, str]:
    try:
        lines = Path(_STATUS).read_text().splitlines()
    except OSError as error:
        raise HostError(f"{_STATUS} can't be read ({error.strerror}): use Linux, with /proc mounted") from error
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _number(path: str, default: int) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return default


def _port_start(status: dict[str, str]) -> int:
    """Tell the first port that an Envoy of ours may bind.

    What counts is what a child has after exec: root's capabilities, or the ambient ones of anybody else.
    """
    start = _number(_PORT_START, _KERNEL_PORT_START)
    capabilities = status.get("CapEff" if os.geteuid() == 0 else "CapAmb", "0")
    has_right = int(capabilities, 16) >> _NET_BIND_SERVICE & 1
    return 0 if start and has_right and _bind_error(socket.SOCK_DGRAM, _SCRATCH, start - 1) != errno.EACCES else start


def _sockets(foreign: dict[Protocol, list[Row]], holders: dict[str, str]) -> set[Socket]:
    found = set()
    for protocol, kind, _ in _PROTOCOLS:
        for row in foreign[protocol]:
            holder = holders.get(row.inode, "")
            found.add(Socket(row.address, row.port, protocol, holder))
            if row.address == ip_address("::") and _covers_ipv4(kind, row.port):
                found.add(Socket(ip_address("0.0.0.0"), row.port, protocol, holder))  # noqa: S104 - a fact, no bind
    return found


def _covers_ipv4(kind: socket.SocketKind, port: int) -> bool:
    """Tell whether a socket on every IPv6 address holds the port of every IPv4 address as well.

    The kernel's tables don't tell IPV6_V6ONLY, so the port is tried; where even that isn't allowed, it does: the
    kernel's default.
    """
    return _bind_error(kind, _SCRATCH, port) in {errno.EADDRINUSE, errno.EACCES}


def _absent(
    pools: Iterable[Pool], local: Collection[IPNetwork]
) -> tuple[set[IPAddress], list[tuple[IPAddress, IPAddress]]]:
    """Find the addresses of pools that can't be bound, and the large ranges of which none can."""
    addresses: set[IPAddress] = set()
    ranges = []
    for one in dict.fromkeys(one for pool in pools for one in pool.ranges):
        if int(one.last) - int(one.first) < _TRIED_ONE_BY_ONE:
            addresses.update(address for address in _each(one) if not _is_local(address, local))
        elif not any(_is_local(one.first + offset, local) for offset in _samples(one)):
            ranges.append((one.first, one.last))
    return addresses, ranges


def _broadcast(pools: Iterable[Pool], known: Iterable[Route]) -> frozenset[IPAddress]:
    """Find the addresses of pools that are a connected network's broadcast address, whatever else makes them local.

    They can be bound and not connected to: 172.18.255.255 is one where Docker has 172.18.0.0/16.
    """
    found = {route.destination.network_address for route in known if route.kind == "broadcast"}
    ranges = [one for pool in pools for one in pool.ranges]
    return frozenset(
        address
        for address in found
        if any(
            one.first.version == address.version and int(one.first) <= int(address) <= int(one.last) for one in ranges
        )
    )


def _each(one: AddressRange) -> Iterator[IPAddress]:
    return (one.first + offset for offset in range(int(one.last) - int(one.first) + 1))


def _samples(one: AddressRange) -> tuple[int, int, int]:
    """Give offsets into a range: its middle, and its ends but for what may be network and broadcast address."""
    size = int(one.last) - int(one.first)
    return 1, size // 2, size - 1


def _is_local(address: IPAddress, local: Collection[IPNetwork]) -> bool:
    """Tell whether an Envoy could bind `address`; IPv6 behind a local route takes IPV6_FREEBIND, which Envoy sets."""
    if address in _LOOPBACK or any(address in network for network in local):
        return True
    return _bind_error(socket.SOCK_DGRAM, str(address), 0) not in _NOT_HERE


_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL}
"""No such address, no IPv6, or an address that needs an interface."""


def _bind_error(kind: socket.SocketKind, address: str, port: int) -> int:
    """Bind and let go at once; give the error's number, 0 if it works."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, kind) as probe:
            if kind is socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _order(one: Socket) -> tuple[str, int, int, int, str]:
    return one.protocol, one.port, one.address.version, int(one.address), one.process
