"""Limits of the answers of an API server: size, time, and the cost of one pass, on the client's connections.

No API can fill the memory or hold its reader up for long. The limits of cost are for an API that another user named,
and they count all requests of a pass together.

Not here: lines of watches (`kubernetes.answers`), deadlines of watches (`feed`), and pages (`client`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import httpcore2
import httpx2

from locallb.kubernetes.answers import AnswerError
from locallb.threads import addresses_of

LARGEST = 256 << 20
"""Bytes of one answer, unpacked. A page has 1000 objects at most, of which a large one has a tenth of a MiB."""


def read_whole(response: httpx2.Response) -> None:
    """Read an answer to its end, before anybody else does. Raises AnswerError where it is too large."""
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > LARGEST:
            raise AnswerError(f"its answer is larger than {LARGEST >> 20} MiB")
        parts.append(part)
    response._content = b"".join(parts)  # noqa: SLF001 - as `read` does, which has no bound


class WrappedStream(httpcore2.NetworkStream):
    """A connection around another one; subclasses add limits."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - as httpcore has it
        """Return the connection's property of that name."""
        return self._stream.get_extra_info(info)


def connect_with(client: httpx2.Client, backend: httpcore2.SyncBackend) -> None:
    """Have a client make its connections with `backend`, also on their way through a proxy."""
    for transport in filter(None, (client._transport, *client._mounts.values())):  # noqa: SLF001 - no other way to its connections
        transport._pool._network_backend = backend  # type: ignore[attr-defined]  # noqa: SLF001 - likewise


TIMEOUT = 60.0
"""Seconds that an answer may take, its head and its body."""


class _Timed(WrappedStream):
    """A connection on which each answer ends in time, counted from the last word of the question, or when it is due."""

    def __init__(self, stream: httpcore2.NetworkStream, due: Callable[[], float] | None = None) -> None:
        super().__init__(stream)
        self._requested = time.monotonic()
        self._due = due

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if time.monotonic() > (self._due() if self._due else self._requested + TIMEOUT):
            limit = "it may" if self._due else f"{TIMEOUT:g} s"
            raise httpcore2.ReadTimeout(f"its answer takes longer than {limit}")
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._requested = time.monotonic()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Timed(self._stream.start_tls(ssl_context, server_hostname, timeout), self._due)


class _Connecting(httpcore2.SyncBackend):
    """Makes such connections."""

    def __init__(self, due: Callable[[], float] | None = None) -> None:
        self._due = due

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        return _Timed(super().connect_tcp(host, port, timeout, local_address, socket_options), self._due)


def limit(client: httpx2.Client, due: Callable[[], float] | None = None) -> None:
    """Give each answer to a client `TIMEOUT` seconds, or until `due`, also on its way through a proxy.

    The deadline is for a whole answer: a server that sends a byte now and then never exceeds the timeout of a single
    read.
    """
    connect_with(client, _Connecting(due))


SECONDS = 5.0
PAGES = 10
BYTES = 8 << 20


class Allowance:
    """Remaining seconds and bytes of this pass, all its requests together; for one thread.

    A server that another user named may send a byte now and then, a list without an end, or have a name with a hundred
    addresses of which none answers. Whatever it does, the pass ends in time and fills no memory.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._bytes = 0

    def renew(self) -> None:
        self._until = time.monotonic() + SECONDS
        self._bytes = BYTES

    def seconds(self, wanted: float | None = None) -> float:
        """Return how long something may take, at most as long as `wanted`. Raises ReadTimeout if there is no time."""
        remaining = self._until - time.monotonic()
        if remaining <= 0:
            raise httpcore2.ReadTimeout(f"its answers take longer than {SECONDS:g} s")
        return remaining if wanted is None else min(remaining, wanted)

    def receive(self, data: bytes) -> bytes:
        """Count received bytes against the allowance. Raises AnswerError if they are too many."""
        self._bytes -= len(data)
        if self._bytes < 0:
            raise AnswerError(f"its answers are larger than {BYTES >> 20} MiB")
        return data


def limit_to(allowance: Allowance, client: httpx2.Client) -> None:
    """Have the connections of a client keep to it, also on their way through a proxy."""
    connect_with(client, _AllowanceConnecting(allowance))


PLAIN = {"Accept-Encoding": "identity", "Connection": "close"}
"""Headers of requests for uncompressed answers: a compressed one may unpack to a thousand times its size.

Each request has a connection of its own: without retries, one that was closed meanwhile would fail.
"""


def refuse_compressed(response: httpx2.Response) -> None:
    """Raise AnswerError for an answer that is compressed all the same, before it is read."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise AnswerError("the answer is compressed, which nobody asked for")


class _Limited(WrappedStream):
    """A connection with the remaining time for each step; all received bytes count, including those of TLS."""

    def __init__(self, allowance: Allowance, stream: httpcore2.NetworkStream) -> None:
        super().__init__(stream)
        self._allowance = allowance

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._allowance.receive(self._stream.read(max_bytes, self._allowance.seconds(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._allowance.seconds(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return SecuredStream(self, ssl_context, server_hostname, timeout)


class _AllowanceConnecting(httpcore2.SyncBackend):
    """Makes such connections, to the first address of a name that answers."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        error: Exception = httpcore2.ConnectError(f"the name {host} has no address")
        for address in addresses_of(host, self._allowance.seconds()):
            seconds = self._allowance.seconds(timeout)
            try:
                stream = super().connect_tcp(address, port, seconds, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as refused:
                error = refused
            else:
                return _Limited(self._allowance, stream)
        raise error


T = TypeVar("T")
PART = 64 << 10
"""Bytes that are taken at once."""


class SecuredStream(WrappedStream):
    """TLS on another connection. Raises ConnectError where they can't agree, and closes it then.

    The limits of the connection below apply to every received part before it is decrypted. A socket's own TLS returns
    only when there is data for the client. A server that sends anything else, such as session tickets without an end,
    blocks its reader for as long as it likes, and the amount stays unknown.
    """

    def __init__(
        self,
        stream: httpcore2.NetworkStream,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None,
        timeout: float | None,
    ) -> None:
        super().__init__(stream)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = ssl_context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
            self._do(self._tls.do_handshake, timeout)
        except ssl.SSLError as error:
            self.close()
            raise httpcore2.ConnectError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what comes next; nothing at the end, also where the server just hangs up. Raises ReadError."""
        try:
            return self._do(partial(self._tls.read, max_bytes), timeout)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""
        except ssl.SSLError as error:
            raise httpcore2.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it. Raises WriteError."""
        sent = 0
        try:
            while sent < len(buffer):
                sent += self._do(partial(self._tls.write, memoryview(buffer)[sent:]), timeout)
        except ssl.SSLError as error:
            raise httpcore2.WriteError(str(error)) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """Return TLS within this one, as through a proxy that is reached by TLS."""
        return SecuredStream(self, ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - as httpcore has it
        """Return the connection's property of that name."""
        return self._tls if info == "ssl_object" else super().get_extra_info(info)

    def _do(self, step: Callable[[], T], timeout: float | None) -> T:
        """Return a step's result, once it has the needed data of the server. Raises SSLError."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._send(timeout)
                self._receive(timeout)
            else:
                self._send(timeout)
                return done

    def _send(self, timeout: float | None) -> None:
        if data := self._outgoing.read():
            self._stream.write(data, timeout)

    def _receive(self, timeout: float | None) -> None:
        if data := self._stream.read(PART, timeout):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
