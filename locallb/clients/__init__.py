"""The only code that touches the world: one module per world, one error class each."""

from __future__ import annotations


class ClientError(Exception):
    """The world can't be read or changed as asked: one sentence. Each module of this package has its own kind."""
