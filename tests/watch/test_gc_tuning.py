"""Python's collector while memory is filled: kept away, and back afterwards whatever happened."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from locallb.watch import gc_tuning


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """Leave nothing set aside."""
    yield
    gc.unfreeze()


def test_objects_made_while_filling_are_frozen_for_the_collector() -> None:
    """No collection happens meanwhile, and what was made is out of sight afterwards."""
    with gc_tuning.filling():
        collections = [each["collections"] for each in gc.get_stats()]
        made = [[number] for number in range(20_000)]
        assert [each["collections"] for each in gc.get_stats()] == collections
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_failure_while_filling_turns_the_collector_on_again() -> None:
    """A start that can't read is tried again, perhaps for hours."""
    with suppress(OSError), gc_tuning.filling():
        raise OSError
    assert gc.isenabled()
