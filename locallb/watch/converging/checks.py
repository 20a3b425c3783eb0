"""Load balancers without a verification since the loop began, and which of these need only a refresh.

A load balancer with the planned digest may still differ from what this version of the program makes of that plan: an
update finds out. Once this version has applied everything, the state that it wrote is noted with the last readings; a
loop with the same code and the same written state reads the resources, and declares only what differs. Not here: the
check itself (`engine`), and the digests (`converge`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import components
import locallb
from locallb.model.identities import Home, ObjectKey
from locallb.storage import files
from locallb.storage.paths import stack_directory

NAME = "brought-about"
"""Of the note; sources' readings end with `.json`."""
MAX_UNVERIFIED = 50
"""Load balancers that a note names as not brought about; with more there is none."""
_PACKAGES = tuple(Path(package.__path__[0]) for package in (locallb, components))


@dataclass(slots=True)
class Checks:
    """Of one stack, for one thread."""

    unchecked: set[ObjectKey] = field(default_factory=set)
    """Not looked at since the start."""
    _doubtful: set[ObjectKey] = field(default_factory=set)
    """Of which it isn't known that this code declared them as they are in the state."""
    _path: Path | None = None
    _noted: tuple[object, frozenset[ObjectKey]] | None = None
    _by: str = field(init=False)
    """Which code this is."""

    def __post_init__(self) -> None:
        """Ask now, when the process starts: files may be replaced under one that stands by."""
        self._by = _code()

    def begin(self, home: Home, keys: Iterable[ObjectKey], stamp: object) -> None:
        """Check all of these once; `stamp` identifies the written state that has them, None if it is unknown."""
        self._path, self.unchecked, self._noted = stack_directory(home) / NAME, set(keys), None
        doubtful = self._read(stamp)
        self._doubtful = set(self.unchecked) if doubtful is None else self.unchecked & doubtful

    def needs_check_only(self, keys: Collection[ObjectKey]) -> bool:
        """Return whether these were declared by this code as they are in the state, and are only to be looked at."""
        return self.unchecked.issuperset(keys) and self._doubtful.isdisjoint(keys)

    @property
    def check_only(self) -> bool:
        """Whether that holds of all that is unchecked."""
        return self._doubtful.isdisjoint(self.unchecked)

    def ended(self, keys: Collection[ObjectKey], failed: Collection[ObjectKey], stamp: object) -> None:
        """Note how an update of these, or a look at them, ended, and which writing of the state has that."""
        self.unchecked.difference_update(keys)
        self._doubtful.difference_update(keys)
        self._doubtful.update(failed)
        self._write(stamp)

    def _read(self, stamp: object) -> set[ObjectKey] | None:
        """Read which are doubtful in this writing of the state; None where all are."""
        with suppress(files.FilesError, ValueError, KeyError, TypeError, RecursionError):
            note = json.loads(files.read_shared(self._path) or "null") if self._path and stamp else {}
            if note and (note["code"], note["state"]) == (self._by, str(stamp)):
                return {ObjectKey.parse(str(name)) for name in note["doubtful"]}
        return None

    def _write(self, stamp: object) -> None:
        """Write the note where it changes. Without one more is declared than need be, so nothing depends on it."""
        now = stamp, frozenset(self._doubtful)
        if not self._path or not stamp or len(self._doubtful) > MAX_UNVERIFIED or now == self._noted:
            return
        note = {"code": self._by, "state": str(stamp), "doubtful": sorted(map(str, self._doubtful))}
        with suppress(files.FilesError):
            files.write(self._path, json.dumps(note) + "\n")
            self._noted = now


@cache
def _code() -> str:
    """Name all that decides what is declared of a plan, as it was when this process asked first."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((*package.rglob("*.py"), *package.rglob("*.json"))):
            digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
