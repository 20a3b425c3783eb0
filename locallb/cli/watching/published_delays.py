"""The file in which a `watch` has its delays, for commands in other processes; it ends with its watch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.runtimes import processes
from locallb.storage import files
from locallb.watch.delays import Delay
from locallb.watch.events import Delayed, LoopEvent, Stopped


class _Published(Struct, frozen=True):
    process: str
    """Of which process it is: what one that was killed left counts for nothing."""
    delays: tuple[Delay, ...]


class DelaysFile:
    """Written by the thread of the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def listen(self, event: LoopEvent) -> None:
        """Take over the delays; a full disk is no reason to end."""
        match event:
            case Delayed(delays=delays) if delays:
                process = str(processes.identify(os.getpid()))
                text = msgspec.json.encode(_Published(process, delays)).decode()
                with suppress(ClientError):
                    files.write(self._path, text)
            case Delayed() | Stopped():
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
            case _:
                pass


def read_delays(path: Path) -> Sequence[Delay]:
    """Return the delays of the `watch` that runs now."""
    try:
        published = msgspec.json.decode(files.read(path) or "", type=_Published)
    except (ClientError, msgspec.DecodeError):
        return ()
    pid = published.process.partition("@")[0]
    running = processes.identify(int(pid)) if pid.isdecimal() else None
    return published.delays if running and str(running) == published.process else ()
