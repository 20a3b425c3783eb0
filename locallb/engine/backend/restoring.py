"""Restores the last good state where a journal or a state can't be used: nothing of either is lost.

What was made since then is still there: providers adopt it in the next update, as after any interruption.
"""

import os
from collections.abc import Callable
from pathlib import Path
from time import time_ns

from locallb.engine.backend.backups import Backups
from locallb.engine.backend.layout import Layout
from locallb.engine.backend.recovery import replay
from locallb.engine.state.checkpoint import Checkpoint, read_checkpoint
from locallb.engine.state.errors import EngineError, StateBroken, StateUnreadable, StateUnusable
from locallb.engine.state.journal import read_journal


def journal_complaint(layout: Layout) -> tuple[str, ...]:
    """Return why the journal can't be used; empty if it can, or isn't there."""

    def read() -> None:
        leftover = read_journal(layout.journal)
        state = None if state_complaint(layout) else _state(layout)
        if leftover and state and leftover.belongs_to(state.time):
            replay(leftover.mutations, state.snapshot(), layout.journal)

    return _complaint(read)


def state_complaint(layout: Layout) -> tuple[str, ...]:
    """Return why the state can't be used; empty if it can, or isn't there."""
    return _complaint(lambda: _state(layout))


def restore(layout: Layout, backups: Backups, notice: Callable[[str], None]) -> None:
    """Put aside what can't be used, and bring back the newest backup that can. Raises StateBroken if none can."""
    if journal_complaint(layout):
        aside = backups.put_aside(layout.journal, "journal", time_ns())
        notice(f"put the journal that can't be read aside as {aside}")
    if state_complaint(layout):
        good = _newest_good(layout, backups)
        aside = backups.put_aside(layout.state, "broken", time_ns())
        backups.files.link(good, layout.state)
        notice(f"brought back {good}; the state that can't be read is kept as {aside}")


def _state(layout: Layout) -> Checkpoint:
    return read_checkpoint(layout.state, layout.name) if os.path.lexists(layout.state) else Checkpoint(layout.name)


def _newest_good(layout: Layout, backups: Backups) -> Path:
    """Return the newest backup that can be used.

    Raises StateUnreadable for one that the host keeps us from reading: it may be good, and nobody gets an older one
    instead of it.
    """
    for path in backups.newest_first():
        try:
            read_checkpoint(path, layout.name)
        except StateUnreadable:
            raise
        except EngineError:
            continue
        return path
    raise StateBroken(
        f"no backup in {layout.backups} can be used; move {layout.state} away and run `locallb up`, which adopts what"
        " is there"
    )


def _complaint(read: Callable[[], object]) -> tuple[str, ...]:
    try:
        read()
    except StateUnusable as error:
        return (str(error),)
    return ()
