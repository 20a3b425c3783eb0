"""Backups of a stack's state from before each update: which are kept, and how the last good state is brought back.

Backups are thinned by age, so that they reach back days, whatever the pace of updates. What a run or a restoration put
aside (journals, broken states) has other endings and is never removed here. What was made since a backup still exists:
providers adopt it in the next update, as after any interruption.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import time_ns

from msgspec import Struct

from locallb.engine.backend.layout import Layout
from locallb.engine.state.checkpoint import Checkpoint, read_checkpoint
from locallb.engine.state.errors import EngineError, StateBroken, StateUnreadable, StateUnusable
from locallb.engine.state.files import Files
from locallb.engine.state.journal import read_journal, replay

_SECOND = 1_000_000_000
NEWEST = 5
"""Backups that are kept whatever their age."""
_SPACING = ((3600 * _SECOND, 12), (86400 * _SECOND, 14))
"""Spans of time, and of how many of each the last backup is kept."""


def retained(times: Iterable[int], now: int) -> frozenset[int]:
    """Return which backups to keep, of those made at `times` (nanoseconds): the newest, one per hour, one per day."""
    ordered = sorted(times)
    wanted = set(ordered[-NEWEST:])
    for span, count in _SPACING:
        last_of = {time // span: time for time in ordered}
        wanted.update(time for number, time in last_of.items() if number > now // span - count)
    return frozenset(wanted)


class Backups(Struct, frozen=True):
    """The backups of one stack: `<stack>.<nanoseconds>.json` in a folder, as the official command line names them."""

    folder: Path
    stack: str
    files: Files

    def add(self, state: Path, now: int) -> None:
        """Keep the state as it is, and remove backups that are no longer needed; what is no file stays."""
        self.files.link(state, self.folder / f"{self.stack}.{now}.json")
        times = {time: path for time, path in self._times() if _is_regular(path)}
        for time in times.keys() - retained(times, now):
            with suppress(OSError):
                times[time].unlink()

    def put_aside(self, path: Path, ending: str, now: int) -> Path:
        """Move a file, or whatever stands in its place, here for good; return where it is now."""
        aside = self.folder / f"{self.stack}.{now}.{ending}"
        self.files.move(path, aside)
        return aside

    def newest_first(self) -> Iterator[Path]:
        """List the backups."""
        for _, path in sorted(self._times(), reverse=True):
            yield path

    def _times(self) -> Iterator[tuple[int, Path]]:
        form = re.compile(rf"{re.escape(self.stack)}\.(\d{{1,19}})\.json")
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if name := form.fullmatch(path.name):
                yield int(name[1]), path


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


def _is_regular(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False
