"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.support import Backend, Stage, backends, stage


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project of its own, destroyed at the end."""
    with stage() as made:
        yield made


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    with backends() as make:
        yield make
