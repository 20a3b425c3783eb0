"""Who may not have an address, and the sentence that says why. Not here: reading and writing claims."""

from __future__ import annotations

from collections.abc import Iterable

from locallb.ledger.claims import Entry
from locallb.model.errors import ClientError
from locallb.model.identities import Owner
from locallb.storage import paths


class LedgerError(ClientError):
    """An address can't be claimed, or the ledger can't be used: one sentence."""


class ContendedError(LedgerError):
    """Somebody else is about to claim the address: look again."""


def refuse_copy(what: str, old: Owner, new: Owner) -> None:
    """Raise LedgerError if `old` lives in another directory that still exists: `new` is then a copy of that project."""
    if old.home.root != new.home.root and paths.is_another_directory(old.home.root, new.home.root):
        raise LedgerError(
            f"{what} belongs to {old}, which still exists, so the project at {new.home.root} looks like a copy: destroy"
            " the stack there or remove that directory, or give this stack another name and a state of its own"
        )


def is_shared(entry: Entry, owner: Owner, sharing: str) -> bool:
    """Return whether the holder of `entry` and `owner` have agreed to share: both say so, and one plan makes both."""
    return bool(sharing and entry.sharing and entry.claim.owner.home == owner.home)


def refuse_others(held: Iterable[Entry], owner: Owner, sharing: str, *, alone: bool) -> None:
    """Raise LedgerError for a claim that can't be understood, and if `alone` for one that doesn't share."""
    for entry in held:
        if entry.problem or (alone and not is_shared(entry, owner, sharing)):
            _refuse_other(entry, owner)


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
