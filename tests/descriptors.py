"""A process that may open a few files and no more, for real: the kernel refuses the next one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def few_files(spare: int) -> Iterator[None]:
    """Let this process open `spare` more descriptors at a time, and no more."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(spare + 1)]
    for descriptor in free:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
