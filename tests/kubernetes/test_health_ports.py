"""Asking Nodes whether kube-proxy's health port answers, and in which address families."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_address

import pytest

from locallb.kubernetes.api.health_ports import answering, any_reached
from locallb.model.identities import Family

Serving = Callable[[str, bytes], int]
OK, BEHIND, OTHER = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 No\r\n\r\n", b"HTTP/1.1 404 No\r\n\r\n"


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Serve bytes at an address, at a port of the kernel's or at the last one's."""
    with ExitStack() as stack:
        ports = [0]

        def serve(address: str, answer: bytes) -> int:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            server = stack.enter_context(socket.create_server((address, ports[-1]), family=family))
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            ports.append(server.getsockname()[1])

            def loop() -> None:
                with suppress(OSError):
                    while True:
                        client, _ = server.accept()
                        with client:
                            client.recv(999)
                            client.sendall(answer)

            threading.Thread(target=loop, daemon=True).start()
            return ports[-1]

        yield serve


def requested(port: int, *addresses: str) -> set[Family]:
    return set(answering([ip_address(address) for address in addresses], port))


@pytest.mark.parametrize("answer", [OK, BEHIND])
def test_health_port_of_a_family_is_proven_by_any_answering_node(serving: Serving, answer: bytes) -> None:
    """Healthy or not; other Nodes may refuse, and each family counts separately."""
    port = serving("127.91.0.1", answer)
    assert requested(port, "127.91.0.2", "127.91.0.1", "::1") == {Family.IPV4}
    serving("::1", OK)
    assert requested(port, "127.91.0.1", "::1") == {Family.IPV4, Family.IPV6}


@pytest.mark.parametrize("answer", [OTHER, b"SSH-2.0-x\r\n", b""])
def test_response_of_another_program_is_no_answer(serving: Serving, answer: bytes) -> None:
    """Another program at that port."""
    assert requested(serving("127.91.0.3", answer), "127.91.0.3") == set()


def test_cluster_without_nodes_has_no_health_port() -> None:
    """No request is made."""
    assert requested(1) == set()


def test_a_node_is_reached_if_it_takes_or_refuses_a_connection(serving: Serving) -> None:
    """Whatever listens there; a network that answers nothing, or to which there is no route, isn't."""
    port = serving("127.91.0.1", OTHER)
    nowhere = ip_address("255.255.255.255")
    assert any_reached([nowhere, ip_address("127.91.0.1")], [port])
    assert any_reached([ip_address("127.91.0.3")], [port])
    assert not any_reached([], [port])
    assert not any_reached([nowhere], [port, port + 1])
