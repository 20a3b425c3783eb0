"""Fixtures of the table of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.support import Backend
from tests.faults.support import Pair, deployed


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    made: list[Backend] = []

    def make(name: str, address: str = "127.0.0.1", port: int = 0) -> Backend:
        made.append(Backend(name, address, port))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def pair(backend: Callable[..., Backend]) -> Iterator[Pair]:
    """Return a deployed stack of two Services."""
    with deployed(backend) as made:
        yield made
