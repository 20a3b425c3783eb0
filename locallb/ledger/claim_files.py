"""The files in a ledger's directory, read while others write, and the advisory lock by which writers take turns.

Any user with read access to the directory can take the lock, and keep it. It only avoids collisions: claims are
exclusive without it. So waits for it are bounded, and there is no second wait for a process that once kept it for the
whole timeout.

Not here: the content of a claim, and conflicts (`claims`); writing claims (`ledger`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from msgspec import Struct

from locallb import safe_files
from locallb.ledger.claims import (
    UNKNOWN,
    AddressClaims,
    ClaimFile,
    LedgerError,
    address_in,
    claimed_in,
    entry_name,
    likely,
    read_entry,
    read_existing,
    refuse_unread,
    unfinished,
)
from locallb.model.errors import reason, refusal
from locallb.model.identities import IPAddress, Owner
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim
from locallb.storage import files, paths

TIMEOUT = 10.0
"""Seconds that a writer waits; each holds the lock for a few milliseconds."""
READER_TIMEOUT = 1.0
_PAUSE = 0.002
_keepers: dict[tuple[int, int, bool], frozenset[int]] = {}
"""Who kept the lock for the whole patience, by device, inode and whether to share it."""


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Lock what `descriptor` has open; False if others kept the lock. For one thread at a time."""
    status = os.fstat(descriptor)
    key = status.st_dev, status.st_ino, shared
    if safe_files.try_lock(descriptor, shared=shared):
        return True
    before = _keepers.pop(key, frozenset())
    if before and holders(descriptor) == before:
        _keepers[key] = before
        return False
    deadline = time.monotonic() + (READER_TIMEOUT if shared else TIMEOUT)
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        if safe_files.try_lock(descriptor, shared=shared):
            return True
    _keepers[key] = holders(descriptor)
    return False


def holders(descriptor: int) -> frozenset[int]:
    """Find the processes that hold a lock on what is open there; empty where the kernel doesn't tell."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        return frozenset(pid for pid, retained in safe_files.kernel_locks() if retained == place and pid > 0)
    return frozenset()


_CHECKS = 10
"""Times to read again what others rename meanwhile."""
TURN = Lock()
"""Threads of this process take turns, however long that takes; patience is for other processes."""
_MANY = 8
"""Claims of one address from which on it is worth the while to remember them: those of ports of 127.0.0.1."""
_READ: dict[tuple[Path, IPAddress], Memo[ClaimFile | None]] = {}
"""Cached claim files of these addresses, guarded by `TURN`."""
_OTHERS = 0o055
_OPEN = 0o644


class ClaimFiles(Struct, frozen=True):
    """The files in `path`, which needn't be there yet."""

    path: Path

    def are_present(self) -> bool:
        """Return whether the directory exists. Raises LedgerError if that is unknown, or it isn't a directory."""
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LedgerError(f"the ledger {self.path} can't be read: {refusal(error)}") from error
        if not stat.S_ISDIR(mode):
            correct = f"correct {paths.LEDGER_VARIABLE}, or " if paths.is_on_way_to_given_ledger(self.path) else ""
            raise LedgerError(f"the ledger {self.path} isn't a directory: {correct}move what stands there elsewhere")
        return True

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[list[str]]:
        """Lock the ledger, exclusively to write or `shared` to read, and yield the names in it.

        Without the lock if another process keeps it. A writer removes what a stopped writer left half done.
        """
        with self.opened() as descriptor, TURN:
            if not take(descriptor, shared=shared):
                yield self.all_names()
                return
            names = self.names()
            if not shared:
                self._sweep(names)
            yield names

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Make the directory if need be, and give its descriptor. Raises LedgerError."""
        try:
            descriptor = os.open(paths.private_directory(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, paths.PlaceError) as error:
            raise LedgerError(f"the ledger {self.path} can't be used: {reason(error)}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _sweep(self, names: Iterable[str]) -> None:
        for name in unfinished(names):
            with suppress(OSError):  # another user's, in a shared ledger: theirs to clear
                (self.path / name).unlink(missing_ok=True)

    def held(self, address: IPAddress, names: Iterable[str]) -> list[ClaimFile]:
        """Read those claims of one address that are there."""
        return [entry for entry in self.read_held(address, names) if entry]

    def read_held(self, address: IPAddress, names: Iterable[str]) -> list[ClaimFile | None]:
        """Read the claims of one address: looking at names costs little, opening a thousand files doesn't."""
        named = [name for name in sorted(likely(names, address)) if address_in(name) == address]
        if len(named) < _MANY:
            return [read_entry(self.path / name, address) for name in named]
        memory = _READ.setdefault((self.path, address), Memo())
        entries = [read_existing(f"{self.path}/{name}", address, memory) for name in named]
        memory.evict_unused()
        return entries

    def held_by(self, owner: Owner, address: IPAddress, names: Iterable[str]) -> Sequence[ClaimFile]:
        """Read one owner's claims of an address; unreadable claims of others don't hide the one under its name.

        Raises LedgerError if its own can't be read, or if nothing is found next to an unreadable one that may be its
        own: a stop during a handover leaves a claim under the earlier owner's name.
        """
        named = read_entry(self.path / entry_name(address, owner), address)
        if named and named.claim.unread:
            raise LedgerError(named.problem)
        try:
            inspect = self.inspect(address, names)
        except LedgerError:
            if not (named and named.claim.owner == owner):
                raise
            return [named]
        if not (found := inspect.of(owner)):
            refuse_unread(inspect.entries)
        return found

    def inspect(self, address: IPAddress, names: Iterable[str]) -> AddressClaims:
        """Read those claims of one address that are there, for many who want some of it."""
        return AddressClaims(self.held(address, names))

    def entries(self, names: Iterable[str], memory: Memo[ClaimFile | None] | None = None) -> list[ClaimFile | None]:
        """Read every claim; None stands for one that is gone."""
        claimed = [(name, address) for name in sorted(names) if (address := address_in(name)) is not None]
        if memory is None:
            return [read_entry(self.path / name, address) for name, address in claimed]
        place = str(self.path)
        return [read_existing(f"{place}/{name}", address, memory) for name, address in claimed]

    def settled(self, names: list[str], read: Callable[[list[str]], list[ClaimFile | None]]) -> list[ClaimFile]:
        """Read entries; again where one was renamed meanwhile by a writer without the lock."""
        entries = read(names)
        for _ in range(_CHECKS):
            if None not in entries:
                break
            entries = read(self.all_names())
        return [entry for entry in entries if entry]

    def under_way(self, names: Iterable[str]) -> Iterator[Claim]:
        """Find the addresses that another user is about to claim: they are not free."""
        for name in unfinished(names):
            rival = claimed_in(self.path / name)
            if rival and rival.uid != os.geteuid():
                yield Claim(rival.address, UNKNOWN, problem=rival.problem, unread=bool(rival.problem))

    def names(self) -> list[str]:
        """List what is there; nothing where there is no directory. Raises LedgerError."""
        try:
            return os.listdir(self.path)  # noqa: PTH208 - a thousand paths cost ten times as much
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LedgerError(f"the ledger {self.path} can't be read: {refusal(error)}") from error

    def all_names(self) -> list[str]:
        """List what is there although it is being renamed: what one look misses has its name at the next one."""
        return list({*self.names(), *self.names()})

    def mode(self) -> int:
        """Readable by all where the directory is, so that other users see that an address is taken."""
        return _OPEN if self.path.stat().st_mode & _OTHERS else files.PRIVATE
