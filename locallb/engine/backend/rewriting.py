"""Writes the state file; of a large stack over a file that isn't needed any more, of which most is the same.

That is the backup that just went, if this process wrote it and nobody else has it open: only the slots that have
something else are written, and a change costs what changed, on the disk as well. Until it has the state's name it
counts for nothing, like any other file that is written beside. Otherwise the file is written whole.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, compress
from operator import is_not
from pathlib import Path

from locallb.engine.backend.backups import NEWEST
from locallb.engine.state.files import Files, beside_of, has_lease
from locallb.engine.state.slots import FEW, Piece, Slot, Slots

_Stamp = tuple[int, ...]


class Rewriter:
    """Knows what the last files have. For one thread at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._slots = Slots()
        self._known: dict[_Stamp, tuple[Slot, ...]] = {}

    def spare(self, path: Path) -> Path | None:
        """Return where a backup of `path` that goes is to be moved; None where it is of no use."""
        return beside_of(path) if self._known else None

    def write(self, path: Path, pieces: Sequence[Piece]) -> None:
        """Set the whole content of `path`, at once, or leave it as it was. Raises StateUnwritable."""
        slots = self._slots.of(pieces)
        descriptor, known = self._opened(beside_of(path))
        if descriptor < 0:
            self._files.replace(path, chain.from_iterable(slot.parts() for slot in slots))
        else:
            try:
                self._files.rewrite(path, descriptor, _places(known, slots), slots[-1].end)
            finally:
                os.close(descriptor)
        if len(slots) > FEW:
            with suppress(OSError):  # who can't be sure what is there writes it whole the next time
                self._known[_stamp(path.stat())] = slots
        for old in [*self._known][: -NEWEST - 2]:
            del self._known[old]

    def _opened(self, beside: Path) -> tuple[int, tuple[Slot, ...]]:
        """Open a file that is known and not in use elsewhere; -1 where there is none."""
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return -1, ()
        known = self._known.pop(_stamp(os.fstat(descriptor)), ())
        if known and has_lease(descriptor):
            return descriptor, known
        os.close(descriptor)
        return -1, ()


def _places(known: Sequence[Slot], slots: Sequence[Slot]) -> list[tuple[int, bytes]]:
    """Return what is to be written where, of a file that has the known slots."""
    there = {slot.start: slot for slot in known}
    some = compress(slots, map(is_not, slots, known)) if len(slots) == len(known) else slots
    return [(slot.start, b"".join(slot.parts())) for slot in some if not slot.is_as(there.get(slot.start))]


def _stamp(status: os.stat_result) -> _Stamp:
    """Name a file's content; its names don't matter."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
