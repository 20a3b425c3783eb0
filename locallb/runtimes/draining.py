"""Draining of an Envoy before its end, for every runtime: it stops listening, and open connections get a moment.

The drain is recorded in its directory, because the Envoy goes on answering although it listens no longer. Not here:
ending it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from locallb.envoy.admin import EnvoyAdmin
from locallb.host.sockets import connections
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol
from locallb.storage import files

LINGER = 2.0
"""Seconds that open connections get when their proxy is stopped."""
STOPPING = "stopping"
"""File with the drained run, so that a later run of ours doesn't take it for one that serves."""
_PAUSE = 0.005


def drain(directory: Path, note: str, process: int) -> None:
    """Drain the Envoy of the proxy in `directory`; `note` names the run, `process` is its process."""
    with suppress(files.FilesError):  # no directory: nobody will take the process for one that serves
        files.write(directory / STOPPING, note)
    with suppress(ClientError):  # one that doesn't answer has no connections worth waiting for
        admin = EnvoyAdmin(directory)
        places = admin.places() | admin.draining()  # who is gone from a proxy of the stack may have streams, too
        listening = {(address, port) for address, port, protocol in places if protocol is Protocol.TCP}
        admin.drain()
        deadline = time.monotonic() + LINGER
        while connections(listening, process) and time.monotonic() < deadline:
            time.sleep(_PAUSE)


def was_notified(directory: Path, note: str) -> bool:
    """Return whether the run that `note` names was drained."""
    try:
        return (files.read_shared(directory / STOPPING) or "") == note
    except files.FilesError:
        return False
