"""Tiny backends that answer with their names, and clients that ask them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

SECONDS = 5.0


class Backend:
    """Answers every line (TCP) or datagram (UDP) with its name before it; also counts connections."""

    def __init__(self, name: str, address: str = "127.0.0.1", port: int = 0) -> None:
        self.name = name
        self._tcp, self._udp = _bound_pair(address, port)
        self.port: int = self._tcp.getsockname()[1]
        self.connections = 0
        self.peers: set[str] = set()
        for loop in (self._accept, self._datagrams):
            threading.Thread(target=loop, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, peer = self._tcp.accept()
                self.connections += 1
                self.peers.add(str(peer[0]))
                threading.Thread(target=self._lines, args=(client,), daemon=True).start()

    def _lines(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, client.makefile("rb") as lines:
            for line in lines:
                client.sendall(f"{self.name}: ".encode() + line)

    def _datagrams(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                datagram, sender = self._udp.recvfrom(9_100)
                if sender is None:  # shut down
                    return
                self._udp.sendto(f"{self.name}: ".encode() + datagram, sender)

    def close(self) -> None:
        for connection in (self._tcp, self._udp):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@contextlib.contextmanager
def backends() -> Iterator[Callable[..., Backend]]:
    """Return a maker of backends; those that it made are closed at the end."""
    made: list[Backend] = []

    def make(name: str, address: str = "127.0.0.1", port: int = 0) -> Backend:
        made.append(Backend(name, address, port))
        return made[-1]

    try:
        yield make
    finally:
        for backend in made:
            backend.close()


def _bound_pair(address: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Bind a TCP and a UDP socket to the same port."""
    for _ in range(50):
        tcp = socket.create_server((address, port), family=_family(address), backlog=256)
        udp = socket.socket(_family(address), socket.SOCK_DGRAM)
        try:
            udp.bind((address, tcp.getsockname()[1]))
        except OSError:
            tcp.close()
            udp.close()
            continue
        return tcp, udp
    raise AssertionError("no port is free for TCP and UDP at once")


def ask(  # noqa: PLR0913, PLR0917 - what a client may choose, each with a default
    address: str,
    port: int,
    protocol: str = "TCP",
    terms: str = "hello",
    source: str = "",
    seconds: float = SECONDS,
) -> str:
    """Send one line or datagram and give the answer without its end."""
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    with socket.socket(_family(address), kind) as client:
        client.settimeout(seconds)
        if source:
            client.bind((source, 0))
        client.connect((address, port))
        client.sendall(f"{terms}\n".encode() if protocol == "TCP" else terms.encode())
        return client.recv(9_100).decode().strip()


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def refused(address: str, port: int) -> bool:
    """Return whether a TCP client is refused."""
    try:
        socket.create_connection((address, port), timeout=SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def listening(address: str, port: int) -> socket.socket:
    """Listen where a killed process may need a moment to let go."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_server((address, port))
        except OSError:
            assert time.monotonic() < deadline, f"{address}:{port} stays in use"
            time.sleep(0.02)


RATE = 100
"""Requests a second, each on a connection of its own."""


class Client:
    """Asks at a constant rate, and notes what went wrong."""

    def __init__(self, address: str, port: int) -> None:
        self._place = address, port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers: list[str] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.1)
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1 / RATE):
            try:
                self.answers.append(ask(*self._place))
            except OSError as error:
                self.failures.append(str(error))
