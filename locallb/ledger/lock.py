"""The advisory lock on a shared directory: any user with read access to the directory can take it, and keep it.

It only avoids collisions; what is written is exclusive without it (`ledger`). So waits for it are bounded, and a
process that was seen to keep it is not waited for again. Not here: what is done under it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from locallb.guarded import locks

TIMEOUT = 10.0
"""Seconds that a writer waits; each holds the lock for a few milliseconds."""
READER_TIMEOUT = 1.0
_PAUSE = 0.002
_keepers: dict[tuple[int, int, bool], frozenset[int]] = {}
"""Who kept the lock for the whole patience, by device, inode and whether to share it."""


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Lock what `descriptor` has open; False if others kept the lock. For one thread at a time."""
    status = os.fstat(descriptor)
    key = status.st_dev, status.st_ino, shared
    if locks.claimed(descriptor, shared=shared):
        return True
    before = _keepers.pop(key, frozenset())
    if before and holders(descriptor) == before:
        _keepers[key] = before
        return False
    deadline = time.monotonic() + (READER_TIMEOUT if shared else TIMEOUT)
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        if locks.claimed(descriptor, shared=shared):
            return True
    _keepers[key] = holders(descriptor)
    return False


def holders(descriptor: int) -> frozenset[int]:
    """Find the processes that hold a lock on what is open there; empty where the kernel doesn't tell."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        return frozenset(pid for pid, retained in locks.retained() if retained == place and pid > 0)
    return frozenset()
