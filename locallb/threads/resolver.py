"""This host's own resolver, asked with a deadline: by itself it waits for servers that are away as long as it likes."""

from __future__ import annotations

import socket
from contextlib import suppress
from queue import Empty, SimpleQueue

from locallb.threads.supervised import Task, do_once


def addresses_of(name: str, seconds: float) -> list[str]:
    """Return the addresses that the system's resolver finds for a name; none if it doesn't answer in time."""
    found: SimpleQueue[list[str]] = SimpleQueue()
    # Not in an executor, whose threads are waited for at the end of the process.
    do_once(Task.RESOLVER, f"resolver {name}", lambda: found.put(_resolved(name)))
    try:
        return found.get(timeout=seconds)
    except Empty:
        return []


def _resolved(name: str) -> list[str]:
    with suppress(OSError, UnicodeError):
        return [str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return []
