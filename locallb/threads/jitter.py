"""Random delays, so that many waits don't end at once; independent of Python's global generator."""

from __future__ import annotations

from random import SystemRandom

_SYSTEM = SystemRandom()


def jitter() -> float:
    """Return a number from 0 to 1, 1 excluded."""
    return _SYSTEM.random()
