"""TLS with limits of the connection below it, applied to every received part before it is decrypted.

A socket's own TLS returns only when there is data for the client. A server that sends anything else, such as session
tickets without an end, blocks its reader for as long as it likes, and the amount stays unknown. Not here: the limits
(`allowance`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import httpcore2

from locallb.kubernetes.api.limits.connections import WrappedStream

T = TypeVar("T")
PART = 64 << 10
"""Bytes that are taken at once."""


class SecuredStream(WrappedStream):
    """TLS on another connection. Raises ConnectError where they can't agree, and closes it then."""

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
