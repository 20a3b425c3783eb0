"""A deadline for whole answers: a server that sends a byte now and then never exceeds the timeout of a single read.

Not here: watches, which have deadlines of their own (`feed`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable

import httpcore2
import httpx2

from locallb.kubernetes.api.limits.connections import WrappedStream, connect_with

TIMEOUT = 60.0
"""Seconds that an answer may take, its head and its body."""


class _Timed(WrappedStream):
    """A connection on which each answer ends in time, counted from the last word of the question."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        super().__init__(stream)
        self._requested = time.monotonic()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if time.monotonic() > self._requested + TIMEOUT:
            raise httpcore2.ReadTimeout(f"its answer takes longer than {TIMEOUT:g} s")
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._requested = time.monotonic()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Timed(self._stream.start_tls(ssl_context, server_hostname, timeout))


class _Connecting(httpcore2.SyncBackend):
    """Makes such connections."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        return _Timed(super().connect_tcp(host, port, timeout, local_address, socket_options))


def limit(client: httpx2.Client) -> None:
    """Give each answer to a client until then, also on its way through a proxy."""
    connect_with(client, _Connecting())
