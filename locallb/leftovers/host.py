"""What a lost state left on this host: claims, proxies' directories and processes that no state knows any more.

Lists what is this stack's, and shows besides what belongs to projects whose directory is gone. Removes only what is
this stack's, never another project's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from locallb.ledger.ledger import UNKNOWN, Ledger
from locallb.model.identities import Home, IPAddress, Owner, ProxyId
from locallb.planning.containers import PROXY_LABEL, labelled_owner
from locallb.runtimes import processes
from locallb.runtimes.docker import Containers, DockerAbsentError
from locallb.runtimes.processes import Process
from locallb.runtimes.stopping import stop_all, stop_process
from locallb.storage import paths
from locallb.storage.proxy_directories import PROXY_MARK, Proxies, marked_owner


class Sort(StrEnum):
    """What it is that was left."""

    ADDRESS = "address"
    PROXY = "proxy"
    """A directory, and what runs in it."""
    PROCESS = "process"
    """A process whose directory is gone."""
    CONTAINER = "container"


_TURNS = (Sort.CONTAINER, Sort.PROCESS, Sort.PROXY, Sort.ADDRESS)
"""What is removed first: addresses when nobody serves any more."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that no state knows. `ours` tells whether it may be removed from here."""

    sort: Sort
    what: str
    """The address, the proxy's id, the pid, or the container's name."""
    owner: Owner | None
    ours: bool
    place: Path
    address: IPAddress | None = None
    process: Process | None = None
    container: str = ""
    """The container's id."""

    def __str__(self) -> str:
        return f"{self.sort} {self.what} of {self.owner or 'somebody unknown'}"


def leftovers(home: Home, known_proxies: Collection[str], known_addresses: Collection[str]) -> tuple[Leftover, ...]:
    """List what is left, addresses first. `known_…` are those in the state of stack `home`."""
    found = on_this_host(home, known_proxies, known_addresses)
    containers = (*_containers(home, known_proxies),)
    return (*(one for one in found if one.process is None), *containers, *(one for one in found if one.process))


def on_this_host(home: Home, known_proxies: Collection[str], known_addresses: Collection[str]) -> tuple[Leftover, ...]:
    """List the same without asking Docker."""
    return (*_addresses(home, known_addresses), *_proxies(home, known_proxies), *_processes(home, known_proxies))


def remove(found: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Remove those that are ours; gives what was removed. Raises ClientError."""
    removed = tuple(each for each in found if each.ours)
    for each in sorted(removed, key=lambda leftover: _TURNS.index(leftover.sort)):
        _remove(each)
    return removed


def _remove(leftover: Leftover) -> None:
    if leftover.container:
        Containers().remove(leftover.container, volumes=True)
    elif leftover.address is not None and leftover.owner is not None:
        Ledger(leftover.place).release(leftover.address, leftover.owner)
    elif leftover.process is not None:
        stop_process(leftover.place, leftover.process)
        _forget_directory(leftover)
    else:
        stop_all(leftover.place)
        Proxies(leftover.place.parent).remove(ProxyId(leftover.what))


def _forget_directory(leftover: Leftover) -> None:
    """Remove the directory of a process that ran under another state home."""
    proxies = Proxies(leftover.place.parent)
    directory = proxies.find(ProxyId(leftover.place.name))
    if directory is not None and directory.owner is not None and directory.owner == leftover.owner:
        proxies.remove(directory.id)


def _addresses(home: Home, known: Collection[str]) -> Iterator[Leftover]:
    directory = paths.ledger_directory()
    for claim in Ledger(directory).claims():
        address, owner = str(claim.address), None if claim.owner == UNKNOWN else claim.owner
        if address not in known and _shown(owner, home):
            yield Leftover(Sort.ADDRESS, address, owner, _ours(owner, home), directory, address=claim.address)


def _proxies(home: Home, known: Collection[str]) -> Iterator[Leftover]:
    for directory in Proxies(paths.proxies_root()).list():
        if directory.id not in known and _shown(directory.owner, home):
            yield Leftover(Sort.PROXY, directory.id, directory.owner, _ours(directory.owner, home), directory.path)


def _processes(home: Home, known: Collection[str]) -> Iterator[Leftover]:
    """Find processes without a directory, and this stack's that run under another state home than its own."""
    root = paths.proxies_root()
    for process, mark in processes.marked(PROXY_MARK).items():
        directory, owner = Path(mark[PROXY_MARK]), marked_owner(mark)
        lost = directory.name not in known and not _exists(directory)
        elsewhere = _ours(owner, home) and paths.is_another_directory(str(directory.parent), str(root))
        if (lost or elsewhere) and _shown(owner, home):
            yield Leftover(Sort.PROCESS, str(process.pid), owner, _ours(owner, home), directory, process=process)


def _containers(home: Home, known: Collection[str]) -> Iterator[Leftover]:
    """Find containers by their labels; none where Docker doesn't answer."""
    try:
        listed = Containers().labelled(PROXY_LABEL)
    except DockerAbsentError:
        return
    for one in listed:
        labels, name = one["Labels"], str(one["Names"][0]).lstrip("/")
        owner, directory = labelled_owner(labels), paths.proxies_root() / labels[PROXY_LABEL]
        if labels[PROXY_LABEL] not in known and _shown(owner, home):
            identity = str(one["Id"])
            yield Leftover(Sort.CONTAINER, name, owner, _ours(owner, home), directory, container=identity)


def _ours(owner: Owner | None, home: Home) -> bool:
    """Return whether this very stack made it: another project may have the same names, and be away for a while only."""
    return owner is not None and owner.home == home


def _shown(owner: Owner | None, home: Home) -> bool:
    """Check whether a thing is lost: this stack's, nobody's, or of a project that is gone. Others' is at work."""
    return owner is None or _ours(owner, home) or not _exists(Path(owner.home.root))


def _exists(directory: Path) -> bool:
    """Check whether something is there; what may not be looked at exists."""
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
