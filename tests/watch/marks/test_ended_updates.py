"""What the loop looks through again after an update: all of the state where it was written, nothing where it wasn't."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.model.identities import Home
from locallb.watch.events import Cause, Mark
from locallb.watch.planner import Planner
from locallb.watch.triggers import Triggers


class Stack:
    """An engine's state, and how often all of its resources were asked for."""

    def __init__(self) -> None:
        self.stamp, self.requested = 1, 0

    def resources(self) -> tuple[()]:
        self.requested += 1
        return ()


@pytest.fixture
def stack() -> Stack:
    return Stack()


@pytest.fixture
def planner(stack: Stack, tmp_path: Path) -> Planner:
    """Make one that has just started and knows that stack."""
    engine = cast("Engine", SimpleNamespace(state_stamp=lambda: stack.stamp, resources=stack.resources))
    triggers = Triggers(Home("p", "s", str(tmp_path)), tmp_path / "stack.yaml", lambda _mark: None)
    triggers._watched = settings = Settings((), ())
    made = Planner(Home("p", "s", str(tmp_path)), engine, lambda: settings, lambda _mark: None, triggers)
    assert made.open((Mark(Cause.START),))
    made.updated()
    stack.requested = 0
    return made


def test_an_update_that_wrote_nothing_has_the_state_not_looked_through_again(stack: Stack, planner: Planner) -> None:
    """A start looks at fifty Services at a time: with 5,000 all resources would be gone through 100 times."""
    for _ in range(100):
        planner.ended()
    assert stack.requested == 0


def test_after_one_that_wrote_it_the_runs_in_it_are_followed(stack: Stack, planner: Planner) -> None:
    """Once, and what was held is read again."""
    stack.stamp = 2
    for _ in range(2):
        planner.ended()
    assert stack.requested == 1


def test_state_is_read_again_after_an_update_that_broke_off(stack: Stack, planner: Planner) -> None:
    """Its effects may be in the journal only, which no stamp of the state shows."""
    planner.invalidate_state()
    planner.ended()
    assert stack.requested == 1


def test_a_runtime_that_reports_ends_again_learns_which_runs_to_follow(stack: Stack, planner: Planner) -> None:
    """Also where nothing was written meanwhile."""
    assert planner.open((Mark(Cause.RUNTIME, "docker"),))
    planner.updated()
    assert stack.requested == 1


def test_configuration_is_read_again_after_others_wrote_the_state(stack: Stack, planner: Planner) -> None:
    """It says which components of a program there still are, also where that was seen by an update of ours."""
    loads: list[int] = []

    def load() -> Settings:
        loads.append(stack.stamp)
        return Settings((), ())

    planner.load = load
    planner.open((Mark(Cause.SOURCE, "c"),))
    assert loads == []
    stack.stamp = 2
    assert planner.open((Mark(Cause.SOURCE, "c"),))
    planner.updated()
    assert loads == [2]
    stack.stamp = 3
    planner.ended()
    planner.open((Mark(Cause.SOURCE, "c"),))
    assert loads == [2]
    assert planner.open((Mark(Cause.SOURCE, "c"),), overtaken=True)
    assert loads == [2, 3]
