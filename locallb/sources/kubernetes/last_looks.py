"""What was found last by those of this process that look again and again for the ways to Nodes.

Who takes that over asks nobody, so a slow server holds up only who looks. Not here: looking (`nodes`).
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
    """What a look found."""

    ways: tuple[PodRoute, ...] = ()
    failure: str = ""
    """Why nothing is known; empty if something is."""


class Looking(Struct, eq=False):
    """A reader that polls: since when, what it found last, and whether another one waited for it."""

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
        """Take over what was found. What a reader finds that was replaced or has ended is dropped."""
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
