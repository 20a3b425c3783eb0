"""The resources of a state file as pieces of bytes, of which those that have the very same resources are kept.

Between two writings nearly all resources are the same ones: only the pieces that what changed is in are joined again.
The pieces together are the bytes that all resources joined at once give (a law in the tests). Not here: the file.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, count
from operator import attrgetter, is_, is_not

from locallb.engine.state.resource import ResourceState
from locallb.engine.state.slots import Piece

_MOST = 64
"""Resources of a piece: one change joins that many, and each piece is a write."""
_FEW = 16
"""Resources that are looked for one by one."""
_Piece = tuple[tuple[ResourceState, ...], bytes]
_DATA = attrgetter("data")


class JoinedResources:
    """Knows the pieces of the last writing. For one thread at a time."""

    def __init__(self) -> None:
        self._resources: Sequence[ResourceState] = ()
        self._joined: list[_Piece] = []
        self._starts: list[int] = []
        """Where each piece begins among the resources."""
        self._pieces: list[Piece] = []

    def of(self, resources: Sequence[ResourceState]) -> tuple[bytes, ...]:
        """Return pieces of which `b",".join` makes what it makes of the data of all resources."""
        return tuple(piece.data for piece in self.pieces(resources))

    def pieces(self, resources: Sequence[ResourceState]) -> Sequence[Piece]:
        """Return the same as pieces of a file, each kept as long as it has the very same resources."""
        where = list(compress(count(), map(is_not, self._resources, resources)))
        if len(self._resources) != len(resources) or len(where) > _FEW:
            self._join_all(resources)
        else:
            self._join_again(resources, {bisect_right(self._starts, place) - 1 for place in where})
        self._resources = resources
        return self._pieces

    def _join_all(self, resources: Sequence[ResourceState]) -> None:
        known = {id(piece[0][0]): number for number, piece in enumerate(self._joined)}
        before, pieces = self._joined, self._pieces
        self._joined = list(_pieces(resources, {name: before[number] for name, number in known.items()}))
        self._starts = [0, *accumulate(len(some) for some, _ in self._joined)][:-1]
        last = len(self._joined) - 1
        self._pieces = [
            _as_before(pieces, known.get(id(piece[0][0]), -1), _piece_of(piece[1], is_last=number == last))
            for number, piece in enumerate(self._joined)
        ]

    def _join_again(self, resources: Sequence[ResourceState], numbers: set[int]) -> None:
        """Join the pieces of these numbers again, of as many resources as before."""
        self._joined, self._pieces = [*self._joined], [*self._pieces]
        for number in numbers:
            start = self._starts[number]
            some = tuple(resources[start : start + len(self._joined[number][0])])
            self._joined[number] = some, b",".join(map(_DATA, some))
            self._pieces[number] = _piece_of(self._joined[number][1], is_last=number == len(self._joined) - 1)


def _piece_of(data: bytes, *, is_last: bool) -> Piece:
    return Piece(data, 1, b"" if is_last else b",")


def _as_before(pieces: Sequence[Piece], number: int, piece: Piece) -> Piece:
    """Return the piece of that number where it has the very same bytes, else this one."""
    before = pieces[number] if number >= 0 else piece
    return before if before.data is piece.data and before.separator == piece.separator else piece


def _pieces(resources: Sequence[ResourceState], known: dict[int, _Piece]) -> Iterator[_Piece]:
    start = 0
    while start < len(resources):
        piece = known.get(id(resources[start]))
        if piece is None or not _is_kept(piece[0], resources, start, known):
            end = _end(resources, start, known)
            some = tuple(resources[start:end])
            piece = some, b",".join(map(_DATA, some))
        yield piece
        start += len(piece[0])


def _is_kept(
    some: tuple[ResourceState, ...], resources: Sequence[ResourceState], start: int, known: dict[int, _Piece]
) -> bool:
    """Return whether a piece stands here, and isn't a short one that takes in what is new behind it."""
    end = start + len(some)
    there = resources[start:end]
    if len(there) < len(some) or not all(map(is_, some, there)):
        return False
    return len(some) > _MOST // 2 or end == len(resources) or id(resources[end]) in known


def _end(resources: Sequence[ResourceState], start: int, known: dict[int, _Piece]) -> int:
    """Return where a new piece ends: before the next one that is known, so that those behind a change are kept."""
    most = min(start + _MOST, len(resources))
    return next((end for end in range(start + 1, most) if id(resources[end]) in known), most)
