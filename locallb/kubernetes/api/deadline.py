"""Ends answers that never would: a server that sends a byte now and then is in time for each read, and never done.

Not here: answers that are followed, which have deadlines of their own (`feed`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

import httpx2

PATIENCE = 60.0
"""Seconds that the body of an answer may take."""


class _Timed(httpx2.SyncByteStream):
    """A body that ends in time."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        ends = time.monotonic() + PATIENCE
        for chunk in self._stream:
            if time.monotonic() > ends:
                raise httpx2.ReadTimeout(f"its answer takes longer than {PATIENCE:g} s")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def limit(response: httpx2.Response) -> None:
    """Give the body of an answer, before it is read, until then."""
    response.stream = _Timed(cast("httpx2.SyncByteStream", response.stream))
