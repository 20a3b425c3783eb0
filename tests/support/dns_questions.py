"""Asks a name server over UDP, without any library of ours."""

from __future__ import annotations

import secrets
import socket
import struct
from ipaddress import ip_address

from tests.support.stages import Stage

TYPES = {"A": 1, "CNAME": 5, "MX": 15, "TXT": 16, "AAAA": 28}
NXDOMAIN, NOT_IMPLEMENTED = 3, 4


def question(name: str, kind: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    head = struct.pack(">HHHHHH", secrets.randbelow(1 << 16), 0x0100, 1, 0, 0, 0)
    return head + labels + b"\0" + struct.pack(">HH", TYPES[kind], 1)


def requested(server: tuple[str, int], name: str, kind: str = "A") -> tuple[int, list[str], list[int]]:
    """Return the rcode, the addresses of the answer and their TTLs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(2)
        client.connect(server)
        sent = question(name, kind)
        client.send(sent)
        answer = client.recv(4096)
    assert answer[:2] == sent[:2]
    flags, _, count = struct.unpack(">HHH", answer[2:8])
    at, addresses, ttls = len(sent), list[str](), list[int]()
    for _ in range(count):
        while answer[at] and answer[at] < 0xC0:
            at += answer[at] + 1
        at += 2 if answer[at] else 1
        _, _, ttl, size = struct.unpack(">HHIH", answer[at : at + 10])
        addresses.append(str(ip_address(answer[at + 10 : at + 10 + size])))
        ttls.append(ttl)
        at += 10 + size
    return flags & 15, addresses, ttls


def addresses(server: tuple[str, int], name: str, kind: str = "A") -> list[str]:
    """Return the addresses of a name, sorted; none where there is no such name."""
    code, answered, _ = requested(server, name, kind)
    assert code in (0, NXDOMAIN), code
    return sorted(answered)


def named(play: Stage, **more: object) -> tuple[str, int]:
    """Switch names on; return where the stack's server answers."""
    place = play.at(200), 5300
    play.configure(dns={"zones": [{"zone": "test", "embedded": f"{place[0]}:{place[1]}"}], **more})
    return place
