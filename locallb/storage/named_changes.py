"""Names of files in directories that changed since they were last asked for: from the kernel's own queue, no thread.

The kernel puts a change into the queue before the writer's call returns, so who asks hears of everything that was done
before. Where it can't name all (the queue ran over, a directory came, went or moved), the answer is that it can't.
Not told: what is written through another name of a file, through memory, by another host, or by a mount over a file or
a directory below; who asks looks at everything now and again. Not here: when to look (`folder_watch`), and what files
have (`folders`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

_IN_MODIFY, _IN_ATTRIB, _IN_CLOSE_WRITE = 0x2, 0x4, 0x8
_IN_MOVED, _IN_CREATE, _IN_DELETE = 0x40 | 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
_IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED, _IN_ISDIR = 0x2000, 0x4000, 0x8000, 0x40000000
_IN_ONLYDIR = 0x01000000
_CHANGES = _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED | _IN_CREATE | _IN_DELETE
_WATCHED = _CHANGES | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_NAMELESS = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_Q_OVERFLOW | _IN_IGNORED
_EVENT, _SIZE = struct.Struct("iIII"), struct.Struct("i")
_AT_ONCE = 1 << 16
"""Bytes of the queue that are read at once."""


class NamedChanges:
    """For one thread. Without `begin`, and where the kernel has no queue to give, nothing can be named."""

    def __init__(self) -> None:
        self._queue = -1
        self._prefixes: dict[int, str] = {}
        self._root: tuple[int, int] | None = None

    def begin(self) -> None:
        self.close()
        try:
            self._queue = max(-1, _library().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        except AttributeError:  # no Linux
            self._queue = -1

    def add(self, directory: int, prefix: str) -> None:
        """Follow the files of an open directory with names that begin with `prefix`."""
        if self._queue < 0:
            return
        path = f"/proc/self/fd/{directory}".encode()
        number = _library().inotify_add_watch(self._queue, path, _WATCHED)
        if number < 0 or number in self._prefixes:
            self.close()
        else:
            self._prefixes[number] = prefix
            self._root = self._root or _identity(os.fstat(directory))

    def follow(self, directory: Path) -> bool:
        """Return whether it is this directory that was added first, and still stands under that name."""
        try:
            return self._root == _identity(directory.stat())
        except OSError:
            return False

    def names(self) -> set[str] | None:
        """Return which may be different since the last time; None where that can't be said, and `begin` is due."""
        if self._queue < 0:
            return None
        names: set[str] = set()
        try:
            for number, mask, name in _events(self._queue):
                if mask & _NAMELESS or (mask & _IN_ISDIR and not name.startswith(".")):
                    self.close()
                    return None
                names.add(self._prefixes.get(number, "") + name)
        except OSError:
            self.close()
            return None
        return names

    def close(self) -> None:
        if self._queue >= 0:
            os.close(self._queue)
        self._queue, self._prefixes, self._root = -1, {}, None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _events(queue: int) -> Iterator[tuple[int, int, str]]:
    """Take what is in the queue now: the number of the directory, what happened, to which name.

    What comes meanwhile stays for the next time: whoever writes on and on would keep us here.
    """
    (remaining,) = _SIZE.unpack(fcntl.ioctl(queue, termios.FIONREAD, bytes(_SIZE.size)))
    while remaining > 0:
        data = os.read(queue, _AT_ONCE)
        remaining -= len(data)
        position = 0
        while position < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = data[position : position + length].rstrip(b"\0")
            position += length
            yield number, mask, os.fsdecode(name)
