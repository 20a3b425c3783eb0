"""Cost limits of an API that another user named: the seconds and bytes of one pass, all its requests together.

Such a server may send a byte now and then, a list without an end, or a name with a hundred addresses of which none
answers. Whatever it does, the pass ends in time and fills no memory. Not here: pages (`connected.PageGuard`), and the
timeouts of APIs that this stack's user named (`deadline`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable

import httpcore2
import httpx2

from locallb.kubernetes.answers import AnswerError
from locallb.kubernetes.api.limits.connections import WrappedStream, connect_with
from locallb.kubernetes.api.limits.secured import SecuredStream
from locallb.threads.resolver import addresses_of

SECONDS = 5.0
PAGES = 10
BYTES = 8 << 20


class Allowance:
    """Remaining seconds and bytes of this pass; for one thread."""

    def __init__(self) -> None:
        self._until = 0.0
        self._bytes = 0

    def renew(self) -> None:
        """Begin another look."""
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
    connect_with(client, _Connecting(allowance))


def ask_plainly(request: httpx2.Request) -> None:
    """Request an uncompressed answer: a compressed one may unpack to a thousand times its size.

    Each request has a connection of its own: without retries, one that was closed meanwhile would fail.
    """
    request.headers |= {"Accept-Encoding": "identity", "Connection": "close"}


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


class _Connecting(httpcore2.SyncBackend):
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
