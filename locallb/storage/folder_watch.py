"""Follows files: reports that something changed, and reads again only what did.

`watch_folder` and its like report that something below a directory, or a single file, has changed; never what. A
directory that is swapped for another one, removed or made again is followed: what counts is what stands under the name.
Editors, git and `mv` all change files in many steps, so more than one call may come for one change.

Of a directory of many files that is read again and again, only those are read that the kernel names as changed. That is
done where it can't miss a change: all could be read, each has one name and no link leads to it, and none was added or
removed. Otherwise the directory is read whole. Changes from elsewhere (by another host, through a name that a file got
since) are seen the next time that it is read whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from locallb.model.pacing import Backoff, Pace
from locallb.storage.files import stamp_of
from locallb.storage.folders import Folder, ReadLimits, counted, read_anew, read_folder
from locallb.storage.named_changes import NamedChanges
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
        from watchfiles import Change, watch  # noqa: PLC0415 - no other command than `watch` follows files

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
        self._observed = stamp_of(path)
        self._backoff = Backoff(CHANGES)

    def inspect(self, now: float) -> None:
        """Call `changed` if it is time to look, and it is another one than at the last look."""
        if not self._backoff.is_due(now):
            return
        observed = stamp_of(self._path)
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
        self._thread.stop()

    def _inspect(self) -> None:
        while not self._thread.stopped.wait(INSPECT):
            for file in self._files:
                file.inspect(time.monotonic())


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return which directory stands there; None if none does."""
    observed = stamp_of(path)
    return observed and observed[:2]


FEW = 64
"""Files that are looked at each time: it costs less than to have the kernel follow them."""
_MAX = 100
"""Names of files that are looked at one by one."""


class FollowedFolder:
    """For one thread. Takes an inotify instance where there are many files, until `close`."""

    def __init__(self, endings: tuple[str, ...], limits: ReadLimits) -> None:
        self._endings = endings
        self._limits = limits
        self._changes = NamedChanges()
        self._folder: Folder | None = None
        """What was read last, if it is followed."""
        self._places: dict[str, int] = {}
        self._used = 0

    def read(self, directory: Path, before: Folder | None) -> Folder:
        """Read it as `read_folder` does, of which `before` came the last time. Raises FolderError."""
        retry = self._retry(directory, before) if before and before is self._folder else None
        self._folder = None
        self._folder = retry or self._whole(directory, before)
        return self._folder

    def close(self) -> None:
        self._changes.close()

    def _whole(self, directory: Path, before: Folder | None) -> Folder:
        is_small = before is not None and len(before.files) <= FEW
        folder = read_folder(directory, self._endings, self._limits, before, None if is_small else self._changes)
        if not folder.is_plain or len(folder.files) <= FEW:
            self._changes.close()
        else:
            self._places = {file.path: place for place, file in enumerate(folder.files)}
            self._used = sum(counted(len(file.data)) for file in folder.files)
        return folder

    def _retry(self, directory: Path, before: Folder) -> Folder | None:
        """Return what it has with named files read again; None where more may be different."""
        names = self._changes.names()
        if names is None or len(names) > _MAX or not self._changes.follow(directory):
            return None
        files, used = list(before.files), self._used
        for name in names:
            place = self._places.get(name)
            if place is not None:
                file = read_anew(directory, name, self._limits)
                if file is None:
                    return None
                used += counted(len(file.data)) - counted(len(files[place].data))
                files[place] = file
            elif self._is_listed(directory / name):
                return None
        if used > self._limits.all:
            return None
        self._used = used
        return Folder(tuple(files), before.links, is_plain=True) if names else before

    def _is_listed(self, path: Path) -> bool:
        """Return whether something that came would be listed."""
        if path.name.startswith("."):
            return False
        return path.is_symlink() or (path.name.endswith(self._endings) and os.path.lexists(path))
