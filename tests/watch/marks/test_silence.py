"""When an unanswered question means that an Envoy hangs, and when it is replaced: tables, and a law over histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.envoy.document import reading_time
from locallb.model.pacing import Backoff
from locallb.watch.hangs import BUSY_TIMEOUT, REPLACEMENTS, TIMEOUT, Sighting, Silence, replaced_after

IDLE, AT_WORK, UNSEEN = Sighting.IDLE, Sighting.AT_WORK, Sighting.UNSEEN
SECOND = 1.0
MAX = 300
"""Sights a second apart, more than any case takes."""


@pytest.mark.parametrize(
    ("sights", "size", "after"),
    [
        ([IDLE], 0, TIMEOUT),
        ([IDLE], 5_000_000, TIMEOUT),
        ([AT_WORK], 0, BUSY_TIMEOUT),
        ([UNSEEN], 0, BUSY_TIMEOUT),
        ([AT_WORK], 2_000_000, BUSY_TIMEOUT + reading_time(2_000_000)),
        ([AT_WORK] * 3 + [IDLE], 0, 3 + TIMEOUT),
        ([*([IDLE] * 4), AT_WORK, IDLE], 0, 5 + TIMEOUT),
        ([IDLE, UNSEEN] * MAX, 0, BUSY_TIMEOUT),
    ],
)
def test_silence_of_an_idle_process_counts_soon_and_that_of_others_once_nothing_can_take_so_long(
    sights: list[Sighting], size: int, after: float
) -> None:
    """Seen each second; the last sight goes on."""
    silence, now = Silence.begun(0.0), 0.0
    following = iter([*sights, *([sights[-1]] * MAX)])
    while not silence.is_hang(now, lambda: size):
        now += SECOND
        silence = silence.observed(now, next(following))
    assert now == after


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from(Sighting)), max_size=60), st.integers(0, 5_000_000))
def test_a_hang_is_a_question_long_ago_of_a_process_that_did_nothing_since_or_could_have_read_all_its_files(
    history: list[tuple[float, Sighting]], size: int
) -> None:
    """It never is one before PATIENCE, always one in the end, and stays one while the process does nothing."""
    silence, now, stirred, hung = Silence.begun(0.0), 0.0, 0.0, False
    for gap, sighting in history:
        now += gap
        stirred = stirred if sighting is IDLE else now
        silence = silence.observed(now, sighting)
        hangs = silence.is_hang(now, lambda: size)
        longest = BUSY_TIMEOUT + reading_time(size)
        if now < TIMEOUT:
            assert not hangs
        if now - stirred >= TIMEOUT or now >= longest + 1e-6:
            assert hangs
        elif now < longest - 1e-6:
            assert not hangs
        assert hangs or not hung or sighting is not IDLE
        hung = hangs


def test_an_envoy_that_hangs_again_within_a_minute_is_replaced_later_each_time() -> None:
    """The first time at once, then after twice the time, and so on, never later than the pace has it."""
    hangs, now, waits = Backoff(REPLACEMENTS), 0.0, list[float]()
    for _ in range(12):
        hangs = hangs.failed(now, 0.0)
        waits.append(replaced_after(hangs))
        now += 1.0
        hangs = hangs.succeeded(now)
        now += REPLACEMENTS.idle - 1
    assert waits[:4] == [0.0, TIMEOUT, 3 * TIMEOUT, 7 * TIMEOUT]
    assert max(waits) == REPLACEMENTS.longest - REPLACEMENTS.first
    assert replaced_after(hangs.succeeded(now).failed(now + 1, 0.0)) == 0.0, "it was well for more than a minute"
