"""Last results of the pollers of this process that find the routes to Nodes.

A reader that takes these over sends no request, so a slow server delays only the poller. Not here: polling (`nodes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition

from msgspec import Struct

from locallb.model.network.routes import PodRoute
from locallb.sources.kubernetes.entry import MachinesSource


class Pass(Struct, frozen=True):
    """Result of one poll."""

    pod_paths: tuple[PodRoute, ...] = ()
    failure: str = ""
    """The reason that nothing is known; empty if there is a result."""


class Reading(Struct, eq=False):
    """A poller: its start, its last result, and whether a reader waited for it."""

    finder: MachinesSource
    root: Path
    since: float
    inspect: Pass | None = None
    is_awaited: bool = False


class LastReadings:
    """By what is looked for, and the project. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = Condition()
        self._existing: dict[tuple[MachinesSource, Path], Reading] = {}

    def begin(self, finder: MachinesSource, root: Path) -> Reading:
        """Note that a reader polls from now on, in place of the one before."""
        with self._changed:
            reading = self._existing[finder, root] = Reading(finder, root, self._clock())
            return reading

    def end(self, reading: Reading) -> None:
        """Note that this one doesn't any more."""
        key = reading.finder, reading.root
        with self._changed:
            if self._existing.get(key) is reading:
                del self._existing[key]

    def note(self, reading: Reading, inspect: Pass) -> None:
        """Store a result. Results of a replaced or ended poller are dropped."""
        with self._changed:
            reading.inspect = inspect
            self._changed.notify_all()

    def find(self, finder: MachinesSource, root: Path, timeout: float) -> tuple[bool, Pass | None]:
        """Return whether a reader polls, and what it found last; None before anything was found.

        Waits for the first look, once, until it has had so many seconds: all that began together have the same ones.
        """
        with self._changed:
            reading = self._existing.get((finder, root))
            if reading and not reading.inspect and not reading.is_awaited:
                reading.is_awaited = timeout > 0
                remaining = reading.since + timeout - self._clock()
                self._changed.wait_for(lambda: reading.inspect is not None, max(0.0, remaining))
            return reading is not None, reading.inspect if reading else None


LAST_READINGS = LastReadings()
"""Of this process."""
