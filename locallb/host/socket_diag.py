"""Established TCP connections of this network namespace, as the kernel lists them by netlink (sock_diag(7)).

The kernel leaves out all others, of which a busy host has tens of thousands that wait to be forgotten (TIME_WAIT); its
table in /proc has them all. Not here: other namespaces, and kernels without it (`sockets`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from ipaddress import IPv6Address, ip_address

from locallb.host.netlink import DUMP, talk
from locallb.model.identities import IPAddress

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
    """Return the own address and port of each connection at any of these ports. Raises OSError where it isn't known."""
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
