"""One process at a time: a lock of the operating system, which ends with its holder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from locallb import safe_files
from locallb.model.errors import UNTOLD, ClientError, refusal
from locallb.runtimes import processes
from locallb.runtimes.processes import Process
from locallb.storage import paths

_TIMEOUT = 1.0
"""Seconds to wait for processes that only check the lock's holder; a check takes microseconds."""
_PAUSE = 0.005


class AlreadyRunningError(ClientError):
    """The lock is held by another process, or can't be taken at all: one sentence."""


def holder(path: Path) -> Process | None:
    """Find the process that holds the lock at `path`; None if the lock is free or its holder is unknown.

    Changes nothing. Raises ClientError if this host lacks the resources to check.
    """
    try:
        descriptor = safe_files.open_lock(path, make=False)
    except OSError as error:
        if error.errno in UNTOLD:
            raise AlreadyRunningError(f"can't determine which process holds {path}: {refusal(error)}") from error
        return None
    try:
        process = processes.identify(_pid(descriptor))
        return process if _is_held(descriptor) and process and process.pid == _pid(descriptor) else None
    except OSError:  # a FIFO
        return None
    finally:
        os.close(descriptor)


def _pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else 0


def _is_held(descriptor: int) -> bool:
    """Return whether an instance runs; one that starts at this moment waits for us, as `_is_claimed` does."""
    return not safe_files.try_lock(descriptor, shared=True)


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` for `what`; the file goes with it. Raises AlreadyRunningError."""
    paths.private_directory(path.parent)
    try:
        descriptor = _locked(path, what)
    except OSError as error:
        raise AlreadyRunningError(
            f"{path}, which keeps a second {what} away, can't be written: {refusal(error)}"
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
        descriptor = safe_files.open_lock(path)
        if _is_claimed(descriptor):
            pid = _pid(descriptor) or "unknown"
            os.close(descriptor)
            raise AlreadyRunningError(
                f"{what} runs already (pid {pid}): end that process first, or leave the work to it"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _is_claimed(descriptor: int) -> bool:
    """Take the lock unless an instance has it; processes that only check the holder are waited for."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        if safe_files.try_lock(descriptor):
            return False
        if _is_held(descriptor) or time.monotonic() > deadline:
            return True
        safe_files.unlock(descriptor)
        time.sleep(_PAUSE)
