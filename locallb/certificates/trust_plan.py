"""The plan of `locallb ca trust` and `ca untrust`: steps as data, from the present content of each store. Pure.

Our entries are identified by their names, with the user's number and the beginning of the certificate's fingerprint. So
they are found and distinguished from all others, also after another authority was made or all files of it were lost.
Not here: how stores are read and changed (`trust_stores`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from locallb.model.identities import Fingerprint

_REPORTED = 16
"""Digits of a fingerprint in a name: 64 bits."""


class StoreKind(StrEnum):
    """How a store is kept."""

    SYSTEM = "system"
    """A directory of certificates, and a command that gathers them."""
    NSS = "nss"
    """A database of Mozilla's library."""
    KEYCHAIN = "keychain"
    """A Mac's."""


class StoreEntry(Struct, frozen=True):
    """What a store has under one name."""

    name: str
    fingerprints: frozenset[Fingerprint]
    """sha256, hex; several where certificates share a subject."""
    believed: bool = True
    """It is not only there."""


class TrustStore(Struct, frozen=True):
    """A store that programs of this host ask."""

    kind: StoreKind
    place: str
    requires: str
    """Requesting user."""
    entries: tuple[StoreEntry, ...] = ()
    """Entries that could be of local-lb."""
    gather: tuple[str, ...] = ()
    """The command after which what was added counts."""
    rebuild: tuple[str, ...] = ()
    """The same for what was removed."""
    exists: bool = True
    lacks: str = ""
    """Why it can't be changed now, and what helps; empty where it can."""
    by_root: bool = False
    """Only root may change it, and we aren't root."""


class Believed(Struct, frozen=True):
    """The certificate of an authority."""

    fingerprint: Fingerprint
    file: str


class TrustStep(Struct, frozen=True):
    """One certificate that a store is to get or to lose."""

    store: TrustStore
    adds: bool
    name: str
    fingerprint: Fingerprint
    file: str = ""
    done: bool = False

    @property
    def why(self) -> str:
        return f"{'believed' if self.adds else 'no longer believed'} by {self.store.requires}"

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Return what a person would type."""
        typed = tuple((_ADD if self.adds else _REMOVE)[self.store.kind](self))
        return tuple(("sudo", *terms) for terms in typed) if self.store.by_root else typed

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the commands as a shell takes them."""
        return tuple(map(shlex.join, self.commands))


class TrustPlan(Struct, frozen=True):
    """The steps, done ones among them, and what to mind."""

    steps: tuple[TrustStep, ...]
    notes: tuple[str, ...] = ()


def entry_name(uid: int, fingerprint: Fingerprint) -> str:
    """Return under which name a user's authority is put into stores."""
    return f"local-lb-{uid}-{fingerprint[:_REPORTED]}"


def plan_trust(existing: Believed, stores: Sequence[TrustStore], uid: int) -> TrustPlan:
    """Have every store believe this authority, and no other that this user had it believe."""
    steps: list[TrustStep] = []
    for store in stores:
        believed = any(entry.believed and existing.fingerprint in entry.fingerprints for entry in store.entries)
        steps += _removed(store, uid, but=existing.fingerprint if believed else "")
        name = entry_name(uid, existing.fingerprint)
        steps.append(TrustStep(store, True, name, existing.fingerprint, existing.file, done=believed))
    return TrustPlan(tuple(steps), tuple(_lacking(steps)))


def plan_untrust(existing: Believed | None, stores: Sequence[TrustStore], uid: int) -> TrustPlan:
    """Remove all entries of this user's `ca trust`; entries of other programs stay, and are reported."""
    steps = [step for store in stores for step in _removed(store, uid)]
    notes = [note for store in stores for note in _of_others(store, existing, uid)]
    return TrustPlan(tuple(steps), (*_lacking(steps), *notes))


def believes(store: TrustStore, fingerprint: Fingerprint) -> bool:
    """Return whether a store trusts an authority, added by any program."""
    return any(entry.believed and fingerprint in entry.fingerprints for entry in store.entries)


def _removed(store: TrustStore, uid: int, but: str = "") -> Iterator[TrustStep]:
    for entry in store.entries:
        fingerprint = _of_ours(entry, uid)
        if fingerprint and fingerprint != but:
            yield TrustStep(store, False, entry.name, fingerprint)


def _of_ours(entry: StoreEntry, uid: int) -> Fingerprint:
    """Return the fingerprint of what this user's `ca trust` put there; empty for what anybody else did."""
    named = (fingerprint for fingerprint in sorted(entry.fingerprints) if entry.name == entry_name(uid, fingerprint))
    return next(named, Fingerprint(""))


def _of_others(store: TrustStore, existing: Believed | None, uid: int) -> Iterator[str]:
    for entry in store.entries:
        if existing and existing.fingerprint in entry.fingerprints and not _of_ours(entry, uid):
            yield f"{store.place} has your authority as {entry.name}, which `ca trust` didn't put there: it stays"


def _lacking(steps: Iterable[TrustStep]) -> Iterator[str]:
    reasons = (f"{step.store.place}: {step.store.lacks}" for step in steps if step.store.lacks and not step.done)
    return iter(dict.fromkeys(reasons))


def _nss_added(step: TrustStep) -> Iterator[tuple[str, ...]]:
    database = ("certutil", "-d", f"sql:{step.store.place}")
    if not step.store.exists:
        yield "mkdir", "-p", "-m", "700", step.store.place
        yield *database, "-N", "--empty-password"
    yield *database, "-A", "-t", "C,,", "-n", step.name, "-i", step.file


def _nss_removed(step: TrustStep) -> Iterator[tuple[str, ...]]:
    yield "certutil", "-d", f"sql:{step.store.place}", "-D", "-n", step.name


def _system_added(step: TrustStep) -> Iterator[tuple[str, ...]]:
    yield "install", "-m", "644", step.file, system_file(step)
    yield step.store.gather


def _system_removed(step: TrustStep) -> Iterator[tuple[str, ...]]:
    yield "rm", system_file(step)
    yield step.store.rebuild


def system_file(step: TrustStep) -> str:
    """Return the file of a certificate in the system's store."""
    return f"{step.store.place}/{step.name}.crt"


def _keychain_added(step: TrustStep) -> Iterator[tuple[str, ...]]:
    yield "security", "add-trusted-cert", "-r", "trustRoot", "-k", step.store.place, step.file


def _keychain_removed(step: TrustStep) -> Iterator[tuple[str, ...]]:
    yield "security", "delete-certificate", "-t", "-Z", step.fingerprint.upper(), step.store.place


_ADD = {StoreKind.NSS: _nss_added, StoreKind.SYSTEM: _system_added, StoreKind.KEYCHAIN: _keychain_added}
_REMOVE = {StoreKind.NSS: _nss_removed, StoreKind.SYSTEM: _system_removed, StoreKind.KEYCHAIN: _keychain_removed}
