"""What was found last by those who look again and again: how long it is waited for, and whose it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from locallb.model.identities import ClusterName
from locallb.sources.entries import MachinesFinder
from locallb.sources.kubernetes import nodes as last_readings
from locallb.sources.kubernetes.nodes import LastReadings, Pass

T = TypeVar("T")
ROOT = Path("/project")
FINDERS = [MachinesFinder(ClusterName(f"a{number}"), f"infra-a{number}") for number in range(10)]


def test_silent_finders_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of them delay a finding no longer than one does."""
    waited = [0.0]

    class Silent(threading.Condition):
        def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
            waited.append(timeout or 0.0)
            return predicate()

    monkeypatch.setattr(last_readings, "Condition", Silent)
    checks = LastReadings(lambda: sum(waited))
    for finder in FINDERS:
        checks.begin(finder, ROOT)
    assert [checks.find(finder, ROOT, 2.0) for finder in FINDERS] == [(True, None)] * len(FINDERS)
    assert sum(waited) == 2.0
    checks.begin(FINDERS[0], ROOT)
    checks.find(FINDERS[0], ROOT, 2.0)
    assert sum(waited) == 4.0  # who began later has as long


def test_late_result_of_an_ended_look_is_dropped() -> None:
    """After a reload another look runs for the same finder, and the former one's result comes late."""
    checks, (finder, *_) = LastReadings(), FINDERS
    former = checks.begin(finder, ROOT)
    checks.end(former)
    checks.note(former, Pass(failure="former"))
    assert checks.find(finder, ROOT, 0.0) == (False, None)
    present = checks.begin(finder, ROOT)
    checks.note(present, Pass())
    checks.note(former, Pass(failure="former"))
    checks.end(former)
    assert checks.find(finder, ROOT, 0.0) == (True, Pass())
    checks.end(present)
    assert checks.find(finder, ROOT, 0.0) == (False, None)
