"""The inotify instances that remain for this user: Envoy takes one for each file that it watches, and aborts without.

Found by taking them and giving them back at once; the kernel tells it in no other way that is exact.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from threading import Lock

from locallb.host.descriptors import inotify_holders
from locallb.model.errors import ClientError
from locallb.model.system_errors import refusal

_ONE_AT_A_TIME = Lock()
"""What is tried is missing elsewhere for as long."""
_NAMED = 3
"""Processes that a sentence names."""
_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


class InotifyError(ClientError):
    """There aren't enough inotify instances: one sentence."""


def require(wanted: int, what: str) -> None:
    """Make sure that `wanted` instances are free at this moment. Raises InotifyError, which says `what` needs them."""
    free = available(wanted)
    if free < wanted:
        limit = _LIMIT.read_text(encoding="ascii").strip()
        raise InotifyError(
            f"{what} needs {wanted} inotify instances, but this user has {free} left of {limit}{_held()}: end other"
            " programs that watch files, or raise the limit (as root: sysctl fs.inotify.max_user_instances=1024)"
        )


def _held() -> str:
    """Return which processes have the most, in brackets; empty where that can't be read."""
    maximum = ", ".join(largest_holders())
    return f" ({maximum})" if maximum else ""


def largest_holders() -> tuple[str, ...]:
    """Return how many instances the processes with the most have: `97 are of code (4711)`."""
    return tuple(f"{count} are of {name}" for count, name in inotify_holders()[:_NAMED])


def available(wanted: int) -> int:
    """Return how many of `wanted` instances could be had. Raises InotifyError where it isn't these that are wanting."""
    library = ctypes.CDLL(None, use_errno=True)
    claimed: list[int] = []
    with _ONE_AT_A_TIME:
        try:
            while len(claimed) < wanted and (descriptor := library.inotify_init1(os.O_CLOEXEC)) >= 0:
                claimed.append(descriptor)
            if len(claimed) < wanted:  # by one error the kernel tells of the user's instances and of our descriptors
                os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            return len(claimed)
        except OSError as error:
            raise InotifyError(f"inotify instances can't be counted: {refusal(error)}") from error
        finally:
            for descriptor in claimed:
                os.close(descriptor)
