"""Finds the trust stores of this host, reads and changes them.

No right is needed to look. Not here: what is to be changed (`plan`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from locallb.certificates.store import subject_of_user
from locallb.model.identities import Fingerprint
from locallb.programs import program
from locallb.storage import paths
from locallb.trust import nss, system
from locallb.trust.plan import Kind, TrustStep, TrustStore, believes
from locallb.trust.tools import TrustError

ANCHORS = (
    ("/etc/pki/ca-trust/source/anchors", ("update-ca-trust", "extract"), ()),
    ("/usr/local/share/ca-certificates", ("update-ca-certificates",), ("--fresh",)),
    ("/etc/ca-certificates/trust-source/anchors", ("trust", "extract-compat"), ()),
    ("/etc/pki/trust/anchors", ("update-ca-certificates",), ()),
)
"""Where Fedora, Debian, Arch and openSUSE have the system's own certificates, how they are gathered, and with what word
after one was removed: Debian leaves a dangling link unless all are made again."""
CHROMIUMS = (".pki/nssdb", ".local/share/pki/nssdb", "snap/chromium/current/.pki/nssdb")
"""Where Chromium and its relatives have their store, below the home; the first is made where there is none."""
FIREFOXES = (
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
    "Library/Application Support/Firefox/Profiles",
)
"""Where Firefox has its profiles."""
_MAX = 32
"""Profiles that are looked at."""
_NO_CERTUTIL = "it takes certutil (Debian: apt install libnss3-tools; Fedora: dnf install nss-tools)"
_BY_ROOT = "it is root's to change: run the lines above with sudo"


def inspect() -> tuple[TrustStore, ...]:
    """Return every store of this host, with what it has of local-lb. Raises PlaceError."""
    home = paths.home()
    mac = sys.platform == "darwin"
    return (*(_keychain(home) if mac else _system()), *(() if mac else _chromiums(home)), *_firefoxes(home))


def doubting(fingerprint: Fingerprint) -> tuple[str, ...]:
    """Return who on this host doesn't believe an authority. Raises PlaceError."""
    return tuple(dict.fromkeys(store.requires for store in inspect() if not believes(store, fingerprint)))


def change(step: TrustStep) -> None:
    """Carry out a step, and see that it counts. Raises TrustError."""
    changes = {Kind.NSS: nss.change, Kind.SYSTEM: system.change, Kind.KEYCHAIN: system.change_keychain}
    changes[step.store.kind](step)
    changed = _with_entries(replace(step.store, entries=(), exists=True))
    named = [entry for entry in changed.entries if entry.name == step.name and step.fingerprint in entry.fingerprints]
    if (believes(changed, step.fingerprint) if step.adds else bool(named)) != step.adds:
        raise TrustError(f"{step.store.place} {'has not taken' if step.adds else 'still has'} {step.name}")


def _system() -> Iterator[TrustStore]:
    for place, gather, rebuild_options in ANCHORS:
        if Path(place).is_dir() and program.find(gather[0]):
            by_root = os.geteuid() != 0
            store = TrustStore(Kind.SYSTEM, place, "curl, git and most programs of this host", by_root=by_root)
            store = replace(
                store, gather=gather, rebuild=(*gather, *rebuild_options), lacks=_BY_ROOT if by_root else ""
            )
            yield _with_entries(store)
            return


def _keychain(home: Path) -> Iterator[TrustStore]:
    place = home / "Library/Keychains/login.keychain-db"
    yield _with_entries(TrustStore(Kind.KEYCHAIN, str(place), "Safari, Chrome and most programs of this user"))


def _chromiums(home: Path) -> Iterator[TrustStore]:
    places = [home / place for place in CHROMIUMS]
    existing = [place for place in places if _exists(place / nss.DATABASE)]
    for place in existing or places[:1]:
        yield _nss(place, "Chromium, and browsers made of it")


def _firefoxes(home: Path) -> Iterator[TrustStore]:
    profiles = (path.parent for place in FIREFOXES for path in sorted((home / place).glob(f"*/{nss.DATABASE}")))
    for profile in islice(profiles, _MAX):
        yield _nss(profile, "Firefox")


def _nss(place: Path, requires: str) -> TrustStore:
    exists = _exists(place / nss.DATABASE)
    return _with_entries(TrustStore(Kind.NSS, str(place), requires, exists=exists, lacks=_forbidden(place)))


def _forbidden(place: Path) -> str:
    """Return why this user shouldn't change a store; empty where nothing is against it."""
    nearest = next(path for path in (place / nss.DATABASE, place, *place.parents) if _exists(path))
    with suppress(OSError):
        if (owner := nearest.stat().st_uid) != os.geteuid():
            return f"{nearest} belongs to user {owner}: run this as that user"
    return "" if program.find("certutil") else _NO_CERTUTIL


def _with_entries(store: TrustStore) -> TrustStore:
    """Look what a store has; one that can't be read can't be changed either."""
    try:
        match store.kind:
            case Kind.SYSTEM:
                return replace(store, entries=system.entries(Path(store.place)))
            case Kind.KEYCHAIN:
                return replace(store, entries=system.keychain_entries(store.place, os.getuid(), subject_of_user()))
            case Kind.NSS:
                readable = store.exists and program.find("certutil")
                return replace(store, entries=nss.entries(store.place) if readable else ())
    except TrustError as error:
        return replace(store, lacks=str(error))


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True
