"""Detached processes: started so that they outlive us, identified without a record, stopped without races.

A process is known by its pid and the moment it started (boot and clock tick), and is ours if its environment carries
the mark that we gave it: that stays true however we ended, so nothing depends on a record being written in time. Not
here: what is run, and where that is remembered.
"""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from locallb import safe_files
from locallb.model.errors import ClientError, refusal, refuse_scarcity, reported
from locallb.programs import Program, ProgramError
from locallb.safe_files import open_to_write, opened

LOG_LIMIT = 1 << 20
"""Bytes that a process may write to one file, set as its resource limit: a log stays bounded by itself."""
_BLOCK = 512
_DETACH = """\
trap '' XFSZ
umask 077
ulimit -f "$1"
ulimit -S -n "$(ulimit -H -n)"
log=$2
shift 2
{ read -r stat </proc/self/stat; printf '%s\\n' "$stat"; exec "$@" </dev/null >>"$log" 2>&1; } &
"""
"""A fork of a fork: the shell ends at once, so that init adopts and buries the process; `exec` makes it the program
itself. It tells its own identity first: the start time stays the same through exec. Writing beyond the limit is an
error that a program may ignore, not a signal that ends it. Open files, of which each connection takes two, are as many
as the user may have."""
_USER, _SYSTEM, _STARTED = 11, 12, 19  # fields 14, 15 and 22 of /proc/<pid>/stat, counted after the name's bracket
_AT_WORK = "RD"
_ENDED = "ZXx"
_START_TIMEOUT = 10.0
_KILL_TIMEOUT = 5.0
_TAIL = 16_000


class ProcessError(ClientError):
    """A process can't be started or stopped: one sentence."""


class Process(Struct, frozen=True):
    """One process of one boot."""

    pid: int
    started: str
    """`<boot id>.<clock ticks since boot>`: no other process ever had this pid and this start."""

    def __str__(self) -> str:
        return f"{self.pid}@{self.started}"


class Activity(Struct, frozen=True):
    """What the first thread of a process does at a moment."""

    process: Process
    state: str
    """One letter, as the kernel has it."""
    ticks: int
    """How long it has computed since its start, in ticks of the clock."""

    @property
    def runs(self) -> bool:
        return self.state not in _ENDED

    def is_at_work(self, before: Activity | None) -> bool:
        """Return whether it computes, waits for a processor or a disk, or has computed since it was seen `before`."""
        return self.state in _AT_WORK or before is None or self.ticks != before.ticks


def start(command: Sequence[str], directory: Path, mark: Mapping[str, str], log: Path) -> Process:
    """Start `command` in `directory`, detached, its output appended to `log`; `mark` is its environment.

    (The shell that starts it may add its own PWD and the like.)

    The log is a file of mode 0600 that doesn't grow beyond LOG_LIMIT. An `exec` that fails shows in the log, and as a
    process that ended. Raises ProcessError. Safe in a process with threads, and leaves no zombie to the caller.
    """
    terms = ["/bin/sh", "-c", _DETACH, "sh", str(LOG_LIMIT // _BLOCK), str(log), *command]
    try:
        os.close(open_to_write(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        ended = Program(tuple(terms), _START_TIMEOUT, directory=directory, environment=mark).run()
    except OSError as error:
        raise ProcessError(f"{command[0]} can't be started in {directory}: {reported(error)}") from error
    except ProgramError as error:
        raise ProcessError(f"{command[0]} can't be started in {directory}: {error}") from None
    stat = _parse(ended.output.decode())
    if stat is None:
        why = ended.last_output or "the shell failed"
        raise ProcessError(f"{command[0]} can't be started in {directory}: {why}")
    return stat.process


def identify(pid: int) -> Process | None:
    """Return which process has this pid now; None if there is none that runs. Raises ProcessError."""
    stat = _stat(pid)
    return stat.process if stat is not None and stat.runs else None


def is_alive(process: Process) -> bool:
    """Return whether it still runs: neither gone, nor a zombie, nor another one with its pid. Raises ProcessError."""
    stat = _stat(process.pid)
    return stat is not None and stat.runs and stat.process == process


def activity(pid: int) -> Activity | None:
    """Return what the first thread of a process does; None if it can't be seen, or has ended. Raises ProcessError."""
    stat = _parse(_reported(pid, f"task/{pid}/stat").decode(errors="replace"))
    return stat if stat is not None and stat.runs else None


def has_open(process: Process, path: Path) -> bool:
    """Return whether a process has this file open, or has locked it, if another user's open files can't be read.

    Raises ProcessError if this host lacks the resources to check.
    """
    try:
        file, descriptors = path.stat(), list(Path(f"/proc/{process.pid}/fd").iterdir())
    except PermissionError:
        return _has_locked(process, path)
    except OSError as error:
        _require_reported(process.pid, error)
        return False
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(descriptor.stat(), file):
                return True
    return False


def _has_locked(process: Process, path: Path) -> bool:
    """Return whether a process has locked this file, by the kernel's public list of locks.

    The inode number decides: some filesystems have another device number in that list.
    """
    try:
        number = path.stat().st_ino
        return any(
            (pid, place.rpartition(":")[2]) == (process.pid, str(number)) for pid, place in safe_files.kernel_locks()
        )
    except OSError as error:
        _require_reported(process.pid, error)
        return False


def mark_of(process: Process) -> Mapping[str, str]:
    """Read a living process's environment; empty if it is gone or isn't this user's."""
    environment = _environment(_reported(process.pid, "environ"))
    return environment if is_alive(process) else {}


def marked(key: str) -> Mapping[Process, Mapping[str, str]]:
    """Find this user's living processes, but ourselves, that have `key` in their environment; with all of it.

    Raises ProcessError.
    """
    wanted = key.encode() + b"="
    try:
        names = [entry.name for entry in Path("/proc").iterdir()]
    except OSError as error:
        raise ProcessError(f"processes can't be looked for: {reported(error)}") from error
    pids = [int(name) for name in names if name.isdigit() and name != str(os.getpid())]
    raws = {pid: raw for pid in pids if wanted in (raw := _reported(pid, "environ"))}
    stats = {pid: stat for pid in sorted(raws) if (stat := _stat(pid)) is not None and stat.runs}
    environments = {stat.process: _environment(raws[pid]) for pid, stat in stats.items()}
    return {process: pairs for process, pairs in environments.items() if key in pairs}


def find(key: str, value: str) -> tuple[Process, ...]:
    """Find this user's running processes, except this one, with `key`=`value` in their environment."""
    return tuple(process for process, pairs in marked(key).items() if pairs[key] == value)


def stop(process: Process, timeout: float) -> None:
    """Ask `process` to end (SIGTERM) and end it after `timeout` seconds (SIGKILL); gone is fine.

    Raises ProcessError if it isn't ours to end, or doesn't end.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError as error:
        raise ProcessError(f"process {process.pid} can't be watched: {refusal(error)}") from error
    try:
        if not is_alive(process):
            return
        for number, seconds in ((signal.SIGTERM, timeout), (signal.SIGKILL, _KILL_TIMEOUT)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            if _ended(descriptor, seconds) or not is_alive(process):
                return
    except PermissionError as error:
        raise ProcessError(f"process {process.pid} belongs to another user and can't be stopped") from error
    finally:
        os.close(descriptor)
    raise ProcessError(f"process {process.pid} doesn't end, even after SIGKILL: look at /proc/{process.pid}/stack")


def last_output(log: Path, lines: int = 3, without: str = "$^") -> str:
    """Read the end of a log, for an error message: its last lines in one, without control characters.

    Lines in which the pattern `without` is found are left out.
    """
    try:
        with opened(log, follow=False) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""
    retained = [line for line in text.strip().splitlines() if not re.search(without, line)]
    return " | ".join(re.sub(r"[\x00-\x1f\x7f]+", " ", line).strip() for line in retained[-lines:])


def _stat(pid: int) -> Activity | None:
    return _parse(_reported(pid, "stat").decode(errors="replace"))


def _parse(line: str) -> Activity | None:
    """Read a line of /proc/<pid>/stat; the name in brackets may hold anything."""
    head, bracket, tail = line.rpartition(")")
    fields = tail.split()
    pid = head.partition(" ")[0]
    if not bracket or not pid.isdigit() or len(fields) <= _STARTED:
        return None
    ticks = int(fields[_USER]) + int(fields[_SYSTEM])
    return Activity(Process(int(pid), f"{_boot()}.{fields[_STARTED]}"), fields[0], ticks)


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _environment(raw: bytes) -> Mapping[str, str]:
    pairs = raw.decode(errors="surrogateescape").split("\0")
    return {key: value for key, mark, value in (pair.partition("=") for pair in pairs) if mark}


def _reported(pid: int, name: str) -> bytes:
    """Read a file of a process under /proc: empty if it is gone or isn't this user's. Raises ProcessError."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError as error:
        _require_reported(pid, error)
        return b""


def _require_reported(pid: int, error: OSError) -> None:
    """Raise ProcessError for an error that says nothing of the process."""
    refuse_scarcity(error, f"process {pid} can't be looked at", ProcessError)


def _ended(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
