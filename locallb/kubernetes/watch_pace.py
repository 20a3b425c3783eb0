"""The pace of lists and watches of one follower: pure, with time and randomness as arguments.

A watch that lasted is opened again at once; one that ends soon is, a few times, and then less and less often. A list
that failed, or that the server forgot at once, is repeated after a second at first. Whatever the server answers, a
follower sends no more than `MAX` requests in a second. Not here: the requests, and the pages of a list.
"""

from __future__ import annotations

import math

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.pacing import Backoff, Pace

IDLE = 10.0
"""Seconds that a watch must live for earlier failures to count no more."""
LISTS = Pace(first=1.0, longest=3.0, floor=1.0, idle=IDLE)
"""Pace of lists: a cluster is near, and its return causes no event."""
WATCHES = Pace(first=0.2, longest=5.0, idle=IDLE)
MAX = 6
"""Requests in a second: a list of three pages, a watch, and two more."""


class WatchPace(Struct, frozen=True):
    """One follower's. Lists and watches are asked about with `wait` before each, and reported after."""

    lists: Backoff = field(default_factory=lambda: Backoff(LISTS))
    watches: Backoff = field(default_factory=lambda: Backoff(WATCHES))

    def opened(self, now: float) -> WatchPace:
        """Note that the server accepted a watch."""
        return WatchPace(self.lists.succeeded(now), self.watches.succeeded(now))

    def ended(self, now: float, chance: float) -> WatchPace:
        """Note that the server ended a watch, as it does with all: how soon decides."""
        if self.watches.is_idle(now):
            return replace(self, watches=Backoff(WATCHES))
        return replace(self, watches=self.watches.failed(now, chance))

    def expedited(self, now: float) -> WatchPace:
        """Begin again as soon as the floor allows."""
        return WatchPace(self.lists.expedited(now), Backoff(WATCHES))

    def broken(self, now: float, chance: float) -> WatchPace:
        """Note that a list or a watch failed: everything is listed again, and that alone keeps watches apart."""
        idle = self.watches.is_idle(now)
        watches = Backoff(WATCHES) if idle else replace(self.watches, healthy_since=math.inf)
        return WatchPace(self.lists.failed(now, chance), watches)
