"""The end of a proxy's processes: found by what they carry in their environment, stopped without cutting clients short.

Who was told to stop is noted beside it, because it goes on answering although it listens no longer. Not here: starting.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from locallb.clients import ClientError, files, processes
from locallb.clients.envoy_admin import EnvoyAdmin
from locallb.clients.processes import Process
from locallb.clients.proxies import PROXY_MARK
from locallb.clients.sockets import connections, split_place

LINGER = 2.0
"""Seconds that open connections get when their proxy is stopped."""
STOP_PATIENCE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
STOPPING = "stopping"
"""Which process was told to stop, so that a run after an interrupted one doesn't take it for a proxy that serves."""
_PAUSE = 0.005


def running(directory: Path) -> tuple[Process, ...]:
    """Find the processes that were started for the proxy in `directory`, even if nobody noted them."""
    return processes.find(PROXY_MARK, str(directory))


def runs_in(directory: Path, process: Process) -> bool:
    """Tell whether `process` lives, is ours, works in this very directory, and wasn't told to stop.

    The directory may have been removed and made again; who was told to stop listens no longer, though it still answers.
    """
    if processes.mark_of(process).get(PROXY_MARK) != str(directory):
        return False
    if _read_or_nothing(directory / STOPPING) == _stop_note(process):
        return False
    try:
        return Path(f"/proc/{process.pid}/cwd").samefile(directory)
    except OSError:
        return False


def stop_all(directory: Path) -> None:
    """Stop every process of the proxy in `directory`."""
    for process in running(directory):
        stop_process(directory, process)


def stop_process(directory: Path, process: Process) -> None:
    """Stop one: it listens no longer, open connections get LINGER seconds, then it ends. Raises ProcessError."""
    with suppress(files.FilesError):  # no directory: nobody will take the process for one that serves
        files.write(directory / STOPPING, _stop_note(process))
    with suppress(ClientError):  # one that doesn't answer has no connections worth waiting for
        admin = EnvoyAdmin(directory)
        listening = {split_place(name.rpartition("/")[0]) for name in admin.listeners() if name.endswith("/TCP")}
        admin.drain()
        deadline = time.monotonic() + LINGER
        while connections(listening) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    processes.stop(process, STOP_PATIENCE)


def _stop_note(process: Process) -> str:
    return f"{process.pid} {process.started}\n"


def _read_or_nothing(path: Path) -> str:
    try:
        return files.read(path) or ""
    except files.FilesError:
        return ""
