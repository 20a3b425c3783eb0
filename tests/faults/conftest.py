"""Fixtures of the table of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.support import Pair, deployed
from tests.support.backends import Backend


@pytest.fixture
def pair(backend: Callable[..., Backend]) -> Iterator[Pair]:
    """Return a deployed stack of two Services."""
    with deployed(backend) as made:
        yield made
