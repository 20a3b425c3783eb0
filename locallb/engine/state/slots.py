"""Where the pieces of a large state file stand in it: with room behind each, so that a change moves few others.

The room is spaces before the last bracket of a piece, which JSON allows and who reads a resource leaves out. A file of
few pieces has none: it is as the official command line writes it. Not here: the pieces (`joined`), the file (`files`).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not

from msgspec import Struct

ROOM = 8192
"""Bytes behind a piece that comes: for a few ports that its Services may get."""
MOST = 65536
"""Bytes of room that a piece which became smaller is left with, so that those behind it stay where they are."""
FEW = 8
"""Pieces of a file that is written whole each time."""


class Piece(Struct, frozen=True):
    """Some of a file's bytes; room goes before the last `cut` of them. `data` is known by identity."""

    data: bytes
    cut: int = 0
    separator: bytes = b""


class Slot(Struct, frozen=True):
    """A piece, where it begins, and where the next one does."""

    piece: Piece
    start: int
    end: int

    def is_as(self, other: "Slot | None") -> bool:
        """Return whether a file with the other one has the same bytes here."""
        if other is None or self.piece.data is not other.piece.data:
            return False
        return (self.start, self.end, self.piece.separator) == (other.start, other.end, other.piece.separator)

    def parts(self) -> tuple[bytes | memoryview, ...]:
        """Return its bytes, in parts of which the large one isn't copied."""
        data, cut, separator = self.piece.data, self.piece.cut, self.piece.separator
        room = self.end - self.start - len(data) - len(separator)
        front = len(data) - cut
        return memoryview(data)[:front], b" " * room, data[front:] + separator


class Slots:
    """Knows where pieces stood in the last file. For one thread at a time."""

    def __init__(self) -> None:
        self._pieces: Sequence[Piece] = ()
        self._placed: tuple[Slot, ...] = ()
        """Empty where the last file had no room."""

    def of(self, pieces: Sequence[Piece]) -> tuple[Slot, ...]:
        """Place pieces one behind the other, those that are known where they stood, as far as that can be."""
        if len(pieces) <= FEW:
            self._pieces, self._placed = pieces, ()
            return _close(pieces)
        self._placed = self._with_others(pieces) or self._all(pieces)
        self._pieces = pieces
        return self._placed

    def _with_others(self, pieces: Sequence[Piece]) -> tuple[Slot, ...] | None:
        """Place those that are others where those stood that they replace; None where they don't fit there."""
        if len(pieces) != len(self._placed):
            return None
        placed = [*self._placed]
        for number in compress(count(), map(is_not, self._pieces, pieces)):
            piece, old = pieces[number], placed[number]
            least = old.start + len(piece.data) + len(piece.separator)
            is_last = number == len(pieces) - 1
            if not is_last and not old.end - MOST <= least <= old.end:
                return None
            placed[number] = Slot(piece, old.start, least if is_last else old.end)
        return tuple(placed)

    def _all(self, pieces: Sequence[Piece]) -> tuple[Slot, ...]:
        known = {id(slot.piece.data): slot for slot in self._placed}
        placed: list[Slot] = []
        start = 0
        for piece, following in zip(pieces, (*pieces[1:], None), strict=True):
            least = start + len(piece.data) + len(piece.separator)
            end = _end(known, piece, start, least, following) if following else least
            placed.append(Slot(piece, start, end))
            start = end
        return tuple(placed)


def _end(known: Mapping[int, Slot], piece: Piece, start: int, least: int, following: Piece) -> int:
    """Return where a piece ends that begins at `start` and has bytes up to `least`.

    `known` is where pieces stand, by the identity of their data, which lives as long as they do.
    """
    then = known.get(id(following.data))
    if then is not None and least - ROOM <= then.start <= least + MOST:
        return max(least, then.start)
    before = known.get(id(piece.data))
    return max(least, before.end) if before is not None and before.start == start else least + ROOM


def _close(pieces: Iterable[Piece]) -> tuple[Slot, ...]:
    """Place pieces without any room."""
    placed: list[Slot] = []
    start = 0
    for piece in pieces:
        end = start + len(piece.data) + len(piece.separator)
        placed.append(Slot(piece, start, end))
        start = end
    return tuple(placed)
