"""The ledger: which address of this host belongs to whom, for every stack and user at once.

A directory with one file a claim, `<address>~<digest of the owner>.json`, which holds the owner's full identity. What
is written in a file counts; its name only finds it. Files are written beside and linked into place, so that a claim is
whole or absent wherever a writer stops; writers exclude each other by a lock on the directory itself, which the kernel
drops with its holder and which leaves no file. What can't be understood is a claim of somebody unknown: reported,
never removed, never taken over. Not here: which address to choose.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Lock

from locallb.clients import ClientError, files, places
from locallb.planning.model import Claim, ClusterName, Home, IPAddress, Owner, ServiceKey
from locallb.planning.naming import owner_fields, owner_from

UNKNOWN = Owner(Home("", "", ""), ServiceKey(ClusterName(""), "", ""))
"""Who holds an address when its file can't be understood."""
PATIENCE = 10.0
"""Seconds to wait for another writer; each holds the ledger for a few milliseconds."""
_NAME = re.compile(r"(?P<address>[0-9a-fA-F.:]+)~[0-9a-f]{16}\.json")
_TURN = Lock()
"""Threads of this process take turns, however long that takes; patience is for other processes."""
_OTHERS = 0o055
_OPEN = 0o644


class LedgerError(ClientError):
    """An address can't be claimed, or the ledger can't be used: one sentence."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the ledger; `problem` says why its owner is UNKNOWN."""

    path: Path
    claim: Claim
    problem: str = ""


class Ledger:
    """The claims in `directory`. Every method may be called by several processes and threads at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def claims(self) -> tuple[Claim, ...]:
        """Read every claim, sorted; those of owners whose project is gone and of UNKNOWN are among them."""
        if not self.directory.is_dir():
            return ()
        with self._locked(fcntl.LOCK_SH):
            return tuple(sorted((entry.claim for entry in self._entries()), key=_order))

    def problems(self) -> tuple[str, ...]:
        """Tell what in the directory isn't a claim that we understand: one sentence each."""
        if not self.directory.is_dir():
            return ()
        with self._locked(fcntl.LOCK_SH):
            strangers = [path for path in self._paths() if _address(path) is None and not _unfinished(path)]
            foreign = [f"{path} isn't a claim: move it elsewhere" for path in strangers]
            return tuple(sorted([entry.problem for entry in self._entries() if entry.problem] + foreign))

    def claim(self, address: IPAddress, owner: Owner) -> None:
        """Claim `address`; claiming again is fine. Raises LedgerError, naming the holder, if another has it."""
        with self._locked():
            held = self._held(address)
            for entry in held:
                _refuse_other(entry, owner)
            if not held:
                self._publish(address, owner)

    def release(self, address: IPAddress, owner: Owner) -> None:
        """Give `address` up; another's claim and an absent one are left as they are. Raises LedgerError."""
        if not self.directory.is_dir():
            return
        with self._locked():
            for entry in self._held(address):
                if entry.claim.owner == owner:
                    _remove(entry.path)

    def reown(self, address: IPAddress, old: Owner, new: Owner) -> None:
        """Hand `address` from `old` to `new` in one step; claim it if nobody has it.

        Raises LedgerError if a third one holds it, or if the project of `old` still exists elsewhere: then this is a
        copy of that project, and the address stays with the original.
        """
        with self._locked():
            held = self._held(address)
            for entry in held:
                if entry.claim.owner == new:
                    continue
                if entry.claim.owner != old:
                    _refuse_other(entry, new)
                refuse_copy(f"address {address}", old, new)
                self._rewrite(entry.path, new)
            if not held:
                self._publish(address, new)

    def _rewrite(self, path: Path, owner: Owner) -> None:
        """Change the owner in place, then the name: a stop between the two leaves a claim of `owner`."""
        address = _address(path)
        try:
            files.write(path, _text(address, owner), mode=self._mode(), durable=True)
            path.rename(self._path(address, owner))
        except (OSError, files.FilesError) as error:
            raise LedgerError(f"the claim of {address} can't be handed over: {error}") from error

    def _publish(self, address: IPAddress, owner: Owner) -> None:
        """Write the claim beside and link it into place."""
        path = self._path(address, owner)
        try:
            beside = files.write_beside(path, _text(address, owner), mode=self._mode(), durable=True)
            try:
                os.link(beside, path)
            finally:
                beside.unlink(missing_ok=True)
        except (OSError, files.FilesError) as error:
            raise LedgerError(f"{address} can't be claimed in {self.directory}: {error}") from error

    def _held(self, address: IPAddress) -> list[_Entry]:
        return [_entry(path, address) for path in self._paths() if _address(path) == address]

    def _entries(self) -> list[_Entry]:
        return [_entry(path, address) for path in self._paths() if (address := _address(path)) is not None]

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LedgerError(f"the ledger {self.directory} can't be read: {error.strerror}") from error

    def _path(self, address: IPAddress | None, owner: Owner) -> Path:
        digest = hashlib.sha256(json.dumps(owner_fields(owner), sort_keys=True).encode()).hexdigest()[:16]
        return self.directory / f"{address}~{digest}.json"

    def _mode(self) -> int:
        """Readable by all where the directory is, so that other users see that an address is taken."""
        return _OPEN if self.directory.stat().st_mode & _OTHERS else files.PRIVATE

    @contextmanager
    def _locked(self, how: int = fcntl.LOCK_EX) -> Iterator[None]:
        """Hold the ledger, alone to write; a writer clears what one that was stopped left half done."""
        try:
            descriptor = os.open(places.private_directory(self.directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, places.PlaceError) as error:
            raise LedgerError(f"the ledger {self.directory} can't be used: {error}") from error
        try:
            with _TURN:
                self._lock(descriptor, how)
                if how == fcntl.LOCK_EX:
                    self._sweep()
                yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, how: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"the ledger {self.directory} has been locked by another process for {PATIENCE:g} s:"
                        " end that process and run again"
                    ) from None
                time.sleep(0.002)
            else:
                return

    def _sweep(self) -> None:
        for path in self._paths():
            if _unfinished(path):
                with suppress(OSError):  # another user's, in a shared ledger: theirs to clear
                    path.unlink(missing_ok=True)


def refuse_copy(what: str, old: Owner, new: Owner) -> None:
    """Raise LedgerError if `old` lives in another directory that still exists: `new` is then a copy of that project."""
    if old.home.root != new.home.root and places.is_another_directory(old.home.root, new.home.root):
        raise LedgerError(
            f"{what} belongs to {old}, which still exists, so the project at {new.home.root} looks like a copy: destroy"
            " the stack there or remove that directory, or give this stack another name and a state of its own"
        )


def _refuse_other(entry: _Entry, owner: Owner) -> None:
    if entry.problem:
        raise LedgerError(f"{entry.claim.address} can't be claimed: {entry.problem}")
    if entry.claim.owner != owner:
        elsewhere = entry.claim.owner.home != owner.home
        remedy = "or destroy that stack" if elsewhere else "or run `locallb gc` if a lost state left it"
        raise LedgerError(
            f"{entry.claim.address} belongs to {entry.claim.owner}: choose another address for {owner.service},"
            f" {remedy} (its claim is {entry.path})"
        )


def _entry(path: Path, address: IPAddress) -> _Entry:
    """Read a claim; whatever is wrong with it makes the owner UNKNOWN."""
    try:
        document = json.loads(files.read(path) or "")
        fields = document["owner"]
        if ip_address(document["address"]) == address and all(isinstance(value, str) for value in fields.values()):
            return _Entry(path, Claim(address, owner_from(fields)))
        why = "its content isn't a claim of this address"
    except files.FilesError as error:
        why = str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        why = "it is damaged"
    problem = f"{path} holds it, but {why}: remove the file if nobody uses {address}"
    return _Entry(path, Claim(address, UNKNOWN), problem)


def _text(address: IPAddress | None, owner: Owner) -> str:
    return json.dumps({"address": str(address), "owner": dict(owner_fields(owner))}, indent=1) + "\n"


def _address(path: Path) -> IPAddress | None:
    if match := _NAME.fullmatch(path.name):
        with suppress(ValueError):
            return ip_address(match["address"])
    return None


def _unfinished(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(files.UNFINISHED)


def _order(claim: Claim) -> tuple[int, int, Owner]:
    return claim.address.version, int(claim.address), claim.owner


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(f"the claim {path} can't be removed: {error.strerror}") from error
