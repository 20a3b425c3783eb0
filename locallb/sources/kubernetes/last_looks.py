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


class Look(Struct, frozen=True):
    """Result of one poll."""

    ways: tuple[PodRoute, ...] = ()
    failure: str = ""
    """The reason that nothing is known; empty if there is a result."""


class Looking(Struct, eq=False):
    """A poller: its start, its last result, and whether a reader waited for it."""

    finder: MachinesSource
    root: Path
    since: float
    look: Look | None = None
    is_awaited: bool = False


class LastLooks:
    """By what is looked for, and the project. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = Condition()
        self._known: dict[tuple[MachinesSource, Path], Looking] = {}

    def begin(self, finder: MachinesSource, root: Path) -> Looking:
        """Note that a reader polls from now on, in place of the one before."""
        with self._changed:
            looking = self._known[finder, root] = Looking(finder, root, self._clock())
            return looking

    def end(self, looking: Looking) -> None:
        """Note that this one doesn't any more."""
        key = looking.finder, looking.root
        with self._changed:
            if self._known.get(key) is looking:
                del self._known[key]

    def note(self, looking: Looking, look: Look) -> None:
        """Store a result. Results of a replaced or ended poller are dropped."""
        with self._changed:
            looking.look = look
            self._changed.notify_all()

    def find(self, finder: MachinesSource, root: Path, patience: float) -> tuple[bool, Look | None]:
        """Return whether a reader polls, and what it found last; None before anything was found.

        Waits for the first look, once, until it has had so many seconds: all that began together have the same ones.
        """
        with self._changed:
            looking = self._known.get((finder, root))
            if looking and not looking.look and not looking.is_awaited:
                looking.is_awaited = patience > 0
                left = looking.since + patience - self._clock()
                self._changed.wait_for(lambda: looking.look is not None, max(0.0, left))
            return looking is not None, looking.look if looking else None


LAST_LOOKS = LastLooks()
"""Of this process."""
