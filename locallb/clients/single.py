"""One process at a time for something: a lock of the operating system, gone with its holder however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locallb.clients import ClientError, places


class TakenError(ClientError):
    """Another process has it: one sentence."""


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` for `what`. Raises TakenError."""
    places.private_directory(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise TakenError(f"{what} runs already (pid {holder}): end that process, or leave it to it") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
