"""Temporary files of atomic writes: in progress, or left by a writer that was killed.

Who writes one keeps it locked, so whatever nobody locks is a dead writer's. Not here: what is written.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from locallb.storage import locks

ENDING = ".new"
_STALE = 60.0
"""Seconds after which a link or a directory that is being put in place is one that a stopped writer left."""
_NAME = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}" + re.escape(ENDING))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def name_beside(path: Path) -> Path:
    """Return the name of a new file beside `path`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{ENDING}")


def is_named_so(name: str) -> bool:
    """Return whether a file is called as one that isn't complete."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def made(path: Path, mode: int) -> Iterator[int]:
    """Make a file; it counts as being written meanwhile. Raises OSError."""
    descriptor = _made(path, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _made(path: Path, mode: int) -> int:
    while True:
        descriptor = os.open(path, _NEW, mode)
        with suppress(OSError):  # there are file systems without locks
            locks.wait(descriptor)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was taken for a dead writer's before it was locked


def put_link(path: Path, to: str) -> None:
    """Put a link in place of what stands there, in one step. Raises OSError; then that still stands there."""
    beside = name_beside(path)
    beside.symlink_to(to)
    try:
        beside.replace(path)
    except OSError:
        discard(beside)
        raise


def discard(path: Path) -> None:
    """Remove what can't be completed; an error of that is nobody's first concern, and hides no other."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_abandoned(directory: Path) -> None:
    """Remove what dead writers left in a directory, and in those directly in it; what can't be removed stays.

    Not for a directory in which others may write.
    """
    for path in (*directory.glob(f".*{ENDING}"), *directory.glob(f"*/.*{ENDING}")):
        if is_named_so(path.name) and not path.parent.is_symlink():
            with suppress(OSError):
                _remove(path)


def remove_abandoned_of(path: Path) -> None:
    """Remove what dead writers of one file left beside it; what can't be removed stays."""
    for beside in path.parent.glob(f".{escape(path.name)}.*{ENDING}"):
        match = _NAME.fullmatch(beside.name)
        if match and match["name"] == path.name:
            with suppress(OSError):
                _remove(beside)


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
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and locks.taken(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)
