"""Reads and changes the system's store: certificates in a directory, which a command of the distribution gathers.

If that command fails the file is restored, so that the directory shows what the system trusts. And the keychain of a
Mac, by `security`: never tried on one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

from locallb.guarded import atomic
from locallb.model.system_errors import refusal
from locallb.storage import files, paths
from locallb.storage.files import FilesError
from locallb.trust.plan import StoreEntry, TrustStep, entry_name, system_file
from locallb.trust.tools import TrustError, fingerprints, run

_LARGEST = 1 << 16
_MAX = 256
_READABLE = 0o644
_HASH = re.compile(r"SHA-256 hash: ([0-9A-F]{64})")


def entries(place: Path) -> tuple[StoreEntry, ...]:
    """Return what could be of local-lb in a directory. Raises TrustError."""
    try:
        named = (path for path in paths.entries(place, ".crt") if path.name.startswith("local-lb"))
        return tuple(StoreEntry(path.stem, fingerprints(_text(path))) for path in islice(named, _MAX))
    except OSError as error:
        raise TrustError(f"{place} can't be read: {refusal(error)}") from None
    except FilesError as error:
        raise TrustError(str(error)) from None


def change(step: TrustStep) -> None:
    """Carry out a step. Raises TrustError."""
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
    atomic.remove_abandoned_of(path)
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
