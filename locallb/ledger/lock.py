"""The advisory lock on a shared directory: any user who may read the directory can take it, and keep it.

It only avoids collisions; what is written is exclusive without it (`ledger`). So nobody waits for it for ever, and a
process that was seen to keep it is not waited for again. Not here: what is done under it.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 10.0
"""Seconds that a writer waits; each holds the lock for a few milliseconds."""
READER_PATIENCE = 1.0
_PAUSE = 0.002
_LOCKS = Path("/proc/locks")
_FIELDS = 6
_keepers: dict[tuple[int, int, int], frozenset[int]] = {}
"""Who kept the lock for the whole patience, by device, inode and kind of lock."""


def take(descriptor: int, how: int) -> bool:
    """Lock what `descriptor` has open; False if others kept the lock. For one thread at a time."""
    status = os.fstat(descriptor)
    key = status.st_dev, status.st_ino, how
    if _taken(descriptor, how):
        return True
    before = _keepers.pop(key, frozenset())
    if before and holders(descriptor) == before:
        _keepers[key] = before
        return False
    deadline = time.monotonic() + (PATIENCE if how == fcntl.LOCK_EX else READER_PATIENCE)
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        if _taken(descriptor, how):
            return True
    _keepers[key] = holders(descriptor)
    return False


def holders(descriptor: int) -> frozenset[int]:
    """Find the processes that hold a lock on what is open there; empty where the kernel doesn't tell."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = []
    with suppress(OSError):
        lines = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
    held = [line for line in lines if len(line) >= _FIELDS and line[1] == "FLOCK" and line[5] == place]
    return frozenset(int(line[4]) for line in held if int(line[4]) > 0)


def _taken(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
