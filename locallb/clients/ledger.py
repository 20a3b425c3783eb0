"""The ledger: which address of this host belongs to whom, for every stack and user at once.

A directory with one file a claim (`claims`), which holds the owner's full identity. Files are written beside and linked
into place, so that a claim is whole or absent wherever a writer stops; writers exclude each other by a lock on the
directory itself, which the kernel drops with its holder and which leaves no file. What can't be understood is a claim
of somebody unknown: reported, never removed, never taken over. Not here: which address to choose.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from locallb.clients import ClientError, files, places
from locallb.clients.claims import (
    TERM,
    UNKNOWN,
    ClaimMemory,
    Entry,
    address_in,
    entry_name,
    entry_text,
    is_ours,
    is_unfinished,
    read_entry,
)
from locallb.clients.fence import FENCE, Fence, NotLeaderError
from locallb.planning.model import Home, IPAddress, Owner
from locallb.planning.naming import digest
from locallb.planning.snapshot import Claim

__all__ = ["UNKNOWN", "ClaimMemory", "Ledger", "LedgerError", "refuse_copy"]

PATIENCE = 10.0
"""Seconds to wait for another writer; each holds the ledger for a few milliseconds."""
_TURN = Lock()
"""Threads of this process take turns, however long that takes; patience is for other processes."""
_OTHERS = 0o055
_OPEN = 0o644


class LedgerError(ClientError):
    """An address can't be claimed, or the ledger can't be used: one sentence."""


class Ledger:
    """The claims in `directory`. Every method may be called by several processes and threads at once."""

    def __init__(self, directory: Path, fence: Fence = FENCE) -> None:
        self.directory = directory
        self._election = fence

    def term(self, home: Home) -> int:
        """Tell the last term in which a leader of this stack wrote here; -1 if there was none."""
        try:
            return int(files.read(self._term_file(home)) or -1)
        except (ValueError, files.FilesError):
            return -1

    def claims(self, memory: ClaimMemory | None = None) -> tuple[Claim, ...]:
        """Read every claim, sorted; those of owners whose project is gone and of UNKNOWN are among them.

        `memory` of earlier reads saves work.
        """
        if not self.directory.is_dir():
            return ()
        with self._locked(fcntl.LOCK_SH) as names:
            return tuple(sorted((entry.claim for entry in self._entries(names, memory)), key=_order))

    def holds(self, address: IPAddress, owner: Owner) -> bool:
        """Tell whether `address` is `owner`'s, by the one file that says so or, where a stop left it, another one."""
        if not self.directory.is_dir():
            return False
        if read_entry(self.directory / entry_name(address, owner), address).claim.owner == owner:
            return True
        with self._locked(fcntl.LOCK_SH) as names:
            return any(entry.claim.owner == owner for entry in self._held(address, names))

    def problems(self) -> tuple[str, ...]:
        """Tell what in the directory isn't a claim that we understand: one sentence each."""
        if not self.directory.is_dir():
            return ()
        with self._locked(fcntl.LOCK_SH) as names:
            strangers = [name for name in names if not (address_in(name) or is_ours(name))]
            foreign = [f"{self.directory / name} isn't a claim: move it elsewhere" for name in strangers]
            return tuple(sorted([entry.problem for entry in self._entries(names) if entry.problem] + foreign))

    def claim(self, address: IPAddress, owner: Owner, sharing: str = "") -> None:
        """Claim `address`; claiming again is fine. Raises LedgerError, naming the holder, if another has it.

        With `sharing` others of the same stack who share it, too, are no hindrance: which of them fit together is
        decided in the plan.
        """
        with self._locked() as names:
            self._fence(owner.home)
            self._take(self._held(address, names), address, owner, sharing)

    def _take(self, held: list[Entry], address: IPAddress, owner: Owner, sharing: str) -> None:
        mine = [entry for entry in held if entry.claim.owner == owner]
        for entry in held:
            if entry.problem or not (mine or _is_shared(entry, owner, sharing)):
                _refuse_other(entry, owner)
        if not mine:
            self._publish(address, owner, sharing)
        elif mine[0].sharing != sharing:
            self._rewrite(mine[0].path, owner, sharing)

    def release(self, address: IPAddress, owner: Owner) -> None:
        """Give `address` up; another's claim and an absent one are left as they are. Raises LedgerError."""
        if not self.directory.is_dir():
            return
        with self._locked() as names:
            self._fence(owner.home)
            for entry in self._held(address, names):
                if entry.claim.owner == owner:
                    _remove(entry.path)

    def reown(self, address: IPAddress, old: Owner, new: Owner, sharing: str = "") -> None:
        """Hand `address` from `old` to `new` in one step; claim it if neither has it.

        Raises LedgerError if a third one holds it alone, or if the project of `old` still exists elsewhere: then this
        is a copy of that project, and the address stays with the original.
        """
        with self._locked() as names:
            self._fence(new.home)
            held = self._held(address, names)
            olds = [entry for entry in held if entry.claim.owner == old != new]
            for entry in olds:
                refuse_copy(f"address {address}", old, new)
                self._rewrite(entry.path, new, sharing)
            self._take(self._held(address, self._names()) if olds else held, address, new, sharing)

    def _rewrite(self, path: Path, owner: Owner, sharing: str) -> None:
        """Change the owner in place, then the name: a stop between the two leaves a claim of `owner`."""
        address = address_in(path.name)
        try:
            files.write(path, entry_text(address, owner, sharing), mode=self._mode(), durable=True)
            path.rename(self.directory / entry_name(address, owner))
        except (OSError, files.FilesError) as error:
            raise LedgerError(f"the claim of {address} can't be handed over: {error}") from error

    def _publish(self, address: IPAddress, owner: Owner, sharing: str) -> None:
        """Write the claim beside and link it into place."""
        path = self.directory / entry_name(address, owner)
        try:
            beside = files.write_beside(path, entry_text(address, owner, sharing), mode=self._mode(), durable=True)
            try:
                os.link(beside, path)
            finally:
                beside.unlink(missing_ok=True)
        except (OSError, files.FilesError) as error:
            raise LedgerError(f"{address} can't be claimed in {self.directory}: {error}") from error

    def _held(self, address: IPAddress, names: Iterable[str]) -> list[Entry]:
        """Read the claims of one address: looking at names costs little, opening a thousand files doesn't."""
        start = f"{address}~"  # as IPv4 is written always, and IPv6 by us
        likely = sorted(name for name in names if name.startswith(start) or ":" in name)
        return [read_entry(self.directory / name, address) for name in likely if address_in(name) == address]

    def _entries(self, names: Iterable[str], memory: ClaimMemory | None = None) -> list[Entry]:
        read = memory.read if memory else read_entry
        found = ((name, address_in(name)) for name in sorted(names))
        return [read(self.directory / name, address) for name, address in found if address is not None]

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.directory)  # noqa: PTH208 - a thousand paths cost ten times as much
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LedgerError(f"the ledger {self.directory} can't be read: {error.strerror}") from error

    def _fence(self, home: Home) -> None:
        """Stop whoever isn't the leader of its stack; a later term than any before is written down, under the lock."""
        term = self._election.term()
        if term is None or term == (last := self.term(home)):
            return
        if term < last:
            raise NotLeaderError(f"a later leader of {home} (term {last}) has written the ledger; term {term} is over")
        try:
            files.write(self._term_file(home), f"{term}\n", mode=self._mode(), durable=True)
        except files.FilesError as error:
            raise LedgerError(f"the term {term} can't be written into the ledger: {error}") from error

    def _term_file(self, home: Home) -> Path:
        return self.directory / f"{TERM}{digest([home.project, home.stack, home.root])[:16]}"

    def _mode(self) -> int:
        """Readable by all where the directory is, so that other users see that an address is taken."""
        return _OPEN if self.directory.stat().st_mode & _OTHERS else files.PRIVATE

    @contextmanager
    def _locked(self, how: int = fcntl.LOCK_EX) -> Iterator[list[str]]:
        """Hold the ledger, alone to write, and give the names in it.

        A writer clears what one that was stopped left half done.
        """
        try:
            descriptor = os.open(places.private_directory(self.directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, places.PlaceError) as error:
            raise LedgerError(f"the ledger {self.directory} can't be used: {error}") from error
        try:
            with _TURN:
                self._lock(descriptor, how)
                names = self._names()
                if how == fcntl.LOCK_EX:
                    self._sweep(names)
                yield names
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

    def _sweep(self, names: Iterable[str]) -> None:
        for name in names:
            if is_unfinished(name):
                with suppress(OSError):  # another user's, in a shared ledger: theirs to clear
                    (self.directory / name).unlink(missing_ok=True)


def refuse_copy(what: str, old: Owner, new: Owner) -> None:
    """Raise LedgerError if `old` lives in another directory that still exists: `new` is then a copy of that project."""
    if old.home.root != new.home.root and places.is_another_directory(old.home.root, new.home.root):
        raise LedgerError(
            f"{what} belongs to {old}, which still exists, so the project at {new.home.root} looks like a copy: destroy"
            " the stack there or remove that directory, or give this stack another name and a state of its own"
        )


def _is_shared(entry: Entry, owner: Owner, sharing: str) -> bool:
    """Tell whether the holder of `entry` and `owner` have agreed to share: both say so, and one plan makes both."""
    return bool(sharing and entry.sharing and entry.claim.owner.home == owner.home)


def _refuse_other(entry: Entry, owner: Owner) -> None:
    if entry.problem:
        raise LedgerError(f"{entry.claim.address} can't be claimed: {entry.problem}")
    if entry.claim.owner != owner:
        elsewhere = entry.claim.owner.home != owner.home
        remedy = "or destroy that stack" if elsewhere else "or run `locallb gc` if a lost state left it"
        raise LedgerError(
            f"{entry.claim.address} belongs to {entry.claim.owner}: choose another address for {owner.service},"
            f" {remedy} (its claim is {entry.path})"
        )


def _order(claim: Claim) -> tuple[int, int, Owner]:
    return claim.address.version, int(claim.address), claim.owner


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(f"the claim {path} can't be removed: {error.strerror}") from error
