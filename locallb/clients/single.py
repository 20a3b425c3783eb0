"""One process at a time for something: a lock of the operating system, gone with its holder however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from locallb.clients import ClientError, places


class TakenError(ClientError):
    """Another process has it, or nobody can: one sentence."""


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` for `what`; the file goes with it. Raises TakenError."""
    places.private_directory(path.parent)
    try:
        descriptor = _locked(path, what)
    except OSError as error:
        raise TakenError(
            f"{path}, which keeps a second {what} away, can't be written: {error.strerror}; "
            "make its directory writable for this user"
        ) from None
    try:
        with suppress(OSError):  # who holds it is only told to others: the lock itself needs no room on a disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, what: str) -> int:
    """Lock the file that stands there; one that its last holder took away meanwhile doesn't count."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise TakenError(f"{what} runs already (pid {holder}): end that process, or leave it to it") from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)
