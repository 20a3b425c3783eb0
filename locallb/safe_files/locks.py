"""Locks of files and directories (flock), which end with the process that holds them, however that ends.

Not here: the engine's leases of its own files, and limits of waits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_KERNELS = Path("/proc/locks")
_FIELDS = 6
_MADE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PRESENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def opened(path: Path, *, make: bool = True) -> int:
    """Open the file that is there to be locked, or `make` it, and return its descriptor. Raises OSError."""
    return os.open(path, _MADE if make else _PRESENT, 0o600)


def claimed(descriptor: int, *, shared: bool = False) -> bool:
    """Try to lock `descriptor`, exclusively or shared; return False if another process holds it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait(descriptor: int, *, shared: bool = False) -> None:
    """Lock `descriptor`, exclusively or shared, waiting for other holders. Raises OSError if locking is impossible."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def give_back(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def retained() -> Iterator[tuple[int, str]]:
    """Return the locks with their holders, by the kernel's public list: pid, and `major:minor:inode`."""
    for terms in map(str.split, _KERNELS.read_text(encoding="ascii").splitlines()):
        if len(terms) >= _FIELDS and terms[1] == "FLOCK":
            yield int(terms[4]), terms[5]
