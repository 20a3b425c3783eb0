"""The ledger: the owner of each address of this host, for all stacks and users, and the last leader term of each stack.

A directory has a file per claim with the owner's full identity, written under a temporary name and linked into place:
it is whole or absent wherever a writer stops. Writers exclude each other by a lock on the directory, which the kernel
drops with its holder. If another process keeps the lock, a temporary file announces a claim; a writer that finds
another's announcement gives way. A file that can't be understood is an unknown owner's claim: reported, never removed.

A file for each stack has the last term in which a leader wrote, so that a former leader is refused. Not here: the
choice of an address (`planning.allocation`), the election (`kubernetes.api.election`), and whether this process leads
(`kubernetes.api.writes`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

from msgspec.structs import replace

from locallb.kubernetes.api.writes import FENCE, Fence, NotLeaderError
from locallb.ledger import claim_files
from locallb.ledger.claim_files import TURN, ClaimFiles
from locallb.ledger.claims import (
    LARGEST,
    TERM,
    UNKNOWN,
    AddressClaims,
    ClaimFile,
    ContendedError,
    LedgerError,
    address_in,
    entry_name,
    is_ours,
    is_within,
    read_entry,
    refuse_copy,
    refuse_others,
    refuse_unread,
)
from locallb.ledger.publishing import ClaimRequest, among, publish, remove, rounds
from locallb.model.errors import UNTOLD, reason
from locallb.model.identities import Home, IPAddress, Owner, SharingKey
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim, MappedPort
from locallb.model.texts import digest
from locallb.storage import files
from locallb.threads import Joined, jitter


def last_term(ledger: ClaimFiles, home: Home) -> int:
    """Return the last term in which a leader of this stack wrote here; -1 if there is none, or it is invalid.

    Raises LedgerError if the host can't read it: a former leader must not be taken for the current one.
    """
    try:
        return int(files.read_shared(_file(ledger, home), LARGEST) or -1)
    except files.FilesError as error:
        if error.is_of_host:
            raise LedgerError(f"who led this stack last can't be told: {error}") from error
        return -1
    except ValueError:
        return -1


def require_leader(ledger: ClaimFiles, home: Home, election: Fence) -> None:
    """Refuse a former leader of the stack; a later term than any before is written down, under the lock.

    Raises NotLeaderError, LedgerError.
    """
    term = election.term()
    if term is None or term == (last := last_term(ledger, home)):
        return
    if term < last:
        raise NotLeaderError(f"a later leader of {home} (term {last}) has written the ledger; term {term} is over")
    try:
        files.write(_file(ledger, home), f"{term}\n", mode=ledger.mode(), durable=True)
    except files.FilesError as error:
        raise LedgerError(f"the term {term} can't be written into the ledger: {error}") from error


def _file(ledger: ClaimFiles, home: Home) -> Path:
    """Name the file of a stack's term; if another user has put something there, a name with our user id.

    An inaccessible file counts as another user's as well, such as a mount point.
    """
    path = ledger.path / f"{TERM}{digest([home.project, home.stack, home.root])[:16]}"
    try:
        ours = path.lstat().st_uid in {0, os.geteuid()}
    except FileNotFoundError:
        ours = True
    except OSError as error:
        ours = error.errno in UNTOLD  # reading it tells why
    return path if ours else path.with_name(f"{path.name}~{os.geteuid()}")


__all__ = ["UNKNOWN", "Ledger", "LedgerError"]

TIMEOUT = 10.0
"""Seconds to give way to others who are about to claim the same address."""
_PAUSE = 0.01
_QUEUES: dict[tuple[Path, Fence], Joined[ClaimRequest, LedgerError | None]] = {}


class Ledger:
    """The claims in `directory`. Every method may be called by several processes and threads at once."""

    def __init__(self, directory: Path, fence: Fence = FENCE) -> None:
        self.directory = directory
        self._files = ClaimFiles(directory)
        self._election = fence

    def term(self, home: Home) -> int:
        """Return the last term in which a leader of this stack wrote here; -1 if there was none. Raises LedgerError."""
        return last_term(self._files, home)

    def claims(self, memory: Memo[ClaimFile | None] | None = None) -> tuple[Claim, ...]:
        """Read every claim, sorted, including ones of UNKNOWN and of owners with a removed project.

        `memory` of earlier reads saves work. Raises LedgerError if the ledger can't be read; a single claim that can't
        be is `unread`.
        """
        if not self._files.are_present():
            return ()
        with self._files.locked(shared=True) as names:
            entries = self._files.settled(names, lambda present: self._files.entries(present, memory))
            return tuple(
                sorted({entry.claim for entry in entries} | set(self._files.under_way(names)), key=attrgetter("order"))
            )

    def holds(self, address: IPAddress, owner: Owner, ports: tuple[MappedPort, ...] = ()) -> bool:
        """Return whether `owner` has `address`, or just `ports` of it, by its file or one left by a stopped run.

        Raises LedgerError if that is unknown, because one of the files can't be read.
        """
        if not self._files.are_present():
            return False
        wanted = Claim(address, owner, ports)
        entry = read_entry(self.directory / entry_name(address, owner), address)
        if entry and entry.claim == wanted:
            return True
        with self._files.locked(shared=True) as names:
            held = self._files.settled(names, lambda present: self._files.read_held(address, present))
        if any(entry.claim == wanted for entry in held):
            return True
        refuse_unread(held)
        return False

    def problems(self) -> tuple[str, ...]:
        """Return what in the directory isn't a claim that we understand: one sentence each."""
        if not self._files.are_present():
            return ()
        with self._files.locked(shared=True) as names:
            strangers = [name for name in names if not (address_in(name) or is_ours(name))]
            foreign = [f"{self.directory / _printable(name)} isn't a claim: move it elsewhere" for name in strangers]
            entries = self._files.settled(names, self._files.entries)
            return tuple(sorted([entry.problem for entry in entries if entry.problem] + foreign))

    def keepers(self) -> tuple[int, ...]:
        """Find the processes that keep the lock for longer than writers do; claims go on without it."""
        if not self._files.are_present():
            return ()
        with self._files.opened() as descriptor, TURN:
            return () if claim_files.take(descriptor) else tuple(sorted(claim_files.holders(descriptor)))

    def claim(
        self, address: IPAddress, owner: Owner, sharing: SharingKey = SharingKey(""), ports: tuple[MappedPort, ...] = ()
    ) -> None:
        """Claim `address`, or `ports` of it; again is fine. Raises LedgerError, naming the holder, if another has it.

        With `sharing` others of the same stack who share it, too, are no hindrance: which of them fit together is
        decided in the plan. Threads that claim at the same moment do so under one lock, with one look at all names.
        """
        wanted = ClaimRequest(address, owner, sharing, ports)

        def deed() -> None:
            if problem := self.queue.ask(wanted):
                raise problem

        self._insist(deed)

    @property
    def queue(self) -> Joined[ClaimRequest, LedgerError | None]:
        """The queue of callers that want a claim; those of one moment are claimed together."""
        key = self.directory, self._election
        return _QUEUES.get(key) or _QUEUES.setdefault(key, Joined(self.claim_all))

    def claim_all(self, wanted: Sequence[ClaimRequest]) -> list[LedgerError | None]:
        """Claim several addresses, as if one by one in this order, each once; return the error of each, or None."""
        with self._files.locked() as names:
            for home in {claim.owner.home for claim in wanted}:
                require_leader(self._files, home, self._election)
            problems: dict[ClaimRequest, LedgerError] = {}
            for number, claims in enumerate(rounds(wanted)):
                problems |= self._take(self._files.names() if number else names, claims)
        return [problems.get(claim) for claim in wanted]

    def _take(self, names: Sequence[str], wanted: Sequence[ClaimRequest]) -> dict[ClaimRequest, LedgerError]:
        """Claim what is free or the claimant's, in one round; return why some can't be claimed."""
        problems: dict[ClaimRequest, LedgerError] = {}
        new, near, checks = [], among(names, wanted), dict[IPAddress, AddressClaims]()
        for claim in wanted:
            try:
                at = claim.address
                inspect = checks.get(at) or checks.setdefault(at, self._files.inspect(at, near))
                mine = inspect.of(claim.owner)
                more = not (mine and is_within(claim.places, mine[0].claim.places))
                refuse_others(inspect.in_the_way(claim.ports), claim.owner, claim.sharing, claim.ports, alone=more)
                if not mine:
                    new.append(claim)
                elif (mine[0].claim.ports, mine[0].sharing) != (claim.ports, claim.sharing):
                    checks.pop(claim.address)
                    self._change(mine[0], claim)
            except LedgerError as error:
                problems[claim] = error
        return problems | publish(self._files, new)

    def release(self, address: IPAddress, owner: Owner, *, mapped: bool | None = None) -> None:
        """Release `address`; another's claim and an absent one are left as they are.

        Raises LedgerError, also where nothing is found and a claim that can't be read may be the one.
        `mapped`: only if ports of it are claimed, or only if it is as a whole; without it either.
        """
        if not self._files.are_present():
            return
        with self._files.locked() as names:
            require_leader(self._files, owner.home, self._election)
            for entry in self._files.held_by(owner, address, names):
                if mapped in {None, bool(entry.claim.ports)}:
                    remove(entry.path)

    def reown(
        self,
        address: IPAddress,
        old: Owner,
        new: Owner,
        sharing: SharingKey = SharingKey(""),
        ports: tuple[MappedPort, ...] = (),
    ) -> None:
        """Hand `address` from `old` to `new` in one step; claim it if neither has it.

        Raises LedgerError if a third one holds it alone, or if the project of `old` still exists elsewhere: then this
        is a copy of that project, and the address stays with the original.
        """

        def deed() -> None:
            with self._files.locked() as names:
                require_leader(self._files, new.home, self._election)
                reown(names)

        wanted = ClaimRequest(address, new, sharing, ports)

        def reown(names: list[str]) -> None:
            held = self._files.held(address, names)
            olds = [entry for entry in held if entry.claim.owner == old != new]
            for entry in olds:
                refuse_copy(f"address {address}", old, new)
                self._rewrite(entry.path, replace(wanted, ports=entry.claim.ports))
            for problem in self._take(self._files.names() if olds else names, [wanted]).values():
                raise problem

        self._insist(deed)

    def _insist(self, deed: Callable[[], None]) -> None:
        """Do something, again while it gives way to another process."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return deed()
            except ContendedError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE * (1 + jitter()))

    def _change(self, before: ClaimFile, claim: ClaimRequest) -> None:
        """Change what `before` says; back to that if another who writes without the lock may have some of it by now."""
        self._rewrite(before.path, claim)
        try:
            obstacle = self._files.inspect(claim.address, self._files.all_names()).in_the_way(claim.ports)
            more = not is_within(claim.places, before.claim.places)
            refuse_others(obstacle, claim.owner, claim.sharing, claim.ports, alone=more)
        except LedgerError:
            path = self.directory / entry_name(claim.address, claim.owner)
            self._rewrite(path, replace(claim, sharing=before.sharing, ports=before.claim.ports))
            raise

    def _rewrite(self, path: Path, claim: ClaimRequest) -> None:
        """Change what is said in place, then the name: a stop between the two leaves a claim of the new owner."""
        try:
            files.write(path, claim.text, mode=self._files.mode(), durable=True)
            path.rename(self.directory / entry_name(claim.address, claim.owner))
        except (OSError, files.FilesError) as error:
            raise LedgerError(f"the claim of {claim.address} can't be handed over: {reason(error)}") from error


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)
