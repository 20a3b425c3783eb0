"""A directory of many files that is read again and again: only those are looked at that the kernel names as changed.

That is done where it can't miss anything that was done to the files where they lie: all could be read, each has one
name and no link leads to it, and none came or went. Otherwise the directory is read whole. What is done to a file from
elsewhere (by another host, through a name that it got since) is seen the next time that it is read whole.
"""

from __future__ import annotations

import os
from pathlib import Path

from locallb.storage.folders import Folder, Limits, counted, read_anew, read_folder
from locallb.storage.named_changes import NamedChanges

FEW = 64
"""Files that are looked at each time: it costs less than to have the kernel follow them."""
_MAX = 100
"""Names of files that are looked at one by one."""


class FollowedFolder:
    """For one thread. Takes an inotify instance where there are many files, until `close`."""

    def __init__(self, endings: tuple[str, ...], limits: Limits) -> None:
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
        """Follow nothing any more."""
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
