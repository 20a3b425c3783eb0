"""When an unanswered question means that an Envoy hangs, and when it is replaced: tables, and a law over histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.envoy.document import reading_time
from locallb.model.pacing import Backoff
from locallb.watch.marks.silence import (
    PATIENCE,
    PATIENCE_AT_WORK,
    REPLACEMENTS,
    Sight,
    Silence,
    replaced_after,
)

IDLE, AT_WORK, UNSEEN = Sight.IDLE, Sight.AT_WORK, Sight.UNSEEN
SECOND = 1.0
MOST = 300
"""Sights a second apart, more than any case takes."""


@pytest.mark.parametrize(
    ("sights", "size", "after"),
    [
        ([IDLE], 0, PATIENCE),
        ([IDLE], 5_000_000, PATIENCE),
        ([AT_WORK], 0, PATIENCE_AT_WORK),
        ([UNSEEN], 0, PATIENCE_AT_WORK),
        ([AT_WORK], 2_000_000, PATIENCE_AT_WORK + reading_time(2_000_000)),
        ([AT_WORK] * 3 + [IDLE], 0, 3 + PATIENCE),
        ([*([IDLE] * 4), AT_WORK, IDLE], 0, 5 + PATIENCE),
        ([IDLE, UNSEEN] * MOST, 0, PATIENCE_AT_WORK),
    ],
)
def test_silence_of_an_idle_process_counts_soon_and_that_of_others_once_nothing_can_take_so_long(
    sights: list[Sight], size: int, after: float
) -> None:
    """Seen each second; the last sight goes on."""
    silence, now = Silence.begun(0.0), 0.0
    following = iter([*sights, *([sights[-1]] * MOST)])
    while not silence.is_hang(now, lambda: size):
        now += SECOND
        silence = silence.seen(now, next(following))
    assert now == after


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from(Sight)), max_size=60), st.integers(0, 5_000_000))
def test_a_hang_is_a_question_long_ago_of_a_process_that_did_nothing_since_or_could_have_read_all_its_files(
    history: list[tuple[float, Sight]], size: int
) -> None:
    """It never is one before PATIENCE, always one in the end, and stays one while the process does nothing."""
    silence, now, stirred, hung = Silence.begun(0.0), 0.0, 0.0, False
    for gap, sight in history:
        now += gap
        stirred = stirred if sight is IDLE else now
        silence = silence.seen(now, sight)
        hangs = silence.is_hang(now, lambda: size)
        longest = PATIENCE_AT_WORK + reading_time(size)
        if now < PATIENCE:
            assert not hangs
        if now - stirred >= PATIENCE or now >= longest + 1e-6:
            assert hangs
        elif now < longest - 1e-6:
            assert not hangs
        assert hangs or not hung or sight is not IDLE
        hung = hangs


def test_an_envoy_that_hangs_again_within_a_minute_is_replaced_later_each_time() -> None:
    """The first time at once, then after twice the time, and so on, never later than the pace has it."""
    hangs, now, waits = Backoff(REPLACEMENTS), 0.0, list[float]()
    for _ in range(12):
        hangs = hangs.failed(now, 0.0)
        waits.append(replaced_after(hangs))
        now += 1.0
        hangs = hangs.succeeded(now)
        now += REPLACEMENTS.calm - 1
    assert waits[:4] == [0.0, PATIENCE, 3 * PATIENCE, 7 * PATIENCE]
    assert max(waits) == REPLACEMENTS.longest - REPLACEMENTS.first
    assert replaced_after(hangs.succeeded(now).failed(now + 1, 0.0)) == 0.0, "it was well for more than a minute"
