"""A small HTTP server on the loopback: pages that are read occasionally, and streams of updates.

One thread serves all clients and waits for none. Each has a time limit for its whole request and for reading the
response; if there are too many clients, the oldest connection is closed. The next part of a stream is made after the
client has read the former one, for which it has the same time. Requests have no body and answers end with their
connection, as in HTTP/1.0.

Not here: the content of pages and the accepted hosts (`supervision`, `cli.watching.page`).
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from ipaddress import ip_address
from threading import Lock
from typing import NamedTuple, Protocol, cast

from msgspec import Struct, field

from locallb.host import sockets
from locallb.model.errors import ClientError
from locallb.model.identities import IPAddress, place
from locallb.model.texts import few
from locallb.patterns import pattern
from locallb.threads import THREADS, SupervisedThread, Task

_HOST = pattern(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)


class Host(NamedTuple):
    """The name or address that a request was sent to, whatever the port."""

    name: str = ""
    """In lower case; a trailing dot stays, as only a name of DNS has one. Empty for an address, and for none."""
    address: IPAddress | None = None


def host_of(request: HttpRequest) -> Host | None:
    """Return the host of a request; an empty one without the header. None for several, and for an invalid one."""
    values = request.values("host")
    if len(values) > 1:
        return None
    return parse_host(values[0]) if values else Host()


def parse_host(value: str) -> Host | None:
    """Read the value of a Host header: `name`, an IPv4 address, or an IPv6 address in brackets, and perhaps a port."""
    if not value:
        return Host()
    match = _HOST.fullmatch(value)
    if match is None:
        return None
    try:
        address = ip_address(match["six"] or match["name"])
    except ValueError:
        return None if match["six"] else Host(match["name"].lower())
    return Host(address=address) if (address.version == 6) == bool(match["six"]) else None  # noqa: PLR2004 - IPv6


class Stream(Protocol):
    """A response that one client gets in pieces, until it disconnects."""

    def read(self) -> bytes:
        """Return what is new since the last call; empty if nothing is. It must not block."""

    def close(self) -> None:
        """Note that the client has gone."""


class Page(Struct, frozen=True):
    """An answer."""

    text: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers in addition to those of every response."""
    opens: Callable[[], Stream] | None = None
    """Begins the stream that follows after the text, if one does."""
    is_private: bool = False
    """Whether only this user gets it."""


class HttpRequest(Struct, frozen=True):
    """The head of a request."""

    method: str
    path: str
    """Without the query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case, in the order in which they came."""
    query: str = ""

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


Pages = Mapping[str, Callable[[HttpRequest], Page]]
"""By path: what gives the page for a request."""
Guard = Callable[[HttpRequest], Page | None]
"""Gives the refusal of a request; None for one that is answered."""


class HttpAnswer(Struct, frozen=True):
    """What a client gets: these bytes, then a stream if there is one."""

    data: bytes
    opens: Callable[[], Stream] | None = None
    is_private: bool = False


def answer(head: bytes, pages: Pages, guard: Guard | None = None) -> HttpAnswer:
    """Make the answer to a request, of which the head has come."""
    request = _parsed(head)
    if request is None:
        return written(Page(b"this is no request of HTTP\n", status=HTTPStatus.BAD_REQUEST))
    page = (guard(request) if guard else None) or _page(request, pages)
    return written(page, with_body=request.method != "HEAD")


def written(page: Page, *, with_body: bool = True) -> HttpAnswer:
    """Write a page as HTTP has it."""
    status = HTTPStatus(page.status)
    headers = {
        "Server": "local-lb",
        "Date": formatdate(usegmt=True),
        "Content-Type": page.kind,
        **({} if page.opens else {"Content-Length": str(len(page.text))}),
        **page.headers,
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.0 {status.value} {status.phrase}\r\n{lines}\r\n".encode()
    return HttpAnswer(head + page.text if with_body else head, page.opens if with_body else None, page.is_private)


def _parsed(head: bytes) -> HttpRequest | None:
    first, _, rest = head.decode("latin-1").partition("\n")
    terms = first.split()
    if len(terms) < 2:  # noqa: PLR2004 - method, target
        return None
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in map(_parted, rest.split("\n")))
    path, _, query = terms[1].partition("?")
    return HttpRequest(terms[0], path, headers, query)


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _page(request: HttpRequest, pages: Pages) -> Page:
    if request.method not in {"GET", "HEAD"}:
        return Page(b"there is GET, HEAD\n", status=HTTPStatus.NOT_IMPLEMENTED)
    make = pages.get(request.path)
    if make is None:
        return Page(f"there is {few(pages, _NAMED)}\n".encode(), status=HTTPStatus.NOT_FOUND)
    try:
        return make(request)
    except Exception as error:  # noqa: BLE001 - a page that can't be made is no reason to give no other
        sentence = THREADS.escaped(Task.HTTP, f"metrics {request.path}", error)
        return Page(f"{sentence}\n".encode(errors="replace"), status=HTTPStatus.INTERNAL_SERVER_ERROR)


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
_NAMED = 8
"""Paths that are named to a client that asks for another one."""
_PRIVATE = b"this is for the user of `locallb watch` only\n"
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
        if made.is_private and sockets.users({_peer(client)}).get(_peer(client)) != os.geteuid():
            made = written(Page(_PRIVATE, status=HTTPStatus.FORBIDDEN))
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
