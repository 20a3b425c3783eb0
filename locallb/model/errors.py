"""The base class of all errors of the outside world: their text is one sentence for the user."""

from __future__ import annotations


class ClientError(Exception):
    """The world can't be read or changed as asked: one sentence. Each module of this package has its own kind."""
