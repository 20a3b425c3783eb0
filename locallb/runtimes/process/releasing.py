"""Sockets of UDP listeners that an Envoy has given up and keeps: only its end frees them before its drain time.

So another process takes over from it (`envoy_process`), once no client would notice. Not here: that handover.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from pathlib import Path

from locallb.envoy import push, rollout
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.push import udp_sockets
from locallb.host.sockets import has_streams, own_rows
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol, place
from locallb.runtimes.process.processes import Process

IDLE_TIMEOUT = 1.0
"""Seconds that clients get to end short connections."""
_PAUSE = 0.01


def can_release(directory: Path, process: Process, released: AbstractSet[str], timeout: float = 0) -> bool:
    """Return whether a process keeps any of these places, and no client has a connection or a session with it.

    False where that isn't known. A session has a socket of its own for `listeners.UDP_IDLE`. Connections of HTTP/3
    share that of their listener, which always counts as used.
    """
    deadline = time.monotonic() + timeout
    try:
        listeners = push.texts(directory).get(rollout.LISTENERS, "{}")
        served = {place(*socket) for socket in udp_sockets(listeners)}
        given_up = released - {place(*socket) for socket in udp_sockets(listeners, http3=True)}
        while (sockets := _udp_places(process)) & given_up:
            if sockets <= served | given_up and not _has_streams(directory, process):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)
    except ClientError:
        pass
    return False


def _udp_places(process: Process) -> set[str]:
    """Return where a process has sockets of UDP. Raises ClientError."""
    return {place(row.address, row.port) for row in own_rows(Protocol.UDP, process.pid)}


def _has_streams(directory: Path, process: Process) -> bool:
    """Return whether a client has a TCP connection, also to a listener that is gone. Raises ClientError."""
    admin = EnvoyAdmin(directory)
    listening = {(address, port) for address, port, _ in admin.places() | admin.draining()}
    return has_streams(listening, process.pid)
