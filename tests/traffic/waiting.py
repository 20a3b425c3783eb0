"""Waiting for what a cluster does in its own time, on machines that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT = 60.0
"""Seconds until something that must happen is given up; it takes one or two."""


def eventually(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < deadline, f"not within {TIMEOUT:g} s: {what}"
        time.sleep(0.02)
