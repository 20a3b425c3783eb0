"""A mistake of ours in the loop's thread: it begins again from the beginning, and ends only when it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from locallb.config.settings import Settings, SettingsError
from locallb.engine.engine import Engine
from locallb.model.identities import Home
from locallb.threads import SupervisedThread, Task
from locallb.watch.events import Cause, Failed, LoopEvent, Mark, Stopped
from locallb.watch.loop import Loop
from tests.support.waiting import becomes


class _Engine:
    readings = 0

    def cancel(self) -> None:
        """Nothing is under way."""

    def state_stamp(self) -> None:
        """There is no state."""


def loop(tmp_path: Path, answers: list[Exception], reported: list[LoopEvent]) -> Loop:
    """Make one whose configuration can't be read in these ways, one after the other; the last one stays."""

    def load() -> Settings:
        raise answers.pop(0) if len(answers) > 1 else answers[0]

    home = Home("p", "s", str(tmp_path))
    return Loop(home, cast("Engine", _Engine()), load, tmp_path / "stack.yaml", reported.append, observe=lambda _: {})


def test_a_loop_that_broke_off_begins_again_and_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """What it follows is followed on meanwhile; its end is told once."""
    reported: list[LoopEvent] = []
    made = loop(tmp_path, [KeyError("a mistake"), SettingsError(("broken",))], reported)
    thread = SupervisedThread(Task.LOOP, "loop", made.run)
    thread.start()
    becomes(
        lambda: any(isinstance(event, Failed) and event.sentence == "broken" for event in reported), lambda: reported
    )
    assert not any(isinstance(event, Stopped) for event in reported)
    thread.stop()
    made.stop()
    assert thread.join(20)
    assert [event for event in reported if isinstance(event, Stopped)] == [Stopped()]


def test_marks_that_wait_are_no_more_than_there_are_sorts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often something changes while an update takes long; each counts once when it ends."""
    made = loop(tmp_path, [SettingsError(("broken",))], [])
    monkeypatch.setattr(made, "_inspect", lambda: None)
    marks = [Mark(Cause.SOURCE, f"c{number}") for number in range(3)]
    for number in range(1000):
        made.mark(marks[number % 3])
    assert len(made._inbox) == 3
    made._take(*made._inbox.take())
    assert made._schedule.marks == set(marks)
    made.mark(marks[0])
    assert len(made._inbox) == 1
    made._planner.stop()


def test_marks_are_taken_although_a_look_is_due_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one proxy hangs, and each try takes longer than the wait before the next one."""
    made, observed = loop(tmp_path, [SettingsError(("broken",))], []), list[frozenset[Mark]]()
    news = Mark(Cause.SOURCE, "demo")

    def inspect() -> None:
        observed.append(made._schedule.marks)
        made._schedule = made._schedule.begun(0.0).reading(0.0)
        if len(observed) == 1:
            made.mark(news)
        else:
            made.stop()

    monkeypatch.setattr(made, "_inspect", inspect)
    made.run()
    assert observed[1:] == [{news}]
