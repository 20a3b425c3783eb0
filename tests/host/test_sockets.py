"""Sockets of this host: who holds a port, who is connected."""

from __future__ import annotations

import errno
import os
import random
import socket
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType

import pytest

from locallb.host import sockets
from locallb.host import sockets as socket_diag
from locallb.host.sockets import SocketError
from locallb.model.identities import Protocol

LOCAL = ip_address("127.0.0.1")
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def unused_port() -> int:
    """Choose a port that nobody has at any address, and that the kernel gives to nobody who doesn't name it.

    On a host with tens of thousands of sockets most of those that it gives are somebody's in the other protocol.
    """
    first, last = map(int, RANGE.read_text(encoding="ascii").split())
    claimed = {row.port for protocol in (Protocol.TCP, Protocol.UDP) for row in sockets.rows(protocol)}
    unused: list[int] = [port for port in (*range(10_000, first), *range(last + 1, 65_536)) if port not in claimed]
    return random.choice(unused)


def serve(port: int) -> socket.socket:
    return socket.create_server((str(LOCAL), port))


@pytest.mark.parametrize(
    ("family", "bound", "requested"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.9"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])
def test_the_holder_of_a_port_is_named(family: int, bound: str, requested: str, protocol: Protocol) -> None:
    """Bound to the address itself or to every address, in both families and protocols."""
    kind = socket.SOCK_STREAM if protocol is Protocol.TCP else socket.SOCK_DGRAM
    with socket.socket(family, kind) as held:
        held.bind((bound, port := unused_port()))
        if protocol is Protocol.TCP:
            held.listen()
        assert sockets.holder(ip_address(requested), port, protocol).endswith(f"({os.getpid()})")
    assert sockets.holder(ip_address(requested), port, protocol) == ""


def test_listener_holds_only_its_own_address_and_protocol() -> None:
    """A port is held where it is held."""
    with serve(port := unused_port()):
        assert sockets.holder(ip_address("127.0.0.2"), port, Protocol.TCP) == ""
        assert sockets.holder(LOCAL, port, Protocol.UDP) == ""
        assert sockets.holder(LOCAL, port, Protocol.SCTP) == ""


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])
def test_every_address_of_ipv4_is_none_of_ipv6(protocol: Protocol) -> None:
    """That of IPv6 may be both."""
    kind = socket.SOCK_STREAM if protocol is Protocol.TCP else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as held:
        held.bind(("0.0.0.0", port := unused_port()))
        if protocol is Protocol.TCP:
            held.listen()
        assert sockets.holder(ip_address("::1"), port, protocol) == ""
        assert sockets.holder(LOCAL, port, protocol).endswith(f"({os.getpid()})")


def test_connections_are_counted_on_the_server_side() -> None:
    """The server's side counts, at the given places only."""
    place, another = (LOCAL, unused_port()), (LOCAL, unused_port())
    with serve(place[1]), serve(another[1]):
        assert sockets.connections({place}) == 0
        with socket.create_connection((str(LOCAL), place[1])), socket.create_connection((str(LOCAL), place[1])):
            assert sockets.connections({place}) == 2
            assert sockets.connections({another}) == 0


def _unlisted(*_: object) -> list[object]:
    raise PermissionError(errno.EPERM, "in a sandbox")


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize("refused", [socket_diag, sockets])
def test_connections_are_those_of_the_kernels_list_or_of_its_table(
    monkeypatch: pytest.MonkeyPatch, bound: str, others: int, refused: ModuleType
) -> None:
    """Each without the other, whatever the family, for one port or many; those in TIME_WAIT don't count."""
    monkeypatch.setattr(refused, "established" if refused is socket_diag else "rows", _unlisted)
    with socket.socket(socket.AF_INET6 if ":" in bound else socket.AF_INET) as server:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        place = (LOCAL if bound == "::ffff:127.0.0.1" else ip_address(bound), port)
        places = {place, *((LOCAL, other) for other in range(1, others))}
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, str(place[0]))
        for _ in range(3):
            with socket.create_connection((reached, port)) as closed:
                served, _ = server.accept()
                served.close()
                closed.recv(1)
        with socket.create_connection((reached, port)):
            assert sockets.connections(places) == 1
            assert sockets.connections(places, os.getpid()) == 1
        assert sockets.connections({(ip_address("127.0.0.2"), port)}) == 0


def test_a_connection_that_the_kernel_names_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may where tens of thousands come and go while they are read."""
    monkeypatch.setattr(socket_diag, "established", _unlisted)
    read = sockets._lines
    monkeypatch.setattr(sockets, "_lines", lambda table: [*(lines := read(table)), *lines[1:]])
    with serve(port := unused_port()), socket.create_connection((str(LOCAL), port)):
        assert sockets.connections({(LOCAL, port)}) == 1


def test_a_connection_that_cannot_be_had_is_reported() -> None:
    """One sentence with the place; a listener answers."""
    with serve(port := unused_port()):
        sockets.connect(LOCAL, port, 2)
    with pytest.raises(SocketError, match=rf"127\.0\.0\.1 port {port} doesn't accept a TCP connection: .*refused"):
        sockets.connect(LOCAL, port, 2)


def test_places_are_read_in_both_families() -> None:
    """As in a listener's name; what is none is a ValueError."""
    assert sockets.split_place("127.0.0.1:80") == (LOCAL, 80)
    assert sockets.split_place("[fd00::1]:80") == (ip_address("fd00::1"), 80)
    for text in ("", "127.0.0.1", "fd00::1:80", "localhost:80", "127.0.0.1:http", "[127.0.0.1]:80"):
        with pytest.raises(ValueError, match=r".+"):
            sockets.split_place(text)
