"""Ends of Envoys: a new one takes over the listening sockets of the old one (hot restart), or it is stopped.

Hot restart refuses no client, and is Envoy's own. The new process asks the old one for its sockets, by sockets in the
proxy's directory and a region of shared memory; has it stop accepting when it accepts itself; and ends it when its
connections had their time. Processes that were started without it (by earlier versions, or where there is no shared
memory) can't hand over. Those that are stopped are found by a mark in their environment, and no client is cut short.
A drain is recorded in the
proxy's directory, because the Envoy goes on answering although it listens no longer. Not here: starting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from locallb.envoy import ADMIN_SOCKET, ALONE
from locallb.envoy.admin import EnvoyAdmin
from locallb.host.sockets import connections
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol
from locallb.runtimes import processes
from locallb.runtimes.processes import Process
from locallb.storage import files
from locallb.storage.proxy_directories import PROXY_MARK
from locallb.threads import Joined

LINGER = 2.0
"""Seconds that open connections get when their proxy is stopped."""
STOPPING = "stopping"
"""File with the drained run, so that a later run of ours doesn't take it for one that serves."""
_DRAIN_PAUSE = 0.005


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
            time.sleep(_DRAIN_PAUSE)


def was_notified(directory: Path, note: str) -> bool:
    """Return whether the run that `note` names was drained."""
    try:
        return (files.read_shared(directory / STOPPING) or "") == note
    except files.FilesError:
        return False


EPOCH_MARK = "LOCALLB_EPOCH"
"""In the environment of a process that can hand over: how often that was done in its directory."""
BASE_ID, SOCKETS = "base-id", "hot"
"""File names in a proxy's directory: the number that all its epochs share, and how names of their sockets begin."""
_FORMER = f"{SOCKETS}_{ADMIN_SOCKET}"
MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
SECONDS = 15.0
"""Until the former process must have ended: what it has to give takes a tenth of one, its connections get LINGER."""
_PLACE = ("--socket-path", f"./{SOCKETS}", "--parent-shutdown-time-s", str(round(LINGER)))
_MAX = 1 << 32
_ROOM = 1 << 20
"""Bytes that must be free, for what takes a page."""
_PAUSE = 0.01


class Epoch(Struct, frozen=True):
    """How one process is started: further arguments, and what its environment says of that."""

    arguments: tuple[str, ...] = (ALONE,)
    mark: Mapping[str, str] = field(default_factory=dict)


def first(directory: Path) -> Epoch:
    """Return how the first process of a directory begins, where nothing of earlier ones is left."""
    forget(directory)
    if not _has_room():
        return Epoch()
    return Epoch(("--use-dynamic-base-id", "--base-id-path", f"./{BASE_ID}", *_PLACE), {EPOCH_MARK: "0"})


def forget(directory: Path) -> None:
    """Remove what processes that have ended left, in their directory and in memory."""
    number = _base_id(directory)
    if number is not None:
        with suppress(OSError):  # it is gone, or another user's
            (MEMORY / f"envoy_shared_memory_{number * 10 % _MAX}").unlink()
    with suppress(files.FilesError):
        for path in (directory / BASE_ID, *directory.glob(f"{SOCKETS}_*")):
            files.remove(path)


def after(directory: Path, former: Process) -> Epoch | None:
    """Return how a process takes over from the one that runs; None if that one can't hand over."""
    epoch, number = _epoch(former), _base_id(directory)
    if epoch is None or number is None:
        return None
    following = str(epoch + 1)
    return Epoch(("--restart-epoch", following, "--base-id", str(number), *_PLACE), {EPOCH_MARK: following})


@contextmanager
def admin_aside(directory: Path, former: Process) -> Iterator[None]:
    """Move the admin socket of a running process aside, because the next process makes its own.

    It is moved back if that process still runs and the next one failed, so that the former can be drained. After an
    interruption in between, the next process serves, with its own socket.
    """
    socket, aside = directory / ADMIN_SOCKET, directory / _FORMER
    with suppress(OSError):
        socket.replace(aside)
    try:
        yield
    finally:
        if processes.is_alive(former) and not successor_of(former, processes.find(PROXY_MARK, str(directory))):
            with suppress(OSError):
                aside.replace(socket)


def successor_of(process: Process, others: tuple[Process, ...]) -> Process | None:
    """Return which of the processes of its directory takes over from it, and has the admin socket; None without."""
    epoch = _epoch(process)
    epochs = {other: _epoch(other) for other in others}
    later = (other for other, its in epochs.items() if its is not None and epoch is not None and its > epoch)
    return next(later, None)


def await_end(former: Process, successor: Process) -> bool:
    """Wait for the end of a process, which its successor brings about; tell whether that lives then.

    Who ends it in the midst of that ends the successor, which goes on asking it for its statistics.
    """
    deadline = time.monotonic() + SECONDS
    while processes.is_alive(former) and processes.is_alive(successor) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return processes.is_alive(successor) and not processes.is_alive(former)


def _has_room() -> bool:
    """Return whether there is shared memory to be had: an Envoy that finds none left ends with a bus error."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    space = os.statvfs(MEMORY)
    return space.f_blocks == 0 or space.f_bavail * space.f_frsize >= _ROOM  # no blocks: it is unbounded


def _epoch(process: Process) -> int | None:
    text = processes.mark_of(process).get(EPOCH_MARK, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _base_id(directory: Path) -> int | None:
    with suppress(files.FilesError):
        text = (files.read_shared(directory / BASE_ID) or "").strip()
        if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX)) and int(text) < _MAX:
            return int(text)
    return None


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
    forget(directory)


def stop_process(directory: Path, process: Process) -> None:
    """Stop one: it listens no longer, open connections get LINGER seconds, then it ends. Raises ProcessError."""
    if successor := successor_of(process, running(directory)):
        await_end(process, successor)
    else:
        drain_process(directory, process)
    processes.stop(process, STOP_TIMEOUT)


def drain_process(directory: Path, process: Process) -> None:
    """Close its listeners and leave open connections LINGER seconds: once, at the first call."""
    if not was_notified(directory, _note(process)) and not successor_of(process, running(directory)):
        drain(directory, _note(process), process.pid)


def _note(process: Process) -> str:
    return f"{process.pid} {process.started}\n"
