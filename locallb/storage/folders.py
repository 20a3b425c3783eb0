"""Reads a directory of files, or a single file, consistently as of one moment, as far as a file system allows.

The walk follows descriptors, so a directory that is swapped meanwhile is read whole, old or new. Files that vanish or
change while they are read make it start again, once. Hidden entries are skipped, links to files are followed, links to
directories are not (and named). What can't be read is an answer, not an error. Not here: what the files mean.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from locallb.model.errors import ClientError, refusal
from locallb.safe_files import read_up_to
from locallb.storage import files as stamps
from locallb.storage.named_changes import NamedChanges

_DEEPEST = 64
"""Directories within directories; deeper ones are named as unreadable."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe must not keep us waiting."""


_LEAST = 1024
"""Bytes that a file counts for at least: to know of one costs as much."""
_SETTLED = 3 * 10**9
"""Nanoseconds after which another change of a file has another time for sure; FAT's times are two seconds apart."""


FileId: TypeAlias = tuple[int, int]
"""Which file stands under a name: its device and inode."""


class FolderError(ClientError):
    """The directory, or the only file, can't be read; the message is the reason only."""


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFile:
    """A file, or a directory that can't be read: `path` is relative, with slashes; `why` is empty where all is well."""

    path: str
    data: bytes = b""
    why: str = ""
    stamp: stamps.Stamp | None = dataclasses.field(default=None, compare=False)
    """As long as the file has this one it has these bytes; None where that can't be said."""
    identity: FileId | None = dataclasses.field(default=None, compare=False)
    changed: float = dataclasses.field(default=0.0, compare=False)
    """When it was changed last, in seconds since the epoch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Folder:
    """What a directory has, sorted by path."""

    files: tuple[FolderFile, ...] = ()
    links: tuple[str, ...] = ()
    """Links to directories, which were not followed."""
    outside: tuple[str, ...] = ()
    """Links to files elsewhere, which were not followed as none may lead out of the directory."""
    is_plain: bool = dataclasses.field(default=False, compare=False)
    """Whether all could be read, and each file lies here only: under one name, and no link leads to it."""


class _ChangedError(Exception):
    """Something changed between two looks at it."""


class ReadLimits(Struct, frozen=True):
    """Bytes that are read: of one file, and of all of them."""

    file: int
    all: int


def read_folder(  # noqa: PLR0913 - each optional one is a choice of its own
    directory: Path,
    endings: tuple[str, ...],
    limits: ReadLimits,
    before: Folder | None = None,
    changes: NamedChanges | None = None,
    *,
    contained: bool = False,
) -> Folder:
    """Read every file below `directory` whose name has one of the endings, within the limits.

    In place of a directory there may be a file, whatever its name. Files that are as they were `before`, by their times
    and inodes, aren't opened again. What happens after that is told to `changes`. If `contained`, links are followed
    only to files that are read anyway.

    Raises:
        FolderError: if there is nothing under that name, or a directory that can't be listed.

    """
    before = before or Folder()
    existing = {file.path: file for file in before.files}
    top = os.path.realpath(directory) if contained else ""
    try:
        return _Walk(endings, limits, existing, changes, patient=True, top=top).read(directory)
    except _ChangedError:
        return _Walk(endings, limits, existing, changes, patient=False, top=top).read(directory)


def read_anew(directory: Path, name: str, limits: ReadLimits) -> FolderFile | None:
    """Read one file; None where it isn't one that lies here only, can be read and stands still."""
    walk = _Walk((), limits, {}, None, patient=True)
    try:
        with _opened(str(directory / name), _FILE | os.O_NOFOLLOW) as descriptor:
            file = walk.contents(descriptor, name)
    except (OSError, _ChangedError):
        return None
    return file if walk.is_plain and not file.why else None


def counted(size: int) -> int:
    """Return how many bytes a file counts for."""
    return max(_LEAST, size)


class _Walk(Struct):
    """One walk. A patient one gives up where something changes, the other takes it as it is."""

    endings: tuple[str, ...]
    limits: ReadLimits
    existing: Mapping[str, FolderFile]
    """The files as they were, sorted by path."""
    changes: NamedChanges | None
    patient: bool
    top: str = ""
    """The directory out of which no link is followed; empty if any is."""
    is_plain: bool = True
    files: dict[str, FolderFile] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    used: int = 0
    """Bytes of all files so far."""

    def read(self, directory: Path) -> Folder:
        if self.changes:
            self.changes.begin()
        try:
            with _opened(str(directory), _DIRECTORY) as descriptor:
                self._list(descriptor, "", 0)
        except NotADirectoryError:
            self._take_alone(directory)
        except OSError as error:
            raise FolderError(refusal(error)) from error
        same = self.files.keys() == self.existing.keys()  # then they are sorted already
        files = tuple(map(self.files.__getitem__, self.existing if same else sorted(self.files)))
        is_plain = self.is_plain and not any(file.why for file in files)
        return Folder(files, tuple(sorted(self.links)), tuple(sorted(self.outside)), is_plain)

    def _take_alone(self, file: Path) -> None:
        try:
            with _opened(str(file), _FILE) as descriptor:
                self._add(self.contents(descriptor, file.name))
        except OSError as error:
            raise FolderError(refusal(error)) from error

    def _list(self, directory: int, prefix: str, depth: int) -> None:
        if self.changes:
            self.changes.add(directory, prefix)
        existing = self.existing.get
        with os.scandir(directory) as entries:
            for entry in entries:
                path = prefix + entry.name
                if (file := existing(path)) and file.stamp and self._is_as_before(entry, file.stamp):
                    self._add(file)
                elif not entry.name.startswith("."):
                    self._take(directory, entry, path, depth)

    def _is_as_before(self, entry: os.DirEntry[str], stamp: stamps.Stamp) -> bool:
        """Return whether it is the very file of that stamp; it was a regular one that is to be read."""
        try:
            status = entry.stat()
        except OSError:
            return False
        self.is_plain = self.is_plain and status.st_nlink == 1 and not entry.is_symlink()
        return stamp == stamps.stamp(status)

    def _take(self, directory: int, entry: os.DirEntry[str], path: str, depth: int) -> None:
        self.is_plain = self.is_plain and not entry.is_symlink()
        if entry.is_dir(follow_symlinks=False):
            self._take_directory(directory, entry.name, path, depth)
        elif entry.is_symlink() and _is_directory(entry):
            self.links.append(path)
        elif entry.is_symlink() and self.top and not self._is_inside(path):
            self.outside.append(path)
        elif entry.name.endswith(self.endings):
            self._take_file(directory, entry.name, path)

    def _is_inside(self, path: str) -> bool:
        """Return whether a link leads to a file of the directory that is read anyway."""
        target = os.path.realpath(os.path.join(self.top, path))  # noqa: PTH118 - a text is asked for
        return target.startswith(f"{self.top}/") and target.endswith(self.endings)

    def _take_directory(self, directory: int, name: str, path: str, depth: int) -> None:
        if depth == _DEEPEST:
            self.files[path] = FolderFile(path, why=f"directories are nested deeper than {_DEEPEST}")
            return
        try:
            with _opened(name, _DIRECTORY | os.O_NOFOLLOW, directory) as inner:
                self._list(inner, f"{path}/", depth + 1)
        except OSError as error:
            self._failed(path, error)

    def _take_file(self, directory: int, name: str, path: str) -> None:
        try:
            with _opened(name, _FILE, directory) as descriptor:
                self._add(self.contents(descriptor, path))
        except OSError as error:
            self._failed(path, error)

    def _add(self, file: FolderFile) -> None:
        """Add a file, unless those before it leave no room for it."""
        size = len(file.data)
        self.used += counted(size)
        if self.used > self.limits.all:
            file = FolderFile(file.path, why=f"with it the directory has more than {self.limits.all} bytes")
        self.files[file.path] = file

    def contents(self, descriptor: int, path: str) -> FolderFile:
        before = os.fstat(descriptor)
        self.is_plain = self.is_plain and before.st_nlink == 1
        if not stat.S_ISREG(before.st_mode):
            return FolderFile(path, why="it is no regular file")
        if before.st_size > self.limits.file:
            return FolderFile(path, why=f"it has {before.st_size} bytes, more than {self.limits.file}")
        data = read_up_to(descriptor, self.limits.file)
        if self.patient and _inspect(before) != _inspect(os.fstat(descriptor)):
            raise _ChangedError
        settled = time.time_ns() - before.st_ctime_ns > _SETTLED
        stamp = stamps.stamp(before) if settled else None
        identity = before.st_dev, before.st_ino
        return FolderFile(path, data, stamp=stamp, identity=identity, changed=before.st_ctime_ns / 1e9)

    def _failed(self, path: str, error: OSError) -> None:
        if self.patient and isinstance(error, FileNotFoundError):
            raise _ChangedError
        self.files[path] = FolderFile(path, why=refusal(error))


@contextmanager
def _opened(name: str, flags: int, directory: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_directory(link: os.DirEntry[str]) -> bool:
    """Return whether a link leads to a directory; one that leads nowhere doesn't."""
    try:
        return link.is_dir()
    except OSError:
        return False


def _inspect(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
