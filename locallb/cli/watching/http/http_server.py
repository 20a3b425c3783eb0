"""A small HTTP server on the loopback: pages that are read occasionally, and streams of updates.

One thread serves all clients and waits for none. Each has a time limit for its whole request and for reading the
response; if there are too many clients, the oldest connection is closed. The next part of a stream is made after the
client has read the former one, for which it has the same time. Not here: the content of pages.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from threading import Lock
from typing import cast

from msgspec import Struct, field

from locallb.cli.watching.http.http_messages import Guard, Page, Pages, Stream, answer, written
from locallb.host import sockets
from locallb.model.errors import ClientError
from locallb.model.identities import IPAddress, place
from locallb.threads.supervised import SupervisedThread, Task

TIMEOUT = 5.0
"""Seconds that a client has from its connection on until it has the answer."""
AT_ONCE = 32
"""Connections that are kept at a time."""
STREAMS = 8
"""Of these, clients that follow a stream; those of other users make room for those of this one."""
LIFE = 600.0
"""Seconds after which a stream ends: a client that still reads it opens it again."""
BEAT = 5.0
"""Seconds after which a stream is polled without a notification."""
_LONGEST = 16384
"""Bytes of a request's head."""
_ENDS = (b"\r\n\r\n", b"\n\n")
_LAST = 0.9
"""Seconds that a page which is being made has to be finished when the server stops."""
_TOO_MANY = b"too many pages are open: close one\n"
_PAUSE = 0.1
"""Seconds without new clients where the system has no descriptor left for one."""


class HttpServerError(ClientError):
    """The server can't listen there: one sentence."""


class _Client(Struct):
    """A connection: first its request comes in, then its answer goes out, then a stream if it asked for one."""

    socket: socket.socket
    until: float
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None
    stream: Stream | None = None
    ends: float = 0.0
    """When its stream does."""


class HttpServer:
    """Listens from the beginning, answers once started, until `stop`. Raises HttpServerError."""

    def __init__(
        self, address: IPAddress, port: int, pages: Pages, guard: Guard | None = None, name: str = "metrics"
    ) -> None:
        host = str(address)
        self._pages, self._guard = pages, guard
        try:
            self._listener = _listening(host, port, address.version)
        except OSError as error:
            what = os.strerror(error.errno) if error.errno else error
            remedy = "from 1024 on, every user may" if error.errno == errno.EACCES else "or end what uses it"
            raise HttpServerError(
                f"{host} port {port} can't be listened on ({what}): choose another port, {remedy}"
            ) from error
        self.place = place(address, self._listener.getsockname()[1])
        """Where it listens, with the port that it got where 0 was asked for."""
        self._bell: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bell_lock = Lock()
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._listener, selectors.EVENT_READ)
        self._ready.register(self._bell, selectors.EVENT_READ)
        self._clients: dict[socket.socket, _Client] = {}
        """The one that has been there longest first."""
        self._thread = SupervisedThread(Task.HTTP, name, self._serve)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the readers of streams, for what is new; from any thread."""
        with self._bell_lock:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def stop(self) -> None:
        """Stop answering, whatever clients do; clients of streams get the last news if their buffers have room."""
        self._thread.stop()
        self.wake()
        if not self._thread.join(_LAST):  # a page that is being made can't be broken off
            return
        for client in list(self._clients.values()):
            if client.stream and not client.answer:
                self._go_on(client, selectors.EVENT_WRITE)
            self._drop(client)
        self._listener.close()
        self._ready.close()
        with self._bell_lock:
            bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)

    def _serve(self) -> None:
        beat = 0.0
        while not self._thread.stopped.is_set():
            for key, events in self._ready.select(self._next(time.monotonic())):
                if key.fileobj is self._listener:
                    self._accept(time.monotonic())
                elif isinstance(key.fileobj, int):
                    os.eventfd_read(key.fileobj)
                    beat = 0.0
                elif client := self._clients.get(cast("socket.socket", key.fileobj)):
                    self._go_on(client, events)
            for client in [client for client in self._clients.values() if client.until <= time.monotonic()]:
                self._drop(client)
            if beat <= time.monotonic():
                beat = time.monotonic() + BEAT
                self._report_news()

    def _next(self, now: float) -> float | None:
        """Return the seconds until a client's time is over, or a stream's next beat; None where there is none."""
        if not self._clients:
            return None
        streams = any(client.stream for client in self._clients.values())
        over = max(0.0, min(client.until for client in self._clients.values()) - now)
        return min(over, BEAT) if streams else over

    def _accept(self, now: float) -> None:
        try:
            claimed, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor is left
            self._make_room()
            self._thread.stopped.wait(_PAUSE)
            return
        if len(self._clients) >= AT_ONCE:
            self._make_room()
        claimed.setblocking(False)
        self._clients[claimed] = _Client(claimed, now + TIMEOUT)
        self._ready.register(claimed, selectors.EVENT_READ)

    def _make_room(self) -> None:
        if longest := next((client for client in self._clients.values() if client.stream is None), None):
            self._drop(longest)

    def _report_news(self) -> None:
        for client in [client for client in self._clients.values() if client.stream and not client.answer]:
            self._go_on(client, selectors.EVENT_WRITE)

    def _go_on(self, client: _Client, events: int) -> None:
        """Take what has come, or send what can be sent."""
        try:
            if client.answer is None:
                self._take(client)
            elif client.stream and events & selectors.EVENT_READ:  # it has said all that it may
                self._drop(client)
            else:
                self._give(client)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it went away
            self._drop(client)
        except BaseException:
            self._drop(client)
            raise

    def _take(self, client: _Client) -> None:
        part = client.socket.recv(_LONGEST)
        client.request += part
        if any(end in client.request for end in _ENDS):
            self._begin_answer(client)
        elif not part or len(client.request) > _LONGEST:
            self._drop(client)

    def _begin_answer(self, client: _Client) -> None:
        made = answer(bytes(client.request), self._pages, self._guard)
        if made.opens and self._is_full(client):
            made = written(Page(_TOO_MANY, status=HTTPStatus.SERVICE_UNAVAILABLE))
        client.answer = memoryview(made.data)
        client.stream = made.opens() if made.opens else None
        client.ends = time.monotonic() + LIFE
        self._ready.modify(client.socket, selectors.EVENT_WRITE | (selectors.EVENT_READ if client.stream else 0))

    def _is_full(self, client: _Client) -> bool:
        """Return whether no stream can be added; one of this user takes the place of another user's."""
        streams = [other for other in self._clients.values() if other.stream]
        if len(streams) < STREAMS:
            return False
        users = sockets.users({_peer(other) for other in (client, *streams)})
        if users.get(_peer(client)) != os.geteuid():
            return True
        strangers = (other for other in streams if users.get(_peer(other)) != os.geteuid())
        if stranger := next(strangers, None):
            self._drop(stranger)
        return stranger is None

    def _give(self, client: _Client) -> None:
        """Send what is left; then what is new of a stream."""
        if client.stream and not client.answer:
            self._refill(client, client.stream)
        if client.answer:
            client.answer = client.answer[client.socket.send(client.answer) :]
        if not client.answer and client.stream is None:
            self._drop(client)

    def _refill(self, client: _Client, stream: Stream) -> None:
        """Take what is new; where nothing is, wait for it."""
        client.answer = memoryview(stream.read())
        client.until = min(client.ends, time.monotonic() + TIMEOUT) if client.answer else client.ends
        waits = 0 if not client.answer else selectors.EVENT_WRITE
        self._ready.modify(client.socket, selectors.EVENT_READ | waits)

    def _drop(self, client: _Client) -> None:
        """Close one connection, served or not."""
        if self._clients.pop(client.socket, None):
            with suppress(KeyError, ValueError, OSError):
                self._ready.unregister(client.socket)
            with suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
            client.socket.close()
            if client.stream:
                client.stream.close()


def _peer(client: _Client) -> tuple[IPAddress, int]:
    host, port = client.socket.getpeername()[:2]
    return ip_address(host), port


def _listening(host: str, port: int, version: int) -> socket.socket:
    family = socket.AF_INET6 if version == 6 else socket.AF_INET  # noqa: PLR2004 - IP version
    listener = socket.create_server((host, port), family=family, backlog=AT_ONCE)
    listener.setblocking(False)
    return listener
