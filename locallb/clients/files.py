"""Files that are complete or absent: written beside and renamed, trees removed without following links.

Not a cache and not a format: callers give the text.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from locallb.clients import ClientError

PRIVATE = 0o600
"""Mode of every file that we write for ourselves."""
SHARED = 0o640
"""Mode of a file that a container reads through our group."""
UNFINISHED = ".new"
"""Ending of a file that is being written. One that a crash left is overwritten by nobody and read by nobody."""


Stamp: TypeAlias = tuple[int, int, int, int]
"""Which file this is, with which content."""


class FilesError(ClientError):
    """A file can't be written, read or removed: one sentence."""


def stamp(status: os.stat_result) -> Stamp:
    """Tell what is different once a file was replaced or changed, by the time that nobody can set."""
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def stamps(directory: Path) -> Mapping[str, Stamp]:
    """Stamp what is in a directory, and in those directly in it, by path; what can't be seen is left out."""
    found: dict[str, Stamp] = {}
    below = [os.fspath(directory)]
    for place in below:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with suppress(OSError):
                    found[entry.path] = stamp(entry.stat(follow_symlinks=False))
                    if place == below[0] and entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
    return found


def write_beside(path: Path, text: str, *, mode: int = PRIVATE, durable: bool = False) -> Path:
    """Write `text` to a new file beside `path` and tell its name; `durable`: it survives a power cut.

    Raises FilesError; then nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text.encode())
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FilesError(f"{path} can't be written: {error.strerror}") from error
    return beside


def write(path: Path, text: str, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Put `text` at `path` in one step: a reader sees the old file or the new one, whole. Raises FilesError."""
    beside = write_beside(path, text, mode=mode, durable=durable)
    try:
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise FilesError(f"{path} can't be replaced: {error.strerror}") from error


def read(path: Path) -> str | None:
    """Read a file; None if there is none. Bytes that aren't UTF-8 become U+FFFD. Raises FilesError."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FilesError(f"{path} can't be read: {error.strerror}") from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep every other process that asks for it out of `directory` meanwhile. Raises FilesError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FilesError(f"{directory} can't be locked: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def mode(path: Path) -> int:
    """Tell the mode of a file; that of a new one where there is none."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return PRIVATE


def set_mode(path: Path, wanted: int) -> None:
    """Give a file or directory a mode; one that is gone is fine. Raises FilesError."""
    try:
        if path.stat().st_mode & 0o777 != wanted:
            path.chmod(wanted)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FilesError(f"the mode of {path} can't be changed: {error.strerror}") from error


def remove(path: Path) -> None:
    """Remove a file; absent is fine. Raises FilesError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FilesError(f"{path} can't be removed: {error.strerror}") from error


def remove_tree(path: Path, root: Path) -> None:
    """Remove directory `path`, which must lie directly below `root`; absent is fine.

    Links in it are removed, never followed; a link in its place is refused. Raises FilesError.
    """
    if path.parent != root or path.name in {"", ".", ".."}:
        raise FilesError(f"{path} isn't directly below {root}: nothing is removed")
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FilesError(f"{path} can't be removed: {error.strerror or error}") from error
