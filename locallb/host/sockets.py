"""Sockets of this host: the holder of a port, the number of a listener's connections, and whether one answers.

They are read from /proc, in any network namespace. Processes of other users hide their descriptors from a user without
rights; then the holder is unknown, not absent.

Not here: the processes that hold descriptors (`limits`), and netlink (`netlink`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from msgspec import Struct

from locallb.host.limits import SocketOwners, socket_owners
from locallb.host.netlink import DUMP, talk
from locallb.model.errors import ClientError, refuse_scarcity
from locallb.model.identities import IPAddress, Protocol, ProxyId
from locallb.storage.proxy_directories import Proxies

_NETLINK_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PLACE = struct.Struct("!HH16s16s")  # ports, addresses: ours first
_REST = struct.Struct("=III")  # interface, cookie
_ANSWER = struct.Struct("=BBBB")  # family, state, timer, retransmissions
_ESTABLISHED = 1
_MAX_PORTS = 8
"""Ports that are worth a list of their own each: for every list the kernel walks through its whole table."""
_LENGTHS = {socket.AF_INET: 4, socket.AF_INET6: 16}


def established(ports: Collection[int]) -> Iterator[tuple[IPAddress, int]]:
    """Return the own address and port of each connection at any of these ports. Raises OSError where it isn't known.

    The kernel lists the established TCP connections of this network namespace by netlink (sock_diag(7)), and leaves out
    all others, of which a busy host has tens of thousands that wait to be forgotten (TIME_WAIT); its table in /proc has
    them all.
    """
    for family in _LENGTHS:
        for port in sorted(ports) if len(ports) <= _MAX_PORTS else (0,):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _ESTABLISHED)
            body += _PLACE.pack(port, 0, b"", b"") + _REST.pack(0, 0, 0)
            for kind, data in talk(_BY_FAMILY, DUMP, body, _NETLINK_SOCK_DIAG):
                if kind == _BY_FAMILY and (place := _own(data))[1] in ports:
                    yield place


def _own(data: bytes) -> tuple[IPAddress, int]:
    family, *_ = _ANSWER.unpack_from(data)
    port, _, packed, _ = _PLACE.unpack_from(data, _ANSWER.size)
    address = ip_address(packed[: _LENGTHS[family]])
    return (mapped if isinstance(address, IPv6Address) and (mapped := address.ipv4_mapped) else address), port


LISTEN = "0A"
OPEN = frozenset({"01", "04", "05", "08"})
"""States of TCP in which a side may still send: established, or closed by one side alone (FIN_WAIT, CLOSE_WAIT)."""
_SOCKET_ESTABLISHED = "01"
_TABLES = {Protocol.TCP: ("tcp", "tcp6"), Protocol.UDP: ("udp", "udp6")}


class SocketError(ClientError):
    """A connection can't be had: one sentence."""


class SocketRow(Struct, frozen=True):
    """A line of the kernel's tables of sockets. `state` is its hexadecimal code, LISTEN for instance."""

    address: IPAddress
    port: int
    state: str
    inode: str
    user: int = 0
    """Owner's user id."""


def holder(address: IPAddress, port: int, protocol: Protocol) -> str:
    """Return which process keeps `address`:`port` from being bound; empty if that can't be read.

    It is `name (pid)`, with its stack where it is a proxy.
    """
    with suppress(ClientError):
        owners = _owners(address, port, protocol)
        return next((f"{name}{_of_stack(owners.proxies.get(inode))}" for inode, name in owners.holders.items()), "")
    return ""


def holding_proxies(address: IPAddress, port: int, protocol: Protocol) -> frozenset[Path]:
    """Return the directories of the proxies that keep `address`:`port` from being bound, as far as that can be read."""
    with suppress(ClientError):
        return frozenset(map(Path, _owners(address, port, protocol).proxies.values()))
    return frozenset()


def holding_sockets(address: IPAddress, port: int, protocol: Protocol) -> frozenset[str]:
    """Return the inodes of the sockets that keep `address`:`port` from being bound. Raises SocketError."""
    return frozenset(
        row.inode
        for row in rows(protocol)
        if row.port == port
        and (row.address == address or _covers(row.address, address))
        and (protocol is Protocol.UDP or row.state == LISTEN)
    )


def _owners(address: IPAddress, port: int, protocol: Protocol) -> SocketOwners:
    inodes = holding_sockets(address, port, protocol)
    return socket_owners(inodes, ()) if inodes else SocketOwners()


def _of_stack(directory: str | None) -> str:
    """Return the stack of the proxy with this directory, as the end of a sentence's part."""
    with suppress(ClientError):
        proxy = Proxies(Path(directory).parent).find(ProxyId(Path(directory).name)) if directory else None
        return f", a proxy of the stack {proxy.owner.home}" if proxy and proxy.owner else ""
    return ""


def _covers(wildcard: IPAddress, address: IPAddress) -> bool:
    """Return whether a socket on every address may keep this one: that of IPv6 both families, that of IPv4 its own."""
    return wildcard.is_unspecified and wildcard.version >= address.version


def connections(places: Collection[tuple[IPAddress, int]], process: int = 0) -> int:
    """Count the established TCP connections to any of `places`, in the network of a process (0: in our own)."""
    return sum(_among(places, _established(places, process)))


def has_streams(places: Collection[tuple[IPAddress, int]], process: int) -> bool:
    """Return whether a process has a TCP connection at any of `places`, half-closed ones too. Raises ClientError."""
    own = [(row.address, row.port) for row in own_rows(Protocol.TCP, process) if row.state in OPEN]
    return any(_among(places, own))


def own_rows(protocol: Protocol, process: int) -> Iterator[SocketRow]:
    """Return the rows of a process's own sockets. Raises ClientError."""
    own = socket_owners((), (process,)).ours
    return (row for row in rows(protocol, process=process) if row.inode in own)


def _among(places: Collection[tuple[IPAddress, int]], ends: Iterable[tuple[IPAddress, int]]) -> Iterator[bool]:
    """Return of each own end of a connection whether it is one of `places`, of which some are every address."""
    everywhere = {port for address, port in places if address.is_unspecified}
    return (end in places or end[1] in everywhere for end in ends)


def _established(places: Collection[tuple[IPAddress, int]], process: int) -> list[tuple[IPAddress, int]]:
    """Return the own end of each established connection, of those to the ports of `places` at least."""
    with suppress(OSError):  # another user's process, or a kernel that can't list them
        if not process or Path("/proc", str(process), "ns/net").samefile("/proc/self/ns/net"):
            return list(established({port for _, port in places}))
    return [(row.address, row.port) for row in rows(Protocol.TCP, _SOCKET_ESTABLISHED, process)]


def users(places: Collection[tuple[IPAddress, int]]) -> dict[tuple[IPAddress, int], int]:
    """Return the user of each of these established TCP sockets of this host, as far as it is known."""
    with suppress(SocketError):
        found = {(row.address, row.port): row.user for row in rows(Protocol.TCP, _SOCKET_ESTABLISHED)}
        return {place: found[place] for place in places if place in found}
    return {}


def connect(address: IPAddress, port: int, seconds: float) -> None:
    """Open one TCP connection and close it. Raises SocketError if that fails or takes longer than `seconds`."""
    try:
        with socket.create_connection((str(address), port), timeout=seconds):
            return
    except OSError as error:
        raise SocketError(
            f"{address} port {port} doesn't accept a TCP connection: {error.strerror or error}"
        ) from error


def takes_connection(place: str, seconds: float) -> bool:
    """Return whether `<address>:<port>` takes a TCP connection within that time."""
    try:
        connect(*split_place(place), seconds)
    except SocketError:
        return False
    return True


def bind(address: str, port: int, protocol: Protocol) -> None:
    """Bind and close at once. Raises OSError with an errno that is a fact of this host."""
    stream = protocol is Protocol.TCP
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as probe:
        if stream:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))


def rows(protocol: Protocol, state: str = "", process: int = 0) -> Iterator[SocketRow]:
    """Return the sockets of a network namespace, all or those in one state; IPv4-mapped IPv6 as IPv4.

    It is the one of `process`, which may be gone then; 0 stands for our own. Each counts once: the kernel may name one
    twice where many come and go meanwhile. Raises SocketError where the host can't tell.
    """
    for table in _TABLES.get(protocol, ()):
        observed: set[tuple[str, ...]] = set()
        for line in _lines(Path("/proc", str(process or "self"), "net", table))[1:]:
            fields = line.split()
            if (not state or fields[3] == state) and (ends := (fields[1], fields[2], fields[9])) not in observed:
                observed.add(ends)
                place, port = fields[1].split(":")
                yield SocketRow(_address(place), int(port, 16), fields[3], fields[9], int(fields[7]))


def _lines(table: Path) -> list[str]:
    """Return the lines of a table; none where the kernel has no such table, as without IPv6."""
    try:
        return table.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        refuse_scarcity(error, "can't determine which ports are in use", SocketError)
        return []


def _address(text: str) -> IPAddress:
    """Read an address of /proc/net: words of 32 bits in the host's byte order; mapped IPv4 becomes IPv4."""
    terms = [int(text[start : start + 8], 16).to_bytes(4, "little") for start in range(0, len(text), 8)]
    address = ip_address(b"".join(terms))
    return mapped if isinstance(address, IPv6Address) and (mapped := address.ipv4_mapped) else address


def split_place(text: str) -> tuple[IPAddress, int]:
    """Read `127.77.0.5:8080` or `[fd00::1]:8080`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    address = IPv6Address(host[1:-1]) if host.startswith("[") and host.endswith("]") else IPv4Address(host)
    return address, int(port)
