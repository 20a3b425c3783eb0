"""Backends and clients: servers that can fall silent like a dead node, single requests and loads at a constant rate.

Everything is on addresses of 127.0.0.0/8 chosen at random, so that runs at the same time don't meet.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import TracebackType
from typing import Self, cast

from locallb.model.identities import Protocol
from locallb.model.serving import Backend
from tests.support.stages import free_prefix
from tests.support.waiting import becomes

TIMEOUT = 10.0
"""Seconds until something that must happen is given up; far more than it takes, for busy machines."""
_STOP, _DIE = b"s", b"d"
_FILLERS = 4
"""Connections that fill a queue of length 0, in which the kernel lets one wait."""


@dataclass(frozen=True)
class Block:
    """A random /24 of 127.0.0.0/8, so that tests that run at the same time don't meet."""

    prefix: str = field(default_factory=free_prefix)

    def __getitem__(self, number: int) -> str:
        return f"{self.prefix}.{number}"


def servers(names: str, block: Block, first: int = 1, *, delay: float = 0) -> list[Server]:
    """Start a server for each name, on one port number and neighbouring addresses, like a Service's Nodes."""
    port = 20_000 + secrets.randbelow(10_000)
    return [Server(name, block[first + n], port, delay=delay) for n, name in enumerate(names)]


class Server:
    """A TCP and a UDP server on one port: it answers what it gets with the first byte replaced by its name.

    An HTTP GET is answered 200, after `delay` seconds: that is a Node's health port.
    """

    def __init__(self, name: str, address: str, port: int = 0, *, delay: float = 0) -> None:
        self.name = name
        self.delay = delay
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._tcp = socket.create_server((address, port), family=family, backlog=512)
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        self._udp.bind((address, self.port))
        self.backend = Backend.at(ip_address(address), self.port)
        self.accepted = self.datagrams = 0
        self._streams: set[socket.socket] = set()
        self._fillers: list[socket.socket] = []
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def die(self) -> None:
        """Fall silent like a node without power: new connections hang, open ones and datagrams get no answer."""
        self._wake.send(_DIE)
        self._thread.join()

    def close(self) -> None:
        if self._thread.is_alive():
            self._wake.send(_STOP)
            self._thread.join()
        for opened in (self._wake, self._woken, self._tcp, self._udp, *self._streams, *self._fillers):
            opened.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for opened in (self._woken, self._tcp, self._udp):
                selector.register(opened, selectors.EVENT_READ)
            ready: set[socket.socket] = set()
            while self._woken not in ready:
                ready = {cast("socket.socket", key.fileobj) for key, _ in selector.select()}
                for readable in ready - {self._woken}:
                    self._serve(readable, selector)
        if self._woken.recv(1) == _DIE:
            self._fill_the_queue()

    def _fill_the_queue(self) -> None:
        """Make the kernel drop further connection requests; needs no right, unlike a packet filter."""
        self._tcp.listen(0)
        for _ in range(_FILLERS):
            filler = socket.socket(self._tcp.family, socket.SOCK_STREAM)
            filler.setblocking(False)
            filler.connect_ex(self._tcp.getsockname())
            self._fillers.append(filler)

    def _serve(self, ready: socket.socket, selector: selectors.BaseSelector) -> None:
        if ready is self._tcp:
            stream, _ = self._tcp.accept()
            self.accepted += 1
            self._streams.add(stream)
            selector.register(stream, selectors.EVENT_READ)
        elif ready is self._udp:
            data, peer = self._udp.recvfrom(65536)
            self.datagrams += 1
            self._udp.sendto(self._answer(data), peer)
        else:
            self._stream(ready, selector)

    def _stream(self, stream: socket.socket, selector: selectors.BaseSelector) -> None:
        with suppress(ConnectionError):
            if data := stream.recv(65536):
                stream.sendall(self._answer(data))
                return
        selector.unregister(stream)
        self._streams.discard(stream)
        stream.close()

    def _answer(self, data: bytes) -> bytes:
        if data.startswith(b"GET "):
            time.sleep(self.delay)
            return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        return self.name.encode() + data[1:]


def ask_tcp(address: str, port: int, source: str = "", timeout: float = TIMEOUT) -> str:
    """Connect, send a byte and read one. Returns the server's name, or the name of the error; `Closed` for an end."""
    try:
        local = (source, 0) if source else None
        with socket.create_connection((address, port), timeout, source_address=local) as client:
            client.sendall(b"?")
            return client.recv(1).decode() or "Closed"
    except OSError as error:
        return type(error).__name__


def ask_udp(address: str, port: int, source: str = "", timeout: float = 1.0, size: int = 1) -> str:
    """Send a datagram and wait for the answer, which must have its size. Returns as `ask_tcp`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout)
        client.bind((source, 0))
        try:
            client.connect((address, port))
            client.send(b"?" * size)
            answer = client.recv(65536)
        except OSError as error:
            return type(error).__name__
    return answer[:1].decode() if len(answer) == size else f"{len(answer)} bytes"


@dataclass(frozen=True)
class Outcome:
    """One request of a load: when it began (seconds, perf_counter), how long it took and who answered."""

    began: float
    seconds: float
    answer: str


class Load:
    """A client at a constant rate: every request is a new connection, and a slow one doesn't hold up the next."""

    def __init__(self, ask: Callable[[], str], rate: float = 200) -> None:
        self._ask = ask
        self._rate = rate
        self._outcomes: list[Outcome] = []
        self._stop = threading.Event()
        self.late = 0.0
        """Seconds for which the machine held up the client itself, at worst: what it may add to any request."""
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def outcomes(self) -> list[Outcome]:
        """Everything that ended so far; after the load's end, everything."""
        return sorted(self._outcomes, key=lambda outcome: outcome.began)

    def await_more(self, count: int) -> None:
        """Wait until so many requests that begin from now on have ended, however long a busy machine takes for that."""
        now = time.perf_counter()
        becomes(lambda: sum(outcome.began >= now for outcome in [*self._outcomes]) >= count, f"{count} more requests")

    def failures(self, names: str) -> list[Outcome]:
        """Return the requests that none of the servers `names` answered."""
        return [outcome for outcome in self.outcomes if outcome.answer not in set(names)]

    def _run(self) -> None:
        began, threads = time.perf_counter(), list[threading.Thread]()
        last = began
        while not self._stop.wait(max(0, began + len(threads) / self._rate - time.perf_counter())):
            now = time.perf_counter()
            self.late, last = max(self.late, now - last - 1 / self._rate), now
            threads.append(threading.Thread(target=self._one))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _one(self) -> None:
        began = time.perf_counter()
        answer = self._ask()
        self._outcomes.append(Outcome(began, time.perf_counter() - began, answer))


def ask(protocol: Protocol) -> Callable[..., str]:
    return ask_udp if protocol is Protocol.UDP else ask_tcp
