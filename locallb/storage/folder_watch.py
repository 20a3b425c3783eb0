"""Reports that something below a directory, or a single file, has changed; never what.

A directory that is swapped for another one, removed or made again is followed: what counts is what stands under the
name. Editors, git and `mv` all change files in many steps, so more than one call may come for one change. Not here:
reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from watchfiles import Change, watch

from locallb.model.pacing import Backoff, Pace
from locallb.storage import files as stamps
from locallb.threads import SupervisedThread, Task

STEP, MAX = 20, 50
"""Milliseconds: as soon as nothing more happens for the first, at the latest after the second. The watch wakes as often
as the first says: with 5 it took a percent of a core for nothing."""
INSPECT = 0.25
"""Seconds between two looks at what stands under a name."""
CHANGES = Pace(first=INSPECT, longest=2.0, idle=4.0)
"""Of a file that changes: one that is rewritten again and again, in place, is read less and less often."""


class FolderWatch:
    """Calls `changed` from a thread of its own, until `stop`; `source` names what depends on that thread."""

    def __init__(self, directory: Path, changed: Callable[[], None], source: str = "") -> None:
        self._directory = directory
        self._changed = changed
        self._thread = SupervisedThread(
            Task.FOLDER,
            f"watch {directory.name}",
            self._follow,
            subject=source,
            failed=lambda _sentence: changed(),
        )
        self._stopped = self._thread.stopped
        self._thread.start()

    def stop(self) -> None:
        """End; a call that is under way goes on."""
        self._thread.stop()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError, RuntimeError):  # absent, unreadable, or no inotify left: looked at again below
                self._watch(_identity(self._directory))
            if not self._stopped.wait(INSPECT):
                self._changed()

    def _watch(self, identity: tuple[int, ...] | None) -> None:
        """Watch the directory that stands there now, until it is another one."""
        while identity is None and not self._stopped.wait(INSPECT):
            identity = _identity(self._directory)
            if identity is not None:
                self._changed()
        changes = watch(
            self._directory,
            watch_filter=None,
            debounce=MAX,
            step=STEP,
            stop_event=self._stopped,
            rust_timeout=int(INSPECT * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=True,
            ignore_permission_denied=True,
        )
        new = True
        for batch in changes:
            if batch or new:  # what happened before the watch began was not told
                self._changed()
            new = False
            # Whatever is made again may have the number of what was removed, and nobody watches it.
            if _identity(self._directory) != identity or (Change.deleted, str(self._directory)) in batch:
                return


class WatchedFile:
    """A file that is looked at now and again: less often while it changes each time."""

    def __init__(self, path: Path, changed: Callable[[Path], None]) -> None:
        self._path = path
        self._changed = changed
        self._observed = stamps.stamp_of(path)
        self._backoff = Backoff(CHANGES)

    def inspect(self, now: float) -> None:
        """Call `changed` if it is time to look, and it is another one than at the last look."""
        if not self._backoff.is_due(now):
            return
        observed = stamps.stamp_of(self._path)
        if observed != self._observed:
            self._changed(self._path)
            self._backoff = self._backoff.failed(now, 0)
        else:
            self._backoff = self._backoff.succeeded(now)
        self._observed = observed


class FileWatch:
    """Looks at single files now and again, and calls `changed` with the one that is different."""

    def __init__(self, files: Iterable[Path], changed: Callable[[Path], None]) -> None:
        self._files = [WatchedFile(path, changed) for path in files]
        self._thread = SupervisedThread(Task.FILES, "watch files", self._inspect)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._thread.stop()

    def _inspect(self) -> None:
        while not self._thread.stopped.wait(INSPECT):
            for file in self._files:
                file.inspect(time.monotonic())


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return which directory stands there; None if none does."""
    observed = stamps.stamp_of(path)
    return observed and observed[:2]
