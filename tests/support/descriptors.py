"""Descriptors of this process, for real: it may open a few files and no more, or shows what it has open."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def few_files(spare: int) -> Iterator[None]:
    """Let this process open `spare` more descriptors at a time, and no more."""
    usual, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(spare + 1)]
    for descriptor in free:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], maximum))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, maximum))


def count_open(path: Path) -> int:
    """Count the descriptors of this process that lead to `path`."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            found += descriptor.readlink() == path.resolve()
    return found


def resources() -> tuple[int, int]:
    """Count threads and open descriptors of this process."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
