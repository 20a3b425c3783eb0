"""Stops a proxy's processes: found by a mark in their environment, stopped without cutting clients short.

Not here: starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from locallb.runtimes.draining import drain, was_notified
from locallb.runtimes.process import handover, processes
from locallb.runtimes.process.processes import Process
from locallb.storage.proxy_directories import PROXY_MARK
from locallb.threads import Joined

STOP_TIMEOUT = 2.0
"""Seconds from SIGTERM to SIGKILL."""


def running(directory: Path) -> tuple[Process, ...]:
    """Find the processes that were started for the proxy in `directory`, even if they weren't noted.

    Who looks for several proxies at the same moment shares one look at all processes. Raises ProcessError.
    """
    return _RUNNING.ask(str(directory))


def _by_directory(directories: Sequence[str]) -> Sequence[tuple[Process, ...]]:
    marks = {process: mark[PROXY_MARK] for process, mark in processes.marked(PROXY_MARK).items()}
    return [tuple(process for process, mark in marks.items() if mark == directory) for directory in directories]


_RUNNING: Joined[str, tuple[Process, ...]] = Joined(_by_directory)


def runs_in(directory: Path, process: Process) -> bool:
    """Return whether `process` lives, is ours, works in exactly this directory, and wasn't drained.

    The directory may have been removed and made again; a drained process listens no longer, though it still answers.
    """
    if processes.mark_of(process).get(PROXY_MARK) != str(directory):
        return False
    if was_notified(directory, _note(process)):
        return False
    try:
        return Path(f"/proc/{process.pid}/cwd").samefile(directory)
    except OSError:
        return False


def stop_all(directory: Path) -> None:
    """Stop every process of the proxy in `directory`, and remove what they leave in memory."""
    for process in running(directory):
        stop_process(directory, process)
    handover.forget(directory)


def stop_process(directory: Path, process: Process) -> None:
    """Stop one: it listens no longer, open connections get LINGER seconds, then it ends. Raises ProcessError."""
    if successor := handover.successor_of(process, running(directory)):
        handover.await_end(process, successor)
    else:
        drain_process(directory, process)
    processes.stop(process, STOP_TIMEOUT)


def drain_process(directory: Path, process: Process) -> None:
    """Close its listeners and leave open connections LINGER seconds: once, at the first call."""
    if not was_notified(directory, _note(process)) and not handover.successor_of(process, running(directory)):
        drain(directory, _note(process), process.pid)


def _note(process: Process) -> str:
    return f"{process.pid} {process.started}\n"
