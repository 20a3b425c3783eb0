"""Remaining memory, threads, open files and disk for more proxies, within this process's cgroup.

Figures of one moment. What can't be read doesn't limit. Not here: inotify (`inotify`, `host`) and addresses.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from locallb.model.errors import ClientError

PLENTY = 1 << 50
NEEDED_FILES = 256
"""Open files that a run may need at once: workers, their connections, the event loops."""
_PLENTY_OF_FILES = 4096
_CGROUPS = Path("/sys/fs/cgroup")


class LimitError(ClientError):
    """A limit leaves too little to work at all: one sentence."""


def take_files() -> None:
    """Allow this process the open files that it may have at most. Raises LimitError if these are too few to work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < min(allowed, _PLENTY_OF_FILES):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, _PLENTY_OF_FILES), hard))
    if allowed < NEEDED_FILES:
        raise LimitError(
            f"a process may have {allowed} open files here, and local-lb needs {NEEDED_FILES}: raise the hard limit"
            f" (`ulimit -H -n 65536` as root, or `nofile` in /etc/security/limits.conf)"
        )


def free_memory() -> int:
    """Return the bytes that the kernel calls available, or what is left of the cgroup's limit."""
    available = [
        int(line.split()[1]) << 10 for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")
    ]
    return max(0, min([PLENTY, *available, *_cgroup_room("memory", "memory.max", "memory.current")]))


def free_tasks() -> int:
    """Return the processes and threads that may still be started; root's own limit doesn't hold root back."""
    remaining = [PLENTY, *_cgroup_room("pids", "pids.max", "pids.current")]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        remaining.append(soft - sum(_threads()))
    return max(0, min(remaining))


def files_each() -> int:
    """Return the open files that a proxy may have: the hard limit, which it is started with."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return PLENTY if hard == resource.RLIM_INFINITY else hard


def free_disk(path: Path) -> int:
    """Return the bytes free where `path` is, or would be made."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return PLENTY


def _cgroup_room(controller: str, limit: str, used: str) -> Iterator[int]:
    """Return what is left in this process's cgroup, version 2."""
    for line in _lines(Path("/proc/self/cgroup")):
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not names:
            for folder in (_CGROUPS / path.lstrip("/"), _CGROUPS):
                with suppress(OSError, ValueError):
                    yield int((folder / limit).read_text()) - int((folder / used).read_text())
        elif controller in names.split(","):
            folder = _CGROUPS / controller
            limit_one = "memory.limit_in_bytes" if controller == "memory" else limit
            used_one = "memory.usage_in_bytes" if controller == "memory" else used
            with suppress(OSError, ValueError):
                yield int((folder / limit_one).read_text()) - int((folder / used_one).read_text())


def _threads() -> Iterator[int]:
    """Count the threads of each of this user's processes."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == os.geteuid():
                yield len(list((entry / "task").iterdir()))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
