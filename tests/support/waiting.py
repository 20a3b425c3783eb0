"""Waiting for what threads, processes and clusters bring about in their own time, on machines that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT = 300.0
"""Seconds until something hangs: most takes milliseconds, and a hundred Services a minute where many others compute."""


def becomes(fact: Callable[[], object], what: str | Callable[[], object] = "") -> None:
    """Wait until something is true; `what` says, or returns, what a failure shows."""
    deadline = time.monotonic() + TIMEOUT
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {TIMEOUT:g} s: {what() if callable(what) else what}")
        time.sleep(0.005)
