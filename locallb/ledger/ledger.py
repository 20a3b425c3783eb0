"""The ledger: the owner of each address of this host, for all stacks and users, and the last leader term of each stack.

A directory has a file per claim with the owner's full identity, written under a temporary name and linked into place:
it is whole or absent wherever a writer stops. Writers exclude each other by a lock on the directory, which the kernel
drops with its holder. If another process keeps the lock, a temporary file announces a claim; a writer that finds
another's announcement gives way: each writes its file before it reads the directory, so at least one of two sees the
other. A file that can't be understood is an unknown owner's claim: reported, never removed.

A file for each stack has the last term in which a leader wrote, so that a former leader is refused. Not here: the
choice of an address (`planning.allocation`), the election (`kubernetes.api.election`), and whether this process leads
(`kubernetes.api.writes`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field
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
    are_apart,
    claimed_in,
    entry_name,
    entry_text,
    is_ours,
    is_within,
    read_entry,
    refuse_copy,
    refuse_others,
    refuse_unread,
    unfinished,
)
from locallb.model.errors import UNTOLD, reason, refusal
from locallb.model.identities import Home, IPAddress, Owner, SharingKey
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim, MappedPort, PortKey, places_of
from locallb.model.texts import digest
from locallb.storage import files
from locallb.threads import Joined, jitter


class ClaimRequest(Struct, frozen=True):
    """A requested claim; with a `sharing` key, claims of the same stack and key don't conflict with it."""

    address: IPAddress
    owner: Owner
    sharing: SharingKey = SharingKey("")
    ports: tuple[MappedPort, ...] = ()
    """What of the address is wanted; empty for all of it."""

    @property
    def places(self) -> frozenset[PortKey]:
        """Exclusive places at the address; empty for all of it."""
        return places_of(self.ports)

    @property
    def text(self) -> str:
        """The content of its file."""
        return entry_text(self.address, self.owner, self.sharing, self.ports)


def rounds(wanted: Iterable[ClaimRequest]) -> list[list[ClaimRequest]]:
    """Split claims into batches without conflicting addresses, in order.

    Claims of different ports of one address share a batch.
    """
    made: list[list[ClaimRequest]] = []
    last: dict[IPAddress, _Round] = {}
    for claim in dict.fromkeys(wanted):
        turn = last.get(claim.address, _Round())
        if not turn.admits(claim):
            turn = _Round(turn.number + 1)
        turn.owners.add(claim.owner)
        turn.places |= claim.places
        last[claim.address] = turn
        made += [[]] if turn.number == len(made) else []
        made[turn.number].append(claim)
    return made


class _Round(Struct):
    """What of one address is wanted in a round, and by whom."""

    number: int = 0
    owners: set[Owner] = field(default_factory=set)
    places: set[PortKey] = field(default_factory=set)

    def admits(self, claim: ClaimRequest) -> bool:
        """Return whether `claim` conflicts with no claim of this batch."""
        return not self.owners or (are_apart(claim.places, self.places) and claim.owner not in self.owners)


def publish(ledger: ClaimFiles, wanted: Sequence[ClaimRequest]) -> dict[ClaimRequest, LedgerError]:
    """Claim what is in one round; return why some can't be claimed."""
    if not wanted:
        return {}
    refused: dict[ClaimRequest, LedgerError] = {}
    sibling: dict[ClaimRequest, Path] = {}
    try:
        for claim in wanted:
            try:
                sibling[claim] = _write_sibling(ledger, claim)
            except (OSError, files.FilesError) as error:
                refused[claim] = _impossible(ledger, claim, error)
        refused |= _given_way(ledger, sibling)
        linked = [claim for claim in sibling if claim not in refused]
        for claim in linked:
            try:
                os.link(sibling[claim], _path(ledger, claim))
            except OSError as error:
                refused[claim] = _impossible(ledger, claim, error)
        refused |= _withdrawn(ledger, [claim for claim in linked if claim not in refused])
    finally:
        for path in sibling.values():
            with suppress(OSError):  # the next writer clears what stays
                path.unlink(missing_ok=True)
    return refused


def remove(path: Path) -> None:
    """Remove a claim; absent is fine. Raises LedgerError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(f"the claim {path} can't be removed: {refusal(error)}") from error


def among(names: Sequence[str], wanted: Sequence[ClaimRequest]) -> list[str]:
    """Return the names among which all claims of these addresses are, so that a thousand are gone through once."""
    starts = {str(claim.address) for claim in wanted}
    return [name for name in names if ":" in name or name.partition("~")[0] in starts]


def _write_sibling(ledger: ClaimFiles, claim: ClaimRequest) -> Path:
    return files.write_sibling(_path(ledger, claim), claim.text, mode=ledger.mode(), durable=True)


def _path(ledger: ClaimFiles, claim: ClaimRequest) -> Path:
    return ledger.path / entry_name(claim.address, claim.owner)


def _impossible(ledger: ClaimFiles, claim: ClaimRequest, error: Exception) -> LedgerError:
    what = f"{claim.address} can't be claimed in {ledger.path}"
    if isinstance(error, FileNotFoundError):
        return ContendedError(f"{what}: another writer cleared it up")
    return LedgerError(f"{what}: {reason(error)}")


def _given_way(ledger: ClaimFiles, sibling: Mapping[ClaimRequest, Path]) -> Iterator[tuple[ClaimRequest, LedgerError]]:
    """Find claims that another owner has by now, or is about to have."""
    names, mine = ledger.all_names(), {path.name for path in sibling.values()}
    rivals: dict[IPAddress, list[Path]] = {}
    for name in set(unfinished(names)) - mine:
        if rival := claimed_in(ledger.path / name):
            rivals.setdefault(rival.address, []).append(ledger.path / name)
    checks = _Checks(ledger, among(names, tuple(sibling)))
    for claim in sibling:
        try:
            problem = _contended(claim, rivals.get(claim.address, ())) or checks.refusal(claim)
        except LedgerError as error:
            problem = error
        if problem:
            yield claim, problem


def _contended(claim: ClaimRequest, rivals: Iterable[Path]) -> LedgerError | None:
    """Return the error if another process is about to claim some of it, or that is unknown; else None.

    A claim of other ports of the address is no conflict. Raises LedgerError if the host lacks the resources to check.
    """
    for path in rivals:
        entry = read_entry(path, claim.address)
        if entry and entry.claim.unread:
            return LedgerError(f"{claim.address} can't be claimed: {entry.problem}")
        if entry is None or not are_apart(claim.places, entry.claim.places):
            return ContendedError(f"{claim.address} is being claimed by another process ({path}): run again")
    return None


def _withdrawn(ledger: ClaimFiles, linked: Sequence[ClaimRequest]) -> Iterator[tuple[ClaimRequest, LedgerError]]:
    """Remove claims that conflict with another after all: its writer was suspended for long and went on.

    Also removes a claim if its address can't be read again.
    """
    for claim, problem in _refused(ledger, linked):
        with suppress(LedgerError):  # a claim that stays is its owner's still, who is told what kept it from serving
            remove(_path(ledger, claim))
        yield claim, problem


def _refused(ledger: ClaimFiles, linked: Sequence[ClaimRequest]) -> Iterator[tuple[ClaimRequest, LedgerError]]:
    try:
        checks = _Checks(ledger, among(ledger.names(), linked) if linked else [])
    except LedgerError as error:
        yield from ((claim, error) for claim in linked)
        return
    for claim in linked:
        try:
            problem = checks.refusal(claim)
        except LedgerError as error:
            problem = error
        if problem:
            yield claim, problem


class _Checks:
    """Looks once at each address that some want, among `names`."""

    def __init__(self, ledger: ClaimFiles, names: Sequence[str]) -> None:
        self._inspect = cache(lambda address: ledger.inspect(address, names))

    def refusal(self, claim: ClaimRequest) -> LedgerError | None:
        """Return why a claim can't be."""
        held = self._inspect(claim.address).in_the_way(claim.ports)
        try:
            refuse_others(held, claim.owner, claim.sharing, claim.ports, alone=True)
        except LedgerError as problem:
            return problem
        return None


def last_term(ledger: ClaimFiles, home: Home) -> int:
    """Return the last term in which a leader of this stack wrote here; -1 if there is none, or it is invalid.

    Raises LedgerError if the host can't read it: a former leader must not be taken for the current one.
    """
    try:
        return int(files.read_shared(_file(ledger, home), LARGEST) or -1)
    except files.FilesError as error:
        if error.is_of_host:
            raise LedgerError(f"can't determine who led this stack last: {error}") from error
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
