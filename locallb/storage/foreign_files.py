"""Files that the user or another program owns: read whole or not at all, of a bounded size, without ever waiting.

Links are followed, because users have them; a pipe, a device or a directory under the name is refused. Not here: files
in directories that others may write to as well, where a link is an attack.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe must not keep us waiting."""
_PART = 1 << 16
"""Bytes that are read at a time of a file that grows."""


def expanded(given: str) -> Path:
    """Return the path that a user wrote, `~` put in full; as it stands where there is no such home."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


@contextmanager
def opened(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file to be read, and close it whatever happens. Raises OSError with a reason that can be told.

    Python leaves the descriptor of a directory open that it refuses to make a file of.
    """
    descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    try:
        _require_file(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_up_to(descriptor: int, most: int) -> bytes:
    """Read a regular file, at most so many bytes. Raises OSError.

    Room is made for what it has and not for all that it may have: for many small files that costs more than reading
    them, and leaves holes in this process's memory.
    """
    parts: list[bytes] = []
    expected, left = os.fstat(descriptor).st_size + 1, most
    while left > 0 and (part := os.read(descriptor, min(expected, left))):
        parts.append(part)
        expected, left = _PART, left - len(part)
    return b"".join(parts)


def read(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes. Raises OSError with a reason that can be told."""
    with opened(path) as file:
        require_regular(path, os.fstat(file.fileno()), most)
        data = read_up_to(file.fileno(), most + 1)
    if len(data) > most:
        raise OSError(0, _too_large(most), str(path))
    return data


def require_regular(path: Path, status: os.stat_result, most: int) -> None:
    """Refuse what is no regular file, or a larger one. Raises OSError with a reason that can be told."""
    _require_file(path, status)
    if status.st_size > most:
        raise OSError(0, _too_large(most), str(path))


def _require_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is no regular file", str(path))


def _too_large(most: int) -> str:
    return f"it has more than {most} bytes"
