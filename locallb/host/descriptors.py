"""Open sockets and inotify instances of this host's processes, read from /proc in one pass.

Processes come and go meanwhile, and those of other users hide what they hold: both count as nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from locallb.model.errors import ClientError
from locallb.model.system_errors import refuse_scarcity, reported
from locallb.storage.proxy_directories import PROXY_MARK

_INSPECT_INTERVAL = "what processes of this host hold can't be told"
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
    """Look through all processes for the sockets with these inodes, and for what our own processes hold.

    Raises DescriptorsError where the host can't tell just now: what our own hold would be another's.
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
        raise DescriptorsError(f"{_INSPECT_INTERVAL}: {reported(error)}") from error
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
        refuse_scarcity(error, _INSPECT_INTERVAL, DescriptorsError)


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
