"""Random histories of stacks by `locallb`, and by both engines in turns and killed in between: the states are the same.

LOCALLB_HISTORIES says how many, LOCALLB_SEED with which the first one is drawn.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import pytest

from tests.e2e.killing import kill_in_the_middle
from tests.support.histories import Moment, Turn, facts, history, turns
from tests.support.official_cli import (
    bring,
    content,
    end_session,
    make_runnable,
    make_stack,
    needs_cli,
    pulumi,
    start,
    update,
)
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.pulumi, needs_cli]

FIRST = int(os.environ.get("LOCALLB_SEED") or 0)
COUNT = int(os.environ.get("LOCALLB_HISTORIES") or 3)
ENGINES = {"locallb": 2.5, "pulumi": 9.0}
"""Seconds that an update takes at most until it is killed."""


@pytest.fixture
def both(play: Stage) -> Iterator[Stage]:
    """Return a project that the CLI can run as well, whose user has an authority."""
    with patch.dict(os.environ, XDG_DATA_HOME=str(play.root / "d")):
        make_runnable(play.root)
        yield play


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_history_ends_in_the_same_states_whoever_brings_it_about(both: Stage, seed: int) -> None:
    """URNs, types, inputs, outputs and dependencies, after each moment; and nothing is left to do."""
    chance = random.Random(seed)
    moments = history(chance)
    drawn = turns(chance, tuple(ENGINES), len(moments))
    make_stack(both)
    expected = _brought_about(both, moments, [Turn("locallb")] * len(moments))
    found = _brought_about(both, moments, drawn)
    for number, moment in enumerate(moments):
        (said, state), (also_said, same) = expected[number], found[number]
        assert same == state, f"{drawn[: number + 1]}, moment {number}: {moment}\n{said}\n{also_said}"


def _brought_about(stage: Stage, moments: Sequence[Moment], drawn: Sequence[Turn]) -> Sequence[tuple[str, object]]:
    """Go through a history, and destroy the stack; return what each moment's update said, and the state after it."""
    states = []
    for moment, turn in zip(moments, drawn, strict=True):
        if turn.crashed is not None and (pids := sorted(envoys(stage.root))):
            os.kill(pids[turn.crashed % len(pids)], signal.SIGKILL)
        moment.apply(stage)
        if turn.killed:
            _killed(stage, turn)
        said = bring(stage, turn.by)
        states.append((said.out + said.err, facts(stage)))
    if any(turn.by == "pulumi" for turn in drawn):
        content(stage)
        update(stage, "destroy")
    else:
        assert stage.run("destroy", "--yes").code == 0
    assert envoys(stage.root) == []
    return states


def _killed(stage: Stage, turn: Turn) -> None:
    """Kill an engine in the middle of its update; after that, do what the documentation says to before the next one."""
    seconds = turn.after * ENGINES[turn.killed]
    if turn.killed == "locallb":
        kill_in_the_middle(stage, "up", seconds)
    else:
        with start(stage, "up", "--yes", "--skip-preview") as process:
            time.sleep(seconds)
            end_session(process)
    if turn.by == "pulumi" and turn.killed == "locallb":
        stage.up()
    elif turn.by == "pulumi":
        done = pulumi(stage, "cancel", "--yes")
        assert done.code == 0, done.out + done.err
