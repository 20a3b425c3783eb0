"""The resources of a state file as pieces of bytes, of which those that have the very same resources are kept.

Between two writings nearly all resources are the same ones: only the pieces that what changed is in are joined again.
The pieces together are the bytes that all resources joined at once give (a law in the tests). Not here: the file.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, compress, count
from operator import attrgetter, is_, is_not

from locallb.engine.state.resource import ResourceState
from locallb.engine.state.slots import Piece

_MOST = 64
"""Resources of a piece: one change joins that many, and each piece is a write."""
_FEW = 16
"""Resources that are looked for one by one."""
_Joined = tuple[tuple[ResourceState, ...], Piece]
_DATA = attrgetter("data")


class JoinedResources:
    """Knows the pieces of the last writing. For one thread at a time."""

    def __init__(self) -> None:
        self._resources: tuple[ResourceState, ...] = ()
        self._joined: list[_Joined] = []
        self._starts: list[int] = []
        """Where each piece begins among the resources."""

    def pieces(self, resources: tuple[ResourceState, ...]) -> Sequence[Piece]:
        """Return pieces of a file that are the data of all resources, separated by commas.

        Each but the last is the very same as long as it has the very same resources.
        """
        where = list(compress(count(), map(is_not, self._resources, resources)))
        if len(self._resources) != len(resources) or len(where) > _FEW:
            self._join_all(resources)
        else:
            self._join_again(resources, {bisect_right(self._starts, place) - 1 for place in where})
        self._resources = resources
        pieces = [piece for _, piece in self._joined]
        pieces[-1:] = [replace(last, separator=b"") for last in pieces[-1:]]
        return pieces

    def _join_all(self, resources: Sequence[ResourceState]) -> None:
        self._joined = list(_pieces(resources, {id(some[0]): (some, piece) for some, piece in self._joined}))
        self._starts = [0, *accumulate(len(some) for some, _ in self._joined)][:-1]

    def _join_again(self, resources: Sequence[ResourceState], numbers: set[int]) -> None:
        """Join the pieces of these numbers again, of as many resources as before."""
        for number in numbers:
            start = self._starts[number]
            self._joined[number] = _join(resources[start : start + len(self._joined[number][0])])


def _join(resources: Sequence[ResourceState]) -> _Joined:
    some = tuple(resources)
    return some, Piece(b",".join(map(_DATA, some)), cut=1, separator=b",")


def _pieces(resources: Sequence[ResourceState], known: Mapping[int, _Joined]) -> Iterator[_Joined]:
    start = 0
    while start < len(resources):
        joined = known.get(id(resources[start]))
        if joined is None or not _is_kept(joined[0], resources, start, known):
            joined = _join(resources[start : _end(resources, start, known)])
        yield joined
        start += len(joined[0])


def _is_kept(
    some: tuple[ResourceState, ...], resources: Sequence[ResourceState], start: int, known: Mapping[int, _Joined]
) -> bool:
    """Return whether a piece stands here, and isn't a short one that takes in what is new behind it."""
    end = start + len(some)
    there = resources[start:end]
    if len(there) < len(some) or not all(map(is_, some, there)):
        return False
    return len(some) > _MOST // 2 or end == len(resources) or id(resources[end]) in known


def _end(resources: Sequence[ResourceState], start: int, known: Mapping[int, _Joined]) -> int:
    """Return where a new piece ends: before the next one that is known, so that those behind a change are kept."""
    most = min(start + _MOST, len(resources))
    return next((end for end in range(start + 1, most) if id(resources[end]) in known), most)
