"""Chance, for delays that shall not all end at once. Whoever seeds or saves Python's own generator isn't disturbed."""

from __future__ import annotations

from random import SystemRandom

_SYSTEM = SystemRandom()


def jitter() -> float:
    """Return a number from 0 to 1, 1 excluded."""
    return _SYSTEM.random()
