"""Finds, reads and changes this host's trust stores: the system's, those of Chromium and Firefox, and a Mac's keychain.

Each kind of store has its own tool. `certutil` works on databases of NSS, Mozilla's library, which Chromium and Firefox
use. A command of the distribution gathers the system's certificates from a directory. `security` works on the keychain,
and has never been tried on a Mac. Inspecting a store needs no right; some changes need root.

Not here: the choice of changes (`trust_plan`).
"""

from __future__ import annotations

import hashlib
import os
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from locallb import programs, safe_files
from locallb.certificates.store import subject_of_user
from locallb.certificates.trust_plan import (
    StoreEntry,
    StoreKind,
    TrustStep,
    TrustStore,
    believes,
    entry_name,
    system_file,
)
from locallb.model.errors import ClientError, refusal
from locallb.model.identities import Fingerprint
from locallb.patterns import pattern
from locallb.programs import Program, ProgramError
from locallb.storage import files, paths
from locallb.storage.files import FilesError
from locallb.storage.paths import PlaceError

TIMEOUT = 60
"""Seconds for a tool; gathering the system's certificates takes some."""
_PEM = pattern(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]{1,65536}-----END CERTIFICATE-----")


class TrustError(ClientError):
    """A store can't be read or changed: one sentence."""


def run(terms: Sequence[str]) -> str:
    """Run a tool and return what it says. Raises TrustError with the last that it complained of."""
    try:
        return Program(tuple(terms), TIMEOUT).output()
    except ProgramError as error:
        raise TrustError(str(error)) from None


def fingerprints(text: str) -> frozenset[Fingerprint]:
    """Return the fingerprints of all certificates in a text; what is none is passed over."""
    return frozenset(filter(None, map(_fingerprint, _PEM.findall(text))))


def _fingerprint(pem: str) -> Fingerprint:
    try:
        return Fingerprint(hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest())
    except ValueError:
        return Fingerprint("")


DATABASE = "cert9.db"
_LINE = pattern(r"(local-lb\S*)\s+(\S*,\S*,\S*)\s*")
_BELIEVED = "C"
"""The flag of an authority that servers' certificates may be of."""


def entries(place: str) -> tuple[StoreEntry, ...]:
    """Return what could be of local-lb in a database of NSS. Raises TrustError.

    NSS lists certificates of one subject under the name of one of them, so a name may have several fingerprints.
    """
    listed = (_LINE.fullmatch(line) for line in _certutil(place, "-L").splitlines())
    return tuple(_entry(place, match[1], match[2]) for match in listed if match)


def change(step: TrustStep) -> None:
    """Carry out a step. Raises TrustError; then nothing is half there."""
    place = step.store.place
    if not step.adds:
        _certutil(place, "-D", "-n", step.name)
        return
    if not step.store.exists:
        _make(Path(place))
    try:
        _certutil(place, "-A", "-t", f"{_BELIEVED},,", "-n", step.name, "-i", step.file)
    except TrustError:
        with suppress(TrustError):  # a database with a password takes the certificate, but doesn't believe it
            _certutil(place, "-D", "-n", step.name)
        raise


def _make(place: Path) -> None:
    """Make an empty database, as Chromium does when it starts first."""
    try:
        paths.private_directory(place)
    except PlaceError as error:
        raise TrustError(str(error)) from None
    if not os.path.lexists(place / DATABASE):
        _certutil(str(place), "-N", "--empty-password")


def _entry(place: str, name: str, flags: str) -> StoreEntry:
    return StoreEntry(name, fingerprints(_certutil(place, "-L", "-n", name, "-a")), flags.startswith(_BELIEVED))


def _certutil(place: str, *terms: str) -> str:
    return run(("certutil", "-d", f"sql:{place}", *terms))


_LARGEST = 1 << 16
_MAX = 256
_READABLE = 0o644
_HASH = pattern(r"SHA-256 hash: ([0-9A-F]{64})")


def system_entries(place: Path) -> tuple[StoreEntry, ...]:
    """Return what could be of local-lb in a directory. Raises TrustError."""
    try:
        named = (path for path in paths.entries(place, ".crt") if path.name.startswith("local-lb"))
        return tuple(StoreEntry(path.stem, fingerprints(_text(path))) for path in islice(named, _MAX))
    except OSError as error:
        raise TrustError(f"{place} can't be read: {refusal(error)}") from None
    except FilesError as error:
        raise TrustError(str(error)) from None


def change_system(step: TrustStep) -> None:
    """Carry out a step. Raises TrustError.

    If the command that gathers fails the file is restored, so that the directory shows what the system trusts.
    """
    path = Path(system_file(step))
    try:
        before = _text(path)
        wanted = files.read_shared(Path(step.file), _LARGEST) if step.adds else None
        _put(path, wanted)
        try:
            run(step.store.gather if step.adds else step.store.rebuild)
        except TrustError:
            _put(path, before or None)
            raise
    except FilesError as error:
        raise TrustError(str(error)) from None


def keychain_entries(place: str, uid: int, subject: str) -> tuple[StoreEntry, ...]:
    """Return the authorities in a keychain with a name that begins with `subject`: it keeps no names of ours."""
    with suppress(TrustError):  # there is none
        output = run(("security", "find-certificate", "-a", "-Z", "-c", f"{subject} ", place))
        hashes = [match.lower() for match in _HASH.findall(output)]
        return tuple(StoreEntry(entry_name(uid, fingerprint), frozenset({fingerprint})) for fingerprint in hashes)
    return ()


def change_keychain(step: TrustStep) -> None:
    """Carry out a step. Raises TrustError."""
    for terms in step.commands:
        run(terms)


def _put(path: Path, text: str | None) -> None:
    safe_files.remove_abandoned_of(path)
    if text is None:
        files.remove(path)
    else:
        files.write(path, text, mode=_READABLE, durable=True)


def _text(path: Path) -> str:
    """Return what a file of others says; nothing where it isn't one.

    Raises FilesError where the host lacks what it takes to read.
    """
    try:
        return files.read_shared(path, _LARGEST) or ""
    except FilesError as error:
        if error.is_of_host:
            raise
        return ""


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
_STORE_MAX = 32
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


def change_store(step: TrustStep) -> None:
    """Carry out a step, and see that it counts. Raises TrustError."""
    changes = {StoreKind.NSS: change, StoreKind.SYSTEM: change_system, StoreKind.KEYCHAIN: change_keychain}
    changes[step.store.kind](step)
    changed = _with_entries(replace(step.store, entries=(), exists=True))
    named = [entry for entry in changed.entries if entry.name == step.name and step.fingerprint in entry.fingerprints]
    if (believes(changed, step.fingerprint) if step.adds else bool(named)) != step.adds:
        raise TrustError(f"{step.store.place} {'has not taken' if step.adds else 'still has'} {step.name}")


def _system() -> Iterator[TrustStore]:
    for place, gather, rebuild_options in ANCHORS:
        if Path(place).is_dir() and programs.find(gather[0]):
            by_root = os.geteuid() != 0
            store = TrustStore(StoreKind.SYSTEM, place, "curl, git and most programs of this host", by_root=by_root)
            store = replace(
                store, gather=gather, rebuild=(*gather, *rebuild_options), lacks=_BY_ROOT if by_root else ""
            )
            yield _with_entries(store)
            return


def _keychain(home: Path) -> Iterator[TrustStore]:
    place = home / "Library/Keychains/login.keychain-db"
    yield _with_entries(TrustStore(StoreKind.KEYCHAIN, str(place), "Safari, Chrome and most programs of this user"))


def _chromiums(home: Path) -> Iterator[TrustStore]:
    places = [home / place for place in CHROMIUMS]
    existing = [place for place in places if _exists(place / DATABASE)]
    for place in existing or places[:1]:
        yield _nss(place, "Chromium, and browsers made of it")


def _firefoxes(home: Path) -> Iterator[TrustStore]:
    profiles = (path.parent for place in FIREFOXES for path in sorted((home / place).glob(f"*/{DATABASE}")))
    for profile in islice(profiles, _STORE_MAX):
        yield _nss(profile, "Firefox")


def _nss(place: Path, requires: str) -> TrustStore:
    exists = _exists(place / DATABASE)
    return _with_entries(TrustStore(StoreKind.NSS, str(place), requires, exists=exists, lacks=_forbidden(place)))


def _forbidden(place: Path) -> str:
    """Return why this user shouldn't change a store; empty where nothing is against it."""
    nearest = next(path for path in (place / DATABASE, place, *place.parents) if _exists(path))
    with suppress(OSError):
        if (owner := nearest.stat().st_uid) != os.geteuid():
            return f"{nearest} belongs to user {owner}: run this as that user"
    return "" if programs.find("certutil") else _NO_CERTUTIL


def _with_entries(store: TrustStore) -> TrustStore:
    """Look what a store has; one that can't be read can't be changed either."""
    try:
        match store.kind:
            case StoreKind.SYSTEM:
                return replace(store, entries=system_entries(Path(store.place)))
            case StoreKind.KEYCHAIN:
                return replace(store, entries=keychain_entries(store.place, os.getuid(), subject_of_user()))
            case StoreKind.NSS:
                readable = store.exists and programs.find("certutil")
                return replace(store, entries=entries(store.place) if readable else ())
    except TrustError as error:
        return replace(store, lacks=str(error))


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True
