"""Facts of this host: permitted ports, inotify instances, addresses, and sockets of other programs.

They are facts of one moment, read from /proc or found by binding and closing at once. Nothing is changed, and no right
is needed.

Not here: budgets for more proxies (`limits`), and the tables of sockets (`sockets`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Address, ip_address
from pathlib import Path

from msgspec.structs import replace

from locallb.config.settings import Pool
from locallb.host.capabilities import NO_MACOS, is_macos
from locallb.host.limits import SocketOwners, socket_owners
from locallb.host.netlink import RouteError, interfaces, routes, rules
from locallb.host.sockets import LISTEN, SocketRow, bind, rows
from locallb.model.errors import ClientError, refuse_scarcity
from locallb.model.identities import IPAddress, Protocol
from locallb.model.ranges import AddressRange
from locallb.model.routes import (
    POD_PROTOCOL,
    HostAddresses,
    HostRoute,
    HostRule,
    diversions,
    is_host_only,
    networks_of_host,
    survey,
)
from locallb.model.snapshot import HostFacts, Socket
from locallb.storage.paths import is_another_directory, proxies_root

_UNREADABLE = "this host can't be looked at"
_STATUS = "/proc/self/status"
_PORT_START = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
_NAMESPACE_INSTANCES = "/proc/sys/user/max_inotify_instances"
"""The same limit in a user namespace (a rootless container), where it may be lower; the lowest one counts."""
_KERNEL_PORT_START, _KERNEL_INSTANCES = 1024, 128
"""What kernels do that don't tell."""
_NET_BIND_SERVICE, _NET_ADMIN = 10, 12
"""The numbers of the capabilities."""
_LOOPBACK = IPv4Network("127.0.0.0/8")
_SCRATCH = "127.255.255.254"
"""Address for trial binds, without other listeners."""
_NONLOCAL = "/proc/sys/net/{}/ip_nonlocal_bind"
"""Where it is on, any address can be bound, whosever it is."""
_IPV6_ADDRESSES = "/proc/net/if_inet6"
_PROTOCOLS = ((Protocol.TCP, LISTEN), (Protocol.UDP, ""))


class HostError(ClientError):
    """This host can't be looked at: one sentence."""


def host_facts(pools: Iterable[Pool], our_pids: Collection[int], *, strict: bool = False) -> HostFacts:
    """Find out what this host allows; sockets and inotify instances of `our_pids` don't count as others'.

    `strict`: addresses are bound by one who can't do without them, as Docker's proxy can't: a local route is not enough
    for IPv6.

    Raises:
        HostError: if this host has no /proc as Linux has it, or can't be looked at just now.
        RouteError: if its routes can't be read just now.

    """
    status = _status()
    in_use = {protocol: [row for row in rows(protocol, state) if row.port] for protocol, state in _PROTOCOLS}
    descriptors = socket_owners({row.inode for listed in in_use.values() for row in listed}, our_pids)
    facts = HostFacts(
        unprivileged_port_start=_port_start(status),
        watches=max(0, inotify_limit() - descriptors.inotify),
        sockets=tuple(sorted(_sockets(in_use, descriptors), key=_order)),
        user=os.geteuid(),
    )
    return with_routes(facts, pools, strict=strict)


def with_routes(facts: HostFacts, pools: Iterable[Pool], *, strict: bool) -> HostFacts:
    """Find out which addresses are this host's and what it has a route to. Raises RouteError."""
    existing, ruled = _routes()
    connected, own = [route for route in existing if route.is_connected], frozenset[str]()
    if connected:
        own = networks_of_host(interfaces())
    return replace(
        facts,
        inside=tuple(
            sorted(
                {route.destination for route in existing if route.is_connected and is_host_only(route, own)}, key=str
            )
        ),
        addresses=_addresses(pools, existing, strict=strict),
        routed=tuple(sorted({route.destination for route in existing if _serves_all_clients(route)}, key=str))
        if existing
        else None,
        routes=tuple(sorted({route for route in existing if route.counts_for_all}, key=str)),
        diversions=diversions(ruled, existing),
    )


def _serves_all_clients(route: HostRoute) -> bool:
    """Return whether a route is for all clusters: our own routes to pods are for one each."""
    return route.is_way and not route.is_default and route.protocol != POD_PROTOCOL


def may_change_routes() -> bool:
    """Return whether this process has the capability for it. Raises HostError."""
    return bool(int(_status().get("CapEff", "0"), 16) >> _NET_ADMIN & 1)


def inotify_limit() -> int:
    """Return how many inotify instances a user may have here."""
    limit = _number(_INSTANCES, _KERNEL_INSTANCES)
    return min(limit, _number(_NAMESPACE_INSTANCES, limit))


def _routes() -> tuple[tuple[HostRoute, ...], tuple[HostRule, ...]]:
    """Read routes and rules; none where that isn't allowed. A failure of the moment says nothing about addresses."""
    try:
        return routes(), rules()
    except RouteError as error:
        if error.forbidden:
            return (), ()
        raise


def _status() -> dict[str, str]:
    try:
        lines = Path(_STATUS).read_text().splitlines()
    except OSError as error:
        refuse_scarcity(error, _UNREADABLE, HostError)
        remedy = NO_MACOS if is_macos() else "use Linux, with /proc mounted"
        raise HostError(f"{_STATUS} can't be read ({error.strerror}): {remedy}") from error
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _reported(path: str) -> str:
    """Return what the kernel tells; nothing where it doesn't tell that. Raises HostError where it can't just now."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        refuse_scarcity(error, _UNREADABLE, HostError)
        return ""


def _number(path: str, default: int) -> int:
    try:
        return int(_reported(path))
    except ValueError:
        return default


def _port_start(status: dict[str, str]) -> int:
    """Return the first port that an Envoy of ours may bind.

    What counts is what a child has after exec: root's capabilities, or the ambient ones of anybody else.
    """
    start = _number(_PORT_START, _KERNEL_PORT_START)
    capabilities = status.get("CapEff" if os.geteuid() == 0 else "CapAmb", "0")
    has_right = int(capabilities, 16) >> _NET_BIND_SERVICE & 1
    return 0 if start and has_right and _bind_error(Protocol.UDP, _SCRATCH, start - 1) != errno.EACCES else start


def _sockets(in_use: dict[Protocol, list[SocketRow]], owners: SocketOwners) -> set[Socket]:
    serving = {row.address for listed in in_use.values() for row in listed if row.inode in owners.ours}
    sockets = set()
    for protocol, _ in _PROTOCOLS:
        for row in in_use[protocol]:
            if row.inode in owners.ours:
                continue
            holder, foreign = owners.holders.get(row.inode, ""), _is_foreign(row, owners)
            alone = foreign and row.address not in serving
            sockets.add(Socket(row.address, row.port, protocol, holder, foreign, alone))
            if row.address == ip_address("::") and _covers_ipv4(protocol, row.port):
                sockets.add(Socket(ip_address("0.0.0.0"), row.port, protocol, holder, foreign))  # noqa: S104 - a fact, no bind
    return sockets


def _is_foreign(row: SocketRow, owners: SocketOwners) -> bool:
    """Return whether a socket is another user's, or a proxy's of another state home: this user's ledger has neither."""
    if row.user != os.geteuid():
        return True
    directory = owners.proxies.get(row.inode)
    return directory is not None and is_another_directory(str(Path(directory).parent), str(proxies_root()))


def _covers_ipv4(protocol: Protocol, port: int) -> bool:
    """Return whether a socket on every IPv6 address holds the port of every IPv4 address as well.

    The kernel's tables don't tell IPV6_V6ONLY, so the port is tried; where even that isn't allowed, it does: the
    kernel's default.
    """
    return _bind_error(protocol, _SCRATCH, port) in {errno.EADDRINUSE, errno.EACCES}


def _addresses(pools: Iterable[Pool], existing: Sequence[HostRoute], *, strict: bool) -> HostAddresses:
    """Find out which addresses are this host's: by its tables, or by trying where those tell nothing.

    What is tried is only what needs no table: the loopback network, and addresses that are listed by themselves.
    """
    if any(route.is_local for route in existing):
        return survey(existing, tuple(_bindable()) if strict and not _number(_NONLOCAL.format("ipv6"), 0) else None)
    lone = (span for pool in pools for span in pool.ranges if span.first == span.last)
    local = [AddressRange(_LOOPBACK[0], _LOOPBACK[-1])] if _is_here(_SCRATCH) else []
    local += [addresses for addresses in lone if addresses.first not in _LOOPBACK and _is_here(str(addresses.first))]
    return HostAddresses(local=tuple(local), routes=tuple(existing))


def _bindable() -> Iterator[IPAddress]:
    """List the IPv6 addresses of interfaces: what can be bound without IPV6_FREEBIND."""
    yield from (IPv6Address(bytes.fromhex(line.split()[0])) for line in _reported(_IPV6_ADDRESSES).splitlines())


def _is_here(address: str) -> bool:
    """Return whether an address can be bound; it proves nothing where any address can."""
    family = "ipv6" if ":" in address else "ipv4"
    return not _number(_NONLOCAL.format(family), 0) and _bind_error(Protocol.UDP, address, 0) not in _NOT_HERE


_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL}
"""No such address, no IPv6, or an address that needs an interface."""


def _bind_error(protocol: Protocol, address: str, port: int) -> int:
    """Bind and let go at once; give the error's number, 0 if it works."""
    try:
        bind(address, port, protocol)
    except OSError as error:
        refuse_scarcity(error, _UNREADABLE, HostError)
        return error.errno or errno.EIO
    return 0


def _order(socket: Socket) -> tuple[str, int, int, int, str]:
    return socket.protocol, socket.port, socket.address.version, int(socket.address), socket.process
