"""The resources of a state file as pieces of bytes, of which those of the very same blocks of resources are kept.

Between two writings nearly all blocks are the same ones: only the pieces of the others are joined again. The pieces
together are the bytes that all resources joined at once give (a law in the tests). Not here: the file, and the blocks.
"""

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from locallb.engine.state.blocks import Block, Blocks
from locallb.engine.state.slots import Piece

_DATA = attrgetter("data")


class JoinedResources:
    """Knows the pieces of the last writing. For one thread at a time."""

    def __init__(self) -> None:
        self._joined: dict[int, tuple[Block, Piece]] = {}
        """By the identity of the block, which is kept so that it stays its own."""

    def pieces(self, blocks: Blocks) -> Sequence[Piece]:
        """Return pieces of a file that are the data of all resources, separated by commas.

        Each but the last is the very same as long as its block is.
        """
        self._joined = {id(block): self._joined.get(id(block)) or (block, _join(block)) for block in blocks}
        pieces = [piece for _, piece in self._joined.values()]
        pieces[-1:] = [replace(last, separator=b"") for last in pieces[-1:]]
        return pieces


def _join(block: Block) -> Piece:
    return Piece(b",".join(map(_DATA, block)), cut=1, separator=b",")
