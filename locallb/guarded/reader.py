"""The one way to read a file of unknown type: whole or not at all, of a bounded size, without ever waiting.

Only regular files are read; a pipe, a device, a socket or a directory under the name is refused with a reason. Links
are followed, because users have them, unless the caller disables that. Not here: a file's owner (`owners`).
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
STATE = 512 << 20
"""Bytes of the largest file that is read: a stack's state, or its journal."""
_PART = 1 << 16
"""Bytes that are read at a time of a file that grows."""


def expanded(given: str) -> Path:
    """Return the path that a user wrote, `~` put in full; as it stands where there is no such home."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


class UnfitError(OSError):
    """There is something that isn't a regular file of a bounded size; its text is the reason."""


def unfit(path: Path, why: str = "it is no regular file") -> UnfitError:
    """Make the error of what is no such file."""
    return UnfitError(0, why, str(path))


@contextmanager
def opened(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file to be read, and close it at the end. Raises OSError with a printable reason."""
    try:
        descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise unfit(path) from None
        if error.errno == errno.ELOOP and follow:
            raise unfit(path, os.strerror(errno.ELOOP)) from None
        raise
    try:
        _require_file(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def open_to_write(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file of ours to be written, made or emptied as `flags` have it. Raises OSError.

    Neither is a link followed, which would change another file, nor a pipe's reader waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ELOOP}:
            raise unfit(path, "it is a link" if error.errno == errno.ELOOP else "it is no regular file") from None
        raise
    try:
        _require_file(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_up_to(descriptor: int, maximum: int) -> bytes:
    """Read a regular file, at most so many bytes. Raises OSError.

    Room is made for what it has and not for all that it may have: for many small files that costs more than reading
    them, and leaves holes in this process's memory.
    """
    parts: list[bytes] = []
    expected, remaining = os.fstat(descriptor).st_size + 1, maximum
    while remaining > 0 and (part := os.read(descriptor, min(expected, remaining))):
        parts.append(part)
        expected, remaining = _PART, remaining - len(part)
    return b"".join(parts)


def read(path: Path, maximum: int) -> bytes:
    """Read a regular file of at most `maximum` bytes. Raises OSError with a printable reason."""
    with opened(path) as file:
        require_regular(path, os.fstat(file.fileno()), maximum)
        data = read_up_to(file.fileno(), maximum + 1)
    if len(data) > maximum:
        raise unfit(path, _too_large(maximum))
    return data


def read_if_present(path: Path, maximum: int) -> bytes | None:
    """Read the same; None where nothing has the name. A link that leads nowhere isn't nothing. Raises OSError."""
    try:
        return read(path, maximum)
    except FileNotFoundError:
        if path.is_symlink():
            raise unfit(path, "it is a link that leads nowhere") from None
        return None


def require_regular(path: Path, status: os.stat_result, maximum: int) -> None:
    """Refuse anything but a regular file, and a larger one. Raises OSError with a printable reason."""
    _require_file(path, status)
    if status.st_size > maximum:
        raise unfit(path, _too_large(maximum))


def _require_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise unfit(path)


def _too_large(maximum: int) -> str:
    return f"it has more than {maximum} bytes"
