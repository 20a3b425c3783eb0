"""A small HTTP server on the loopback: pages that programs of this host read now and again, metrics for instance.

One thread serves all clients and waits for none. Each has so many seconds for its whole request and for taking the
answer; where too many are there the one that has been there longest goes. Not here: what the pages say.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

from locallb.model.errors import ClientError
from locallb.model.identities import IPAddress
from locallb.threads.supervised import THREADS, SupervisedThread, Task

PATIENCE = 5.0
"""Seconds that a client has from its connection on until it has the answer."""
AT_ONCE = 32
"""Connections that are kept at a time."""
_LONGEST = 16384
"""Bytes of a request's head."""
_ENDS = (b"\r\n\r\n", b"\n\n")
_LAST = 0.9
"""Seconds that a page which is being made has to be finished when the server stops."""
_PAUSE = 0.1
"""Seconds without new clients where the system has no descriptor left for one."""


class AnsweringError(ClientError):
    """The server can't listen there: one sentence."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    text: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK


Pages = Mapping[str, Callable[[str], Page]]
"""By path: what gives the page for a client with that Accept header."""


@dataclass(slots=True)
class _Client:
    """A connection: first its request comes in, then its answer goes out."""

    socket: socket.socket
    until: float
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None


class Answering:
    """Listens from the beginning, answers once started, until `stop`. Raises AnsweringError."""

    def __init__(self, address: IPAddress, port: int, pages: Pages) -> None:
        host = str(address)
        self._pages = pages
        try:
            self._listener = _listening(host, port, address.version)
        except OSError as error:
            what = os.strerror(error.errno) if error.errno else error
            remedy = "from 1024 on, every user may" if error.errno == errno.EACCES else "or end what uses it"
            raise AnsweringError(
                f"{host} port {port} can't be listened on ({what}): choose another port, {remedy}"
            ) from error
        number = self._listener.getsockname()[1]
        self.place = f"[{host}]:{number}" if address.version == 6 else f"{host}:{number}"  # noqa: PLR2004 - IP version
        """Where it listens, with the port that it got where 0 was asked for."""
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._listener, selectors.EVENT_READ)
        self._ready.register(self._bell, selectors.EVENT_READ)
        self._clients: dict[socket.socket, _Client] = {}
        """The one that has been there longest first."""
        self._thread = SupervisedThread(Task.HTTP, "metrics", self._serve)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, whatever clients do."""
        self._thread.stop()
        os.eventfd_write(self._bell, 1)
        if not self._thread.join(_LAST):  # a page that is being made can't be broken off
            return
        for connection in (*self._clients, self._listener):
            connection.close()
        self._ready.close()
        os.close(self._bell)

    def _serve(self) -> None:
        while not self._thread.stopped.is_set():
            for key, _ in self._ready.select(self._next(time.monotonic())):
                if key.fileobj is self._listener:
                    self._accept(time.monotonic())
                elif client := self._clients.get(key.fileobj):  # type: ignore[call-overload]  # the bell is no socket
                    self._go_on(client)
            for client in [client for client in self._clients.values() if client.until <= time.monotonic()]:
                self._drop(client)

    def _next(self, now: float) -> float | None:
        """Return the seconds until a client's time is over; None where there is none."""
        return max(0.0, next(iter(self._clients.values())).until - now) if self._clients else None

    def _accept(self, now: float) -> None:
        try:
            taken, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor is left
            self._make_room()
            self._thread.stopped.wait(_PAUSE)
            return
        if len(self._clients) >= AT_ONCE:
            self._make_room()
        taken.setblocking(False)
        self._clients[taken] = _Client(taken, now + PATIENCE)
        self._ready.register(taken, selectors.EVENT_READ)

    def _make_room(self) -> None:
        if self._clients:
            self._drop(next(iter(self._clients.values())))

    def _go_on(self, client: _Client) -> None:
        """Take what has come, or send what can be sent."""
        try:
            if client.answer is None:
                self._take(client)
            else:
                client.answer = client.answer[client.socket.send(client.answer) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it went away
            self._drop(client)
            return
        except BaseException:
            self._drop(client)
            raise
        if client.answer is not None and not client.answer:
            self._drop(client)

    def _take(self, client: _Client) -> None:
        part = client.socket.recv(_LONGEST)
        client.request += part
        if any(end in client.request for end in _ENDS):
            client.answer = memoryview(_answer(bytes(client.request), self._pages))
            self._ready.modify(client.socket, selectors.EVENT_WRITE)
        elif not part or len(client.request) > _LONGEST:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        """Let one go, served or not."""
        if self._clients.pop(client.socket, None):
            with suppress(KeyError, ValueError, OSError):
                self._ready.unregister(client.socket)
            with suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
            client.socket.close()


def _listening(host: str, port: int, version: int) -> socket.socket:
    family = socket.AF_INET6 if version == 6 else socket.AF_INET  # noqa: PLR2004 - IP version
    listener = socket.create_server((host, port), family=family, backlog=AT_ONCE)
    listener.setblocking(False)
    return listener


def _answer(request: bytes, pages: Pages) -> bytes:
    """Write the answer to a request, of which the head has come."""
    first, _, rest = request.decode("latin-1").partition("\n")
    words = first.split()
    if len(words) < 2:  # noqa: PLR2004 - method, target
        return _written(Page(b"this is no request of HTTP\n", status=HTTPStatus.BAD_REQUEST), with_body=True)
    method, target = words[:2]
    if method not in {"GET", "HEAD"}:
        return _written(Page(b"there is GET, HEAD\n", status=HTTPStatus.NOT_IMPLEMENTED), with_body=True)
    accept = next((value.strip() for name, _, value in map(_parted, rest.split("\n")) if name.lower() == "accept"), "")
    return _written(_page(target.partition("?")[0], accept, pages), with_body=method == "GET")


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _page(path: str, accept: str, pages: Pages) -> Page:
    make = pages.get(path)
    if make is None:
        return Page(f"there is {', '.join(pages)}\n".encode(), status=HTTPStatus.NOT_FOUND)
    try:
        return make(accept)
    except Exception as error:  # noqa: BLE001 - a page that can't be made is no reason to give no other
        sentence = THREADS.escaped(Task.HTTP, f"metrics {path}", error)
        return Page(f"{sentence}\n".encode(errors="replace"), status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _written(page: Page, *, with_body: bool) -> bytes:
    status = HTTPStatus(page.status)
    head = (
        f"HTTP/1.0 {status.value} {status.phrase}\r\nServer: local-lb\r\nDate: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: {page.kind}\r\nContent-Length: {len(page.text)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (page.text if with_body else b"")
