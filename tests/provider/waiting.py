"""Waits for what other processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT = 60.0


def becomes(fact: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + TIMEOUT
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)
