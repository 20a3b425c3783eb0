"""Writes claims: under a temporary name, then linked into place, exclusive without the lock; one listing per batch.

Of two writers that are about to claim one address, at least one sees the other: each writes its file before it reads
the directory. Not here: the lock, existing claims, and the retry of a writer that gave way (`ledger`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from locallb.ledger.claim_files import ClaimFiles
from locallb.ledger.claims import (
    ContendedError,
    LedgerError,
    are_apart,
    claimed_in,
    entry_name,
    entry_text,
    read_entry,
    refuse_others,
    unfinished,
)
from locallb.model.errors import reason, refusal
from locallb.model.identities import IPAddress, Owner, SharingKey
from locallb.model.snapshot import MappedPort, PortKey, places_of
from locallb.storage import files


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
