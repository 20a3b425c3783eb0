"""Python's collector while memory is filled: kept away, and back afterwards whatever happened."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from locallb.watch import loop


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """Leave nothing set aside, and the collector as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_objects_made_while_filling_are_frozen_for_the_collector() -> None:
    """No collection happens meanwhile, and what was made is out of sight afterwards."""
    with loop.filling():
        collections = [each["collections"] for each in gc.get_stats()]
        made = [[number] for number in range(20_000)]
        assert [each["collections"] for each in gc.get_stats()] == collections
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_failure_while_filling_turns_the_collector_on_again() -> None:
    """A start that can't read is tried again, perhaps for hours."""
    with suppress(OSError), loop.filling():
        raise OSError
    assert gc.isenabled()


def test_an_event_after_a_start_makes_too_little_to_be_looked_through() -> None:
    """A table of 5,000 Services is gone through with whatever is new; the older generations keep their turns."""
    later = gc.get_threshold()[1:]
    with loop.filling():
        pass
    collections = [each["collections"] for each in gc.get_stats()]
    made = [[number] for number in range(10_000)]
    assert [each["collections"] for each in gc.get_stats()] == collections
    assert gc.get_threshold()[1:] == later
    del made
