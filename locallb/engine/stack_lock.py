"""The stack's lock, in the official command line's files: held during one update, never while idle.

Each holder has a file of its own in the stack's lock folder; whoever finds another's gives way. Two updates of this
engine are told apart by an operating system lock first, so that one of them wins. A lock of this host whose process is
gone is removed with a notice, and one that this engine left under this very kernel, in a container for instance, whose
host's name and process ids are its own. Another host's never is.
"""

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from locallb import safe_files
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import LockHeld
from locallb.engine.state.files import Files
from locallb.engine.state.resource import compact

_held: set[Path] = set()  # this process's own locks: the process's liveness doesn't tell about them
_LARGEST = 1 << 16
"""Bytes of a lock file."""
_UNKNOWN = (ValueError, KeyError, TypeError, RecursionError, OverflowError)
_KERNEL = Path("/proc/sys/kernel/random/boot_id")
_CLOCK_SLACK = 2.0  # seconds that a process may seem to have started after its own lock


class LockHolder(Struct, frozen=True):
    """Who made a lock file."""

    path: Path
    pid: int
    username: str
    hostname: str
    timestamp: str
    kernel: str = ""
    """Under which the holder took the operating system's lock; empty for the official command line, which has none."""

    def is_removed(self, *, guarded: bool = False) -> bool:
        """Return whether the holder has ended, as far as that can be told; `safe_files`: we have the system's lock."""
        if guarded and self.kernel and self.kernel == _kernel():
            return True
        if self.hostname != socket.gethostname():
            return False
        if self.pid == os.getpid():
            return self.path not in _held
        started = _start_of(self.pid)
        if started is None:
            return True
        # Both times are the wall clock's, which may have jumped: what looks like an engine at work isn't called gone.
        return started > _seconds(self.timestamp) + _CLOCK_SLACK and not _may_hold_locks(self.pid)


def _kernel() -> str:
    """Return the name of this start of the kernel: the same in every container of a machine."""
    with suppress(OSError):
        return _KERNEL.read_text(encoding="ascii").strip()
    return ""


def _start_of(pid: int) -> float | None:
    """Return the time at which a process started, None when there is none (or only its remains).

    Of one that can't be looked at it is long ago: it isn't called gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if line[:5] == "btime")
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, StopIteration):
        return 0.0
    return None if fields[0] in "ZX" else float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _may_hold_locks(pid: int) -> bool:
    """Return whether a process is the official command line or this one, by its command."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(word.rpartition(b"/")[2] in {b"pulumi", b"locallb"} for word in command.split(b"\0"))


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return float("inf")  # unreadable: never call its process another one


def read_holders(folder: Path) -> Iterator[LockHolder]:
    """Read the lock files of a stack.

    Raises OSError where the folder can't be read, in which `glob` finds none: whoever has one wouldn't be heard of.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - one that is empty is told from one that can't be read
    except FileNotFoundError:
        return
    for path in (folder / name for name in sorted(names) if name.endswith(".json")):
        if holder := _read_holder(path):
            yield holder


def _read_holder(path: Path) -> LockHolder | None:
    """Read a lock file; None where it was removed meanwhile. What can't be understood locks all the same."""
    try:
        data = safe_files.read_if_present(path, _LARGEST)
        if data is None:
            return None
        raw = json.loads(data)
        username, hostname, kernel = str(raw["username"]), str(raw["hostname"]), str(raw.get("kernel", ""))
        return LockHolder(path, int(raw["pid"]), username, hostname, str(raw["timestamp"]), kernel)
    except (*_UNKNOWN, IsADirectoryError, PermissionError, safe_files.UnfitError):
        return LockHolder(path, 0, "someone", "an unknown host", "an unknown time")


@contextmanager
def locked(folder: Path, guard: Path, files: Files, notice: Callable[[str], None]) -> Iterator[None]:
    """Hold the stack's lock; `guard` is the file of the operating system's lock.

    A sudden stop (no Exception) leaves the official command line's file, as a kill does: what is unfinished stands in
    the journal, which that one doesn't read. The next run of this engine removes the file. Raises LockHeld when
    somebody else has it.
    """
    with _guarded(guard, folder, files):
        own = folder / f"{uuid4()}.json"
        _give_way(folder, files, notice)
        _held.add(own)
        try:
            files.create(own, _describe(), guard.with_suffix(".new"))
            _give_way(folder, files, notice, own)
            yield
        except Exception:
            files.remove(own)
            raise
        else:
            files.remove(own)
        finally:
            _held.discard(own)


@contextmanager
def waiting(path: Path, files: Files) -> Iterator[None]:
    """Show that this process waits for the stack's lock, by a lock of the operating system that several may share."""
    descriptor = files.open_new(path)
    try:
        safe_files.wait_for_lock(descriptor, shared=True)
        yield
    finally:
        os.close(descriptor)


def is_waited_for(path: Path) -> bool:
    """Return whether a process waits for the stack's lock."""
    with suppress(OSError):
        descriptor = safe_files.open_lock(path, make=False)
        try:
            return not safe_files.try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False


def _describe() -> str:
    names = {"username": _username(), "hostname": socket.gethostname()}
    return compact({"pid": os.getpid(), **names, "timestamp": timestamp(), "kernel": _kernel()})


def _username() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _give_way(
    folder: Path, files: Files, notice: Callable[[str], None], own: Path | None = None, *, guarded: bool = True
) -> None:
    for holder in read_holders(folder):
        if holder.path == own:
            continue
        if not holder.is_removed(guarded=guarded):
            raise LockHeld(
                f"the stack is locked since {holder.timestamp} by {holder.username}@{holder.hostname} "
                f"(pid {holder.pid}); wait for it to end, or if it is gone delete {holder.path} or run `pulumi cancel`"
            )
        files.remove(holder.path)
        notice(f"removed the lock that the ended process {holder.pid} of this host left at {holder.timestamp}")


@contextmanager
def _guarded(guard: Path, folder: Path, files: Files) -> Iterator[None]:
    descriptor = files.open_new(guard)
    try:
        if not safe_files.try_lock(descriptor):
            _give_way(folder, files, lambda _text: None, guarded=False)
            raise LockHeld(f"another update of this stack is starting or ending ({guard}); run again")
        yield
    finally:
        os.close(descriptor)
