"""Random histories by the official Pulumi CLI, by `locallb`, and by both in turns: the states are the same.

LOCALLB_HISTORIES says how many, LOCALLB_SEED with which the first one is drawn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from tests.support.histories import Moment, facts, history
from tests.support.official_cli import bring, content, make_runnable, make_stack, needs_cli, update
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.pulumi, needs_cli]

FIRST = int(os.environ.get("LOCALLB_SEED") or 0)
COUNT = int(os.environ.get("LOCALLB_HISTORIES") or 3)
ENGINES = ("locallb", "pulumi")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_history_ends_in_the_same_states_whoever_brings_it_about(play: Stage, seed: int) -> None:
    """URNs, types, inputs, outputs and dependencies, after each moment; and nothing is left to do."""
    make_runnable(play.root)
    make_stack(play)
    moments = history(random.Random(seed))
    in_turns = ENGINES if seed % 2 else ENGINES[::-1]
    states = {ways: _brought_about(play, moments, ways) for ways in (("locallb",), ("pulumi",), in_turns)}
    for number, moment in enumerate(moments):
        for ways, found in states.items():
            assert found[number] == states["locallb",][number], f"{ways}, moment {number}: {moment}"


def _brought_about(stage: Stage, moments: Sequence[Moment], engines: Sequence[str]) -> Sequence[object]:
    """Go through a history by engines in turns, and destroy the stack; return its state after each moment."""
    states = []
    for number, moment in enumerate(moments):
        moment.apply(stage)
        bring(stage, engines[number % len(engines)])
        states.append(facts(stage))
    if len(engines) > 1:
        content(stage)
        update(stage, "destroy")
    else:
        assert stage.run("destroy", "--yes").code == 0
    assert envoys(stage.root) == []
    return states
