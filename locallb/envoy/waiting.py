"""Polling of an Envoy that is about to do something: the interval, and the wait until it answers at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

from locallb.envoy.admin import EnvoyAdmin

_QUICK, _OFTEN = 0.002, 8
"""Seconds of the first pauses, and how many those are: most things take a few milliseconds."""
_GLANCE = 0.5
"""Seconds without an answer after which it is asked whether whatever runs an Envoy is there still."""
_SLOWER = (0.004, 0.008)
_SLOW = 0.015
"""Seconds of the others. Ten Envoys that start at a time are asked for as long as that takes; every question costs both
sides a millisecond of the same cores."""


def pauses() -> Iterator[float]:
    """Yield waits in seconds, without end."""
    return chain(repeat(_QUICK, _OFTEN), _SLOWER, repeat(_SLOW))


def comes_to_answer(directory: Path, timeout: float) -> bool:
    """Return whether the Envoy in `directory` answers within so many seconds."""
    deadline, pause, admin = time.monotonic() + timeout, pauses(), EnvoyAdmin(directory)
    while not (answers := admin.answers()) and time.monotonic() < deadline:
        time.sleep(next(pause))
    return answers


def answers_while_present(directory: Path, timeout: float, exists: Callable[[], bool]) -> bool:
    """Wait so many seconds until the Envoy in `directory` answers; return False once what runs it is gone meanwhile."""
    deadline = time.monotonic() + timeout
    while not comes_to_answer(directory, _GLANCE) and time.monotonic() < deadline:
        if not exists():
            return False
    return True
