"""How long to wait between two questions to an Envoy that is about to do something."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

_QUICK, _OFTEN = 0.002, 8
"""Seconds of the first pauses, and how many those are: most things take a few milliseconds."""
_SLOWER = (0.004, 0.008)
_SLOW = 0.015
"""Seconds of the others. Ten Envoys that start at a time are asked for as long as that takes; every question costs both
sides a millisecond of the same cores."""


def pauses() -> Iterator[float]:
    """Give seconds, without end."""
    return chain(repeat(_QUICK, _OFTEN), _SLOWER, repeat(_SLOW))
