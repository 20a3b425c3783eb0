"""The resources of this host that remain for more proxies, and the holders of sockets and inotify instances.

Figures are of one moment; memory and tasks are bounded by this process's cgroup as well. An unreadable limit doesn't
limit. Envoy takes one inotify instance for each file that it watches, and aborts without.

Not here: the limit of inotify instances itself (`facts`), and the number of proxies that follows (`doctor`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from msgspec import Struct, field

from locallb.model.errors import ClientError, refusal, refuse_scarcity, reported
from locallb.storage.proxy_directories import PROXY_MARK

_ONE_AT_A_TIME = Lock()
"""What is tried is missing elsewhere for as long."""
_NAMED = 3
"""Processes that a sentence names."""
_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


class InotifyError(ClientError):
    """There aren't enough inotify instances: one sentence."""


def require(wanted: int, what: str) -> None:
    """Make sure that `wanted` instances are free at this moment. Raises InotifyError, which says `what` needs them."""
    free = available(wanted)
    if free < wanted:
        limit = _LIMIT.read_text(encoding="ascii").strip()
        raise InotifyError(
            f"{what} needs {wanted} inotify instances, but this user has {free} left of {limit}{_held()}: end other"
            " programs that watch files, or raise the limit (as root: sysctl fs.inotify.max_user_instances=1024)"
        )


def _held() -> str:
    """Return which processes have the most, in brackets; empty where that can't be read."""
    maximum = ", ".join(largest_holders())
    return f" ({maximum})" if maximum else ""


def largest_holders() -> tuple[str, ...]:
    """Return how many instances the processes with the most have: `97 are of code (4711)`."""
    return tuple(f"{count} are of {name}" for count, name in inotify_holders()[:_NAMED])


def available(wanted: int) -> int:
    """Return how many of `wanted` instances could be had. Raises InotifyError where it isn't these that are wanting.

    They are opened and closed at once: the kernel has no other exact way to find the number.
    """
    library = ctypes.CDLL(None, use_errno=True)
    claimed: list[int] = []
    with _ONE_AT_A_TIME:
        try:
            while len(claimed) < wanted and (descriptor := library.inotify_init1(os.O_CLOEXEC)) >= 0:
                claimed.append(descriptor)
            if len(claimed) < wanted:  # by one error the kernel tells of the user's instances and of our descriptors
                os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            return len(claimed)
        except OSError as error:
            raise InotifyError(f"inotify instances can't be counted: {refusal(error)}") from error
        finally:
            for descriptor in claimed:
                os.close(descriptor)


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


_UNREADABLE = "can't determine what processes of this host hold"
_SOCKET = "socket:["
_INOTIFY = "anon_inode:inotify"
_MARK = f"{PROXY_MARK}=".encode()


class DescriptorsError(ClientError):
    """The open sockets of processes can't be read: one sentence."""


class SocketOwners(Struct):
    """What was found."""

    ours: set[str] = field(default_factory=set)
    """Inodes of the sockets of our own processes."""
    holders: dict[str, str] = field(default_factory=dict)
    """`name (pid)` by the inode of a socket asked for."""
    proxies: dict[str, str] = field(default_factory=dict)
    """By the inode of a socket asked for, the directory of the proxy that holds it."""
    inotify: int = 0
    """inotify instances of this user's processes that aren't ours; one that a fork shares counts for each."""


def socket_owners(inodes: Collection[str], our_pids: Collection[int]) -> SocketOwners:
    """Inspect all processes for the sockets with these inodes, and for the sockets of our own processes.

    /proc is read in one pass. Processes start and end meanwhile, and processes of other users hide their descriptors:
    both count as holding nothing. Raises DescriptorsError where the host can't provide this just now: a socket of our
    own would count as another's.
    """
    totals = SocketOwners()
    try:
        for pid in _pids():
            with _hidden_or_absent():
                links = list(_links(pid))
                if pid in our_pids:
                    totals.ours.update(_inodes(links))
                else:
                    _note(totals, pid, links, inodes)
    except OSError as error:
        raise DescriptorsError(f"{_UNREADABLE}: {reported(error)}") from error
    return totals


def inotify_holders() -> list[tuple[int, str]]:
    """Return how many inotify instances each of this user's processes has, as `name (pid)`, the most first."""
    found = list[tuple[int, str]]()
    with suppress(OSError, DescriptorsError):
        for pid in _pids():
            with _hidden_or_absent():
                if count := _inotify_instances(pid, list(_links(pid))):
                    found.append((count, f"{_name(pid)} ({pid})"))
    return sorted(found, key=lambda holder: -holder[0])


@contextmanager
def _hidden_or_absent() -> Iterator[None]:
    """Skip a process with unreadable descriptors. Raises DescriptorsError for errors that aren't about it."""
    try:
        yield
    except OSError as error:
        refuse_scarcity(error, _UNREADABLE, DescriptorsError)


def _note(totals: SocketOwners, pid: int, links: list[str], inodes: Collection[str]) -> None:
    """Note what a process that isn't ours holds."""
    totals.inotify += _inotify_instances(pid, links)
    held = [inode for inode in _inodes(links) if inode in inodes and inode not in totals.holders]
    if held:
        totals.holders.update(dict.fromkeys(held, f"{_name(pid)} ({pid})"))
        if directory := _proxy_of(pid):
            totals.proxies.update(dict.fromkeys(held, directory))


def _inotify_instances(pid: int, links: list[str]) -> int:
    """Count those of a process of this user; none of another user's."""
    instances = links.count(_INOTIFY)
    return instances if instances and Path(f"/proc/{pid}").stat().st_uid == os.geteuid() else 0


def _proxy_of(pid: int) -> str:
    """Return the directory of the proxy that a process runs; empty if it runs none."""
    with suppress(OSError):
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((pair[len(_MARK) :].decode(errors="replace") for pair in pairs if pair.startswith(_MARK)), "")
    return ""


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def _links(pid: int) -> Iterator[str]:
    """Return what each descriptor of a process leads to. Raises OSError where that is hidden or gone."""
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                yield os.readlink(entry.path)  # noqa: PTH115 - thousands of them, and a Path each costs more


def _inodes(links: list[str]) -> Iterator[str]:
    return (link[len(_SOCKET) : -1] for link in links if link.startswith(_SOCKET))


def _name(pid: int) -> str:
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        return "".join(char if char.isprintable() else "?" for char in name)
    return "a process"
