"""Engines and stacks of the tests of containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.backends import Backend
from tests.support.container_engines import engine, image, network
from tests.support.containers import furnish, own_pool, word
from tests.support.stages import Stage, stage

__all__ = ["engine", "image", "network"]


@pytest.fixture
def shop(image: str, backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Return a stack of two Services in containers, not deployed yet."""
    with stage() as play:
        furnish(play, image, backend)
        yield play


@pytest.fixture
def play(image: str) -> Iterator[Stage]:
    """Return a stage for containers, with a pool that nobody else uses."""
    with stage() as made:
        made.configure(runtime=word(), image=image, pools=own_pool())
        yield made
