"""What was found last by those of this process that look again and again for the ways to Nodes.

Who takes that over asks nobody, so a slow server holds up only who looks. Not here: looking (`nodes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Condition

from locallb.model.network.routes import PodRoute
from locallb.sources.kubernetes.entry import MachinesSource


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found."""

    ways: tuple[PodRoute, ...] = ()
    failure: str = ""
    """Why nothing is known; empty if something is."""


@dataclass(slots=True)
class _Followed:
    """What is known of one, and whether somebody waited for it."""

    look: Look | None = None
    is_awaited: bool = False


class LastLooks:
    """By who is looked for, and the project. Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._known: dict[tuple[MachinesSource, Path], _Followed] = {}

    def begin(self, finder: MachinesSource, root: Path) -> None:
        """Note that somebody looks from now on."""
        with self._changed:
            self._known[finder, root] = _Followed()

    def end(self, finder: MachinesSource, root: Path) -> None:
        """Note that nobody does any more."""
        with self._changed:
            self._known.pop((finder, root), None)
            self._changed.notify_all()

    def note(self, finder: MachinesSource, root: Path, look: Look) -> None:
        """Take over what was found, unless nobody needs it any more."""
        with self._changed:
            if followed := self._known.get((finder, root)):
                followed.look = look
                self._changed.notify_all()

    def find(self, finder: MachinesSource, root: Path, patience: float) -> tuple[bool, Look | None]:
        """Return whether somebody looks, and what was found last; None before anything was.

        Waits for the first look for so many seconds, once.
        """
        with self._changed:
            followed = self._known.get((finder, root))
            if followed and not followed.look and not followed.is_awaited:
                followed.is_awaited = patience > 0
                self._changed.wait_for(lambda: followed.look is not None, patience)
            return followed is not None, followed.look if followed else None


LAST_LOOKS = LastLooks()
"""Of this process."""
