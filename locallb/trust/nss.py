"""Reads and changes a database of NSS, Mozilla's library, by `certutil`: the stores of Chromium and of Firefox.

NSS lists certificates of one subject under the name of one of them, so a name may have several fingerprints. Not here:
where databases are (`stores`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from locallb.storage import paths
from locallb.storage.paths import PlaceError
from locallb.trust.plan import StoreEntry, TrustStep
from locallb.trust.tools import TrustError, fingerprints, run

DATABASE = "cert9.db"
_LINE = re.compile(r"(local-lb\S*)\s+(\S*,\S*,\S*)\s*")
_BELIEVED = "C"
"""The flag of an authority that servers' certificates may be of."""


def entries(place: str) -> tuple[StoreEntry, ...]:
    """Return what could be of local-lb in a database. Raises TrustError."""
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
