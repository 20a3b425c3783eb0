"""Connections of HTTP clients that something is added to: what each kind of limit has in common."""

from __future__ import annotations

from typing import Any

import httpcore2
import httpx2


class WrappedStream(httpcore2.NetworkStream):
    """A connection around another one; subclasses add limits."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def close(self) -> None:
        """Close it."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - as httpcore has it
        """Return the connection's property of that name."""
        return self._stream.get_extra_info(info)


def connect_with(client: httpx2.Client, backend: httpcore2.SyncBackend) -> None:
    """Have a client make its connections with `backend`, also on their way through a proxy."""
    for transport in filter(None, (client._transport, *client._mounts.values())):  # noqa: SLF001 - no other way to its connections
        transport._pool._network_backend = backend  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
