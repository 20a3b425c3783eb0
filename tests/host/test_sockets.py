"""Sockets of this host: who holds a port, who is connected."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

import pytest

from locallb.host import sockets
from locallb.host.sockets import SocketError
from locallb.model.identities import Protocol

LOCAL = ip_address("127.0.0.1")


@pytest.mark.parametrize(
    ("family", "bound", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.9"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])
def test_the_holder_of_a_port_is_named(family: int, bound: str, asked: str, protocol: Protocol) -> None:
    """Bound to the address itself or to every address, in both families and protocols."""
    kind = socket.SOCK_STREAM if protocol is Protocol.TCP else socket.SOCK_DGRAM
    with socket.socket(family, kind) as held:
        held.bind((bound, 0))
        if protocol is Protocol.TCP:
            held.listen()
        port = held.getsockname()[1]
        assert sockets.holder(ip_address(asked), port, protocol).endswith(f"({os.getpid()})")
    assert sockets.holder(ip_address(asked), port, protocol) == ""


def test_listener_holds_only_its_own_address_and_protocol() -> None:
    """A port is held where it is held."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert sockets.holder(ip_address("127.0.0.2"), port, Protocol.TCP) == ""
        assert sockets.holder(LOCAL, port, Protocol.UDP) == ""
        assert sockets.holder(LOCAL, port, Protocol.SCTP) == ""


def test_connections_are_counted_on_the_server_side() -> None:
    """The server's side counts, at the given places only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = (LOCAL, server.getsockname()[1])
        assert sockets.connections({place}) == 0
        with socket.create_connection((str(LOCAL), place[1])), socket.create_connection((str(LOCAL), place[1])):
            assert sockets.connections({place}) == 2
            assert sockets.connections({(LOCAL, place[1] - 1)}) == 0


def test_a_connection_that_cannot_be_had_is_reported() -> None:
    """One sentence with the place; a listener answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
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
