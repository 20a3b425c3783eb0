"""The resources of a snapshot in blocks: between two listings only those blocks differ in which something changed.

Whoever compares two listings compares their blocks by identity, and looks only at the members of those that are not the
very same. All blocks joined are the resources in their order (a law in the tests). Not here: the order (`snapshot`).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from operator import is_
from typing import TypeAlias

from locallb.engine.state.resource import ResourceState

MOST = 64
"""Resources of a block."""
_SPARE = 16
"""Blocks more than needed that are kept before all is cut again."""
Block: TypeAlias = tuple[ResourceState, ...]
Blocks: TypeAlias = tuple[Block, ...]


class Listing:
    """Knows the blocks of the last listing, and which are no longer true. For one thread at a time.

    `live` are the resources in order, `positions` where each stands: numbers that only grow along the order.
    """

    def __init__(self, live: dict[str, ResourceState], positions: Mapping[str, int]) -> None:
        self._live = live
        self._positions = positions
        self._blocks: list[Block] = []
        self._starts: list[int] = []
        """The position of the first resource that each block may have."""
        self._end = 0
        """Positions from here on have not been listed yet."""
        self._changed: set[int] = set()
        """Numbers of blocks that are no longer true."""

    def changed(self, position: int) -> None:
        """Note that the resource at this position is another one, or gone."""
        if position < self._end:
            self._changed.add(bisect_right(self._starts, position) - 1)

    def reordered(self, live: dict[str, ResourceState], positions: Mapping[str, int]) -> "Listing":
        """Return one for resources in another order; blocks that have the very same resources all the same are kept."""
        after = Listing(live, positions)
        after._cut(self._blocks)
        return after

    def blocks(self) -> Blocks:
        """List the resources."""
        for number in self._changed:
            self._blocks[number] = self._members(number)
        if not all(self._blocks[number] for number in self._changed):
            self._place([block for block in self._blocks if block])
        self._changed.clear()
        self._append()
        if len(self._blocks) > _SPARE + 2 * len(self._live) // MOST:
            self._cut(self._blocks)
        return tuple(self._blocks)

    def _members(self, number: int) -> Block:
        """Return those of a block that still stand there, each as it is now."""
        start = self._starts[number]
        end = self._starts[number + 1] if number + 1 < len(self._starts) else self._end
        urns = (resource.urn for resource in self._blocks[number])
        return tuple(self._live[urn] for urn in urns if start <= self._positions.get(urn, -1) < end)

    def _append(self) -> None:
        """Add what came since the last listing: it stands behind all the others."""
        backwards = reversed(self._live.values())
        new = [*takewhile(lambda resource: self._positions[resource.urn] >= self._end, backwards)][::-1]
        if not new:
            return
        if self._blocks and len(self._blocks[-1]) < MOST:
            new = [*self._blocks.pop(), *new]
        self._place([*self._blocks, *(tuple(new[at : at + MOST]) for at in range(0, len(new), MOST))])

    def _cut(self, known: Sequence[Block]) -> None:
        """Cut all resources again; what stands as it did in a full enough known block stays in that very one."""
        by_first = {id(block[0]): block for block in known if len(block) > MOST // 2}
        self._place([*_blocks_of(tuple(self._live.values()), by_first)])

    def _place(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._starts = [self._positions[block[0].urn] for block in blocks]
        self._end = self._positions[blocks[-1][-1].urn] + 1 if blocks else 0


def the_very_same(block: Block, other: Block) -> Block:
    """Return the first of two blocks if both have the very same members, otherwise the second."""
    return block if len(block) == len(other) and all(map(is_, block, other)) else other


def _blocks_of(resources: Block, known: Mapping[int, Block]) -> Iterator[Block]:
    """Cut resources into blocks; `known` are those of the last listing, by the identity of their first member."""
    start = 0
    while start < len(resources):
        block = known.get(id(resources[start]))
        if block is None or not _stands(block, resources, start):
            block = resources[start : _end(resources, start, known)]
        yield block
        start += len(block)


def _stands(block: Block, resources: Block, start: int) -> bool:
    return the_very_same(block, resources[start : start + len(block)]) is block


def _end(resources: Block, start: int, known: Mapping[int, Block]) -> int:
    """Return where a new block ends: before the next one that is known, so that those behind a change are kept."""
    most = min(start + MOST, len(resources))
    return next((end for end in range(start + 1, most) if id(resources[end]) in known), most)
