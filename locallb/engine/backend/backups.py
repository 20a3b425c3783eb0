"""Backups of a stack's state from before each update: which are kept, and what is never removed.

Backups are thinned by age, so that they reach back days, whatever the pace of updates. What a run put aside because
nobody may lose it (journals, broken states) has other endings and is never removed here.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from locallb.engine.state.files import Files

_SECOND = 1_000_000_000
NEWEST = 5
"""Backups that are kept whatever their age."""
_SPACING = ((3600 * _SECOND, 12), (86400 * _SECOND, 14))
"""Spans of time, and of how many of each the last backup is kept."""


def kept(times: Iterable[int], now: int) -> frozenset[int]:
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
        for time in times.keys() - kept(times, now):
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


def _is_regular(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False
