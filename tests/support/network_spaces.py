"""Entering network namespaces from this process, one thread at a time: a test acts on the machine that it made.

Threads and processes that are started inside stay there, and so do sockets that are opened inside. Not here: how a
namespace is made (`tests.support.host.Namespace`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from tests.support.host import Namespace

_NETWORK = 0x40000000  # CLONE_NEWNET


@contextlib.contextmanager
def inside(space: Namespace) -> Iterator[None]:
    """Let the calling thread see the network of `space` until the block ends."""
    back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    present = os.open(f"/proc/{space.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(present)
        try:
            yield
        finally:
            _enter(back)
    finally:
        os.close(present)
        os.close(back)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns: only root may enter a network namespace")
