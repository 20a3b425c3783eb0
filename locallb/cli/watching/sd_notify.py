"""Notifies a supervisor that speaks systemd's protocol: sd_notify(3), datagrams to the socket that it names.

Without a supervisor nothing is sent. Not here: when to send what.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


def notify(*lines: str) -> None:
    """Send assignments to the supervisor, such as `READY=1`. A supervisor that doesn't listen is ignored."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.setblocking(False)
        out.sendto("\n".join(lines).encode(errors="replace"), f"\0{place[1:]}" if place[0] == "@" else place)


def reloading() -> None:
    """Report that the configuration is read again; READY=1 ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_seconds() -> float | None:
    """Return the interval in which the supervisor expects a sign of life; None if it expects none."""
    wanted, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not wanted.isdigit() or int(wanted) == 0 or pid not in {"", str(os.getpid())}:
        return None
    return int(wanted) / 1e6
