"""Files that are complete or absent: written under a temporary name and renamed; removal of dead writers' files.

A writer keeps its temporary file locked, so an unlocked one is a dead writer's. Errors are the system's; callers
translate them. Not here: what is written.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from locallb.safe_files import locks

ENDING = ".new"
_STALE = 60.0
"""Seconds after which a link or a directory that is being put in place is one that a stopped writer left."""
_NAME = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}" + re.escape(ENDING))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def temporary_name(path: Path) -> Path:
    """Return the name of a new file next to `path`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{ENDING}")


def is_temporary_name(name: str) -> bool:
    """Return whether a file is called as one that isn't complete."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def written(temporary: Path, data: bytes, mode: int, *, durable: bool = False) -> Iterator[Path]:
    """Write a new file, which counts as being written meanwhile; `durable`: it survives a power cut.

    Raises OSError; then it isn't left.
    """
    with new_file(temporary, mode) as descriptor:
        try:
            os.fchmod(descriptor, mode)  # whatever the umask takes away
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
            os.close(os.dup(descriptor))  # there are file systems that report a full disk as late as then
        except OSError:
            discard(temporary)
            raise
        yield temporary


def write_all(descriptor: int, data: bytes) -> None:
    """Write until everything is taken: one call takes at most 2 GiB, and less where a disk is full. Raises OSError."""
    rest = memoryview(data)
    while rest:
        claimed = os.write(descriptor, rest)
        if not claimed:  # as file systems outside of the kernel may answer
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[claimed:]


def sync_folder(path: Path) -> None:
    """Let what was renamed in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: Path, mode: int) -> Iterator[int]:
    """Make a file; it counts as being written meanwhile. Raises OSError."""
    descriptor = _opened_new(path, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened_new(path: Path, mode: int) -> int:
    while True:
        descriptor = os.open(path, _NEW, mode)
        with suppress(OSError):  # there are file systems without locks
            locks.wait(descriptor)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was taken for a dead writer's before it was locked


def put_link(path: Path, to: str) -> None:
    """Put a link in place of what stands there, in one step. Raises OSError; then that still stands there."""
    sibling = temporary_name(path)
    sibling.symlink_to(to)
    try:
        sibling.replace(path)
    except OSError:
        discard(sibling)
        raise


def discard(path: Path) -> None:
    """Remove an incomplete file; an error of the removal is suppressed, so that it doesn't hide the first one."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_abandoned(directory: Path) -> None:
    """Remove what dead writers left in a directory, and in those directly in it; what can't be removed stays.

    Not for a directory in which others may write.
    """
    for path in (*directory.glob(f".*{ENDING}"), *directory.glob(f"*/.*{ENDING}")):
        if is_temporary_name(path.name) and not path.parent.is_symlink():
            with suppress(OSError):
                _remove(path)


def remove_abandoned_of(path: Path) -> None:
    """Remove a file's temporary files of dead writers; what can't be removed stays."""
    for sibling in path.parent.glob(f".{escape(path.name)}.*{ENDING}"):
        match = _NAME.fullmatch(sibling.name)
        if match and match["name"] == path.name:
            with suppress(OSError):
                _remove(sibling)


def is_stale(path: Path) -> bool:
    """Return whether a link or a directory that is to come to its place has lain there for long. Raises OSError."""
    return time.time() - path.lstat().st_mtime > _STALE


def _remove(path: Path) -> None:
    if path.is_symlink():  # nobody can lock one
        if is_stale(path):
            path.unlink()
        return
    descriptor = os.open(path, _OLD)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and locks.claimed(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)
