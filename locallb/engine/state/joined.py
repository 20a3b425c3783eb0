"""The resources of a state file as pieces of bytes, of which those that have the very same resources are kept.

Between two writings nearly all resources are the same ones: only the pieces that what changed is in are joined again.
The pieces together are the bytes that all resources joined at once give (a law in the tests). Not here: the file.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter, is_

from locallb.engine.state.resource import ResourceState

_MOST = 64
"""Resources of a piece: one change joins that many, and each piece is a write."""
_Piece = tuple[tuple[ResourceState, ...], bytes]
_DATA = attrgetter("data")


class JoinedResources:
    """Knows the pieces of the last writing. For one thread at a time."""

    def __init__(self) -> None:
        self._pieces: dict[int, _Piece] = {}
        """By the identity of the first resource of each, which is kept with it."""

    def of(self, resources: Sequence[ResourceState]) -> tuple[bytes, ...]:
        """Return pieces of which `b",".join` makes what it makes of the data of all resources."""
        pieces = list(_pieces(resources, self._pieces))
        self._pieces = {id(piece[0][0]): piece for piece in pieces}
        return tuple(data for _, data in pieces)


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
