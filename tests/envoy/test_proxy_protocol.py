"""The PROXY protocol to backends, by a real Envoy: a backend that reads it answers with what it was told."""

from __future__ import annotations

import socket
import socketserver
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.model.objects import Discovery, ProxyProtocol
from locallb.model.serving import Backend, ConnectCheck, HttpCheck
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block
from tests.support.servers import in_thread
from tests.support.waiting import becomes

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class _Reader(socketserver.StreamRequestHandler):
    """Reads a header of either version, and answers with it and the line that follows."""

    def handle(self) -> None:
        head = self.rfile.readline()
        if not head:
            return  # a health check
        reported = _version_2(head + self.rfile.read(14), self.rfile.read) if head == b"\r\n" else head.decode()
        self.wfile.write(f"{reported.strip()} then {self.rfile.readline().decode()}".encode())


def _version_2(head: bytes, read: Callable[[int], bytes]) -> str:
    assert head[:12] == SIGNATURE
    version, family, length = struct.unpack("!BBH", head[12:])
    body = read(length)
    size = 4 if family == 0x11 else 16
    source, target = (str(ip_address(body[n * size : (n + 1) * size])) for n in range(2))
    ports = struct.unpack("!HH", body[2 * size : 2 * size + 4])
    return f"v2 {version:#x} {source} {target} {ports[0]} {ports[1]}"


@contextmanager
def reading(address: str) -> Iterator[Backend]:
    """Run a backend that reads the header."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with in_thread(Server((address, 0), _Reader)) as server:
        yield Backend.at(ip_address(address), server.server_address[1])


def ask(address: str, source: str) -> tuple[str, int]:
    """Send a line from `source`; return the answer and the port it was sent from."""
    with socket.create_connection((address, 8080), 10, source_address=(source, 0)) as client:
        client.sendall(b"hello\n")
        port: int = client.getsockname()[1]
        return client.makefile().read(200).strip(), port


@pytest.mark.parametrize("discovery", list(Discovery))
@pytest.mark.parametrize("version", list(ProxyProtocol))
@pytest.mark.parametrize("check", [None, ConnectCheck(), "http"])
def test_proxy_protocol_sends_the_clients_address_to_backends(  # noqa: PLR0913 - three cases, three fixtures
    version: ProxyProtocol, discovery: Discovery, check: object, *, start: Start, nodes: Serve, block: Block
) -> None:
    """Address and port of the client, in either version; a health port, which knows nothing of it, answers."""
    (health,) = nodes("H", first=31)
    with reading(block[1]) as backend:
        requested = replace(backend, checked_at=health.backend.address)
        chosen = HttpCheck(health.port) if check == "http" else check
        listener, upstream = serve(block[100], [])
        wanted = replace(upstream, backends=(requested,), proxy_protocol=version, health=chosen)  # a parameter
        envoy = start(rendering((listener, wanted), discovery=discovery))
        becomes(lambda: "membership_healthy: 1" in envoy.get("/stats?filter=membership_healthy"), "it is healthy")
        answer, port = ask(block[100], block[150])
    head = "PROXY TCP4" if version is ProxyProtocol.V1 else "v2 0x21"
    assert answer == f"{head} {block[150]} {block[100]} {port} 8080 then hello"


def test_addresses_of_ipv6_clients_are_sent_too(start: Start, block: Block) -> None:
    """The header is of the client's family, whatever the backend's is."""
    with reading("::1") as backend:
        listener, upstream = serve("::1", [], port=20000 + int(block[1].split(".")[2]))
        start(rendering((listener, replace(upstream, backends=(backend,), proxy_protocol=ProxyProtocol.V2))))
        with socket.create_connection(("::1", listener.port), 10) as client:
            client.sendall(b"hello\n")
            answer = client.makefile().read(200).strip()
            assert answer == f"v2 0x21 ::1 ::1 {client.getsockname()[1]} {listener.port} then hello"
