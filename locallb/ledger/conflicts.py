"""Conflicts of claims: whether an owner may have an address, and if not, the reason. Not here: reading and writing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NoReturn

from locallb.ledger.claims import ClaimFile, LedgerError
from locallb.model.identities import Owner, SharingKey
from locallb.model.snapshot import MappedPort, Place
from locallb.storage import paths


class ContendedError(LedgerError):
    """Another process is about to claim the address: read again."""


def refuse_copy(what: str, old: Owner, new: Owner) -> None:
    """Raise LedgerError if `old` lives in another directory that still exists: `new` is then a copy of that project."""
    if old.home.root != new.home.root and paths.is_another_directory(old.home.root, new.home.root):
        raise LedgerError(
            f"{what} belongs to {old}, which still exists, so the project at {new.home.root} looks like a copy: destroy"
            " the stack there or remove that directory, or give this stack another name and a state of its own"
        )


def is_shared(entry: ClaimFile, owner: Owner, sharing: SharingKey) -> bool:
    """Return whether the holder of `entry` and `owner` have agreed to share: both say so, and one plan makes both."""
    return bool(sharing and entry.sharing and entry.claim.owner.home == owner.home)


def are_apart(places: Collection[Place], others: Collection[Place]) -> bool:
    """Return whether neither is all of an address, and they have no port in common."""
    return bool(places and others) and frozenset(places).isdisjoint(others)


def is_within(places: frozenset[Place], held: frozenset[Place]) -> bool:
    """Return whether who has `held` needs nothing more to have `places`; none are all of an address."""
    return places <= held if places and held else places == held


def refuse_others(
    held: Iterable[ClaimFile], owner: Owner, sharing: SharingKey, ports: Collection[MappedPort] = (), *, alone: bool
) -> None:
    """Raise LedgerError for an unreadable claim, and if `alone` for one that doesn't share.

    Claims of ports of any owner don't conflict as long as they have no port in common. Nor does a claim that is
    temporarily unreadable conflict with an owner that takes nothing new.
    """
    for entry in held:
        if entry.claim.unread and not alone:
            continue
        if entry.problem:
            raise LedgerError(f"{entry.claim.address} can't be claimed: {entry.problem}")
        if entry.claim.owner == owner or not alone or is_shared(entry, owner, sharing):
            continue
        theirs = entry.claim.places
        if not (ports and theirs):
            _refuse(entry, owner, str(entry.claim.address), f"choose another address for {owner.service}")
        if common := sorted(port for port in ports if port.place in theirs):
            what = f"{entry.claim.address} port {common[0].number}/{common[0].protocol}"
            _refuse(entry, owner, what, "run again: the next plan chooses another port")


def refuse_unread(held: Iterable[ClaimFile]) -> None:
    """Raise LedgerError for a claim that can't be read just now, as it may be anybody's."""
    for doubtful in (entry for entry in held if entry.claim.unread):
        raise LedgerError(doubtful.problem)


def _refuse(entry: ClaimFile, owner: Owner, what: str, remedy: str) -> NoReturn:
    elsewhere = entry.claim.owner.home != owner.home
    other = "or destroy that stack" if elsewhere else "or run `locallb gc` if a lost state left it"
    raise LedgerError(f"{what} belongs to {entry.claim.owner}: {remedy}, {other} (its claim is {entry.path})")
