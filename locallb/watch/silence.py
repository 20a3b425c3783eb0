"""Silence of proxies: when an unanswered query means that an Envoy hangs, and when it is replaced.

Pure data and functions that take the time as an argument. Times are seconds of one clock, which stands still while this
process does: an answer that couldn't be read in time is no silence. Not here: the queries (`hangs`), and what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from locallb.envoy.document import reading_time
from locallb.model.pacing import Backoff, Pace

TIMEOUT = 5.0
"""Seconds that an answer may take of a process that does nothing; a tenth of a millisecond is usual."""
BUSY_TIMEOUT = 30.0
"""The same of one that computes, waits for a disk, or can't be seen, besides the time for reading its files."""
REPLACEMENTS = Pace(first=TIMEOUT, longest=300.0, idle=60.0, spread=0.0)
"""Of an Envoy that hangs again within a minute: the second one is replaced after twice the time."""


class Sighting(Enum):
    """What the thread of a process that answers is doing."""

    IDLE = "idle"
    AT_WORK = "at work"
    """It computes, waits for a processor, or for a disk."""
    UNSEEN = "unseen"


class Silence(Struct, frozen=True):
    """A question without an answer."""

    since: float
    stirred: float
    """Time of the queried process's last observed activity or absence."""

    @classmethod
    def begun(cls, now: float) -> Silence:
        """Return that of a question that was just put."""
        return cls(now, now)

    def observed(self, now: float, sighting: Sighting) -> Silence:
        """Note what the process does now."""
        return self if sighting is Sighting.IDLE else replace(self, stirred=now)

    def is_hang(self, now: float, size: Callable[[], int]) -> bool:
        """Return whether the wait for an answer is over; `size` returns the size of the proxy's files in bytes."""
        if now - self.stirred >= TIMEOUT:
            return True
        beyond = now - self.since - BUSY_TIMEOUT
        return beyond >= 0 and beyond >= reading_time(size())


def replaced_after(hangs: Backoff) -> float:
    """Return how many seconds after it was found to hang a proxy is replaced: at once for the first time."""
    return hangs.pace.delay(hangs.failures) - hangs.pace.first
