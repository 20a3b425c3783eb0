"""When something is tried again: laws over random histories of attempts."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from locallb.model.pacing import Backoff, Credit, Pace, Quota

chances = st.floats(0, 1)
seconds = st.floats(0, 1000)
SLACK = 1e-6
"""Seconds by which sums of floats may differ."""


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    first = draw(st.floats(0.01, 5))
    return Pace(
        first,
        longest=first + draw(st.floats(0, 600)),
        factor=draw(st.floats(1, 10)),
        floor=draw(st.floats(0, 5)),
        idle=draw(st.floats(0, 100)),
        spread=draw(st.floats(0, 1)),
    )


def longest_wait(pace: Pace) -> float:
    """Return the seconds that nothing may ever have to wait longer than."""
    return max(pace.floor, pace.longest * (1 + pace.spread))


def ended(backoff: Backoff, now: float, how: float | None) -> Backoff:
    """Note the end of an attempt: failed by this chance, or succeeded."""
    return backoff.succeeded(now) if how is None else backoff.failed(now, how)


attempts = st.lists(st.tuples(st.none() | chances, st.floats(0, 50), st.floats(0, 5), st.booleans()), max_size=40)
"""Each by how it ends, how late it begins, how long it takes, and whether somebody is in a hurry after it."""


@given(paces(), attempts)
def test_attempts_are_never_closer_than_the_floor(
    pace: Pace, history: list[tuple[float | None, float, float, bool]]
) -> None:
    """However attempts end, however long they take, and whichever are hurried."""
    backoff, now, last = Backoff(pace), 0.0, -math.inf
    for how, late, took, hurry in history:
        now += backoff.wait(now) + late
        assert backoff.is_due(now + SLACK)
        assert now - last >= pace.floor - SLACK
        now = last = now + took
        backoff = ended(backoff, now, how)
        backoff = backoff.expedited(now) if hurry else backoff


@given(paces(), attempts)
def test_next_attempt_is_due_after_the_longest_wait_at_latest(
    pace: Pace, history: list[tuple[float | None, float, float, bool]]
) -> None:
    """After any history of attempts."""
    backoff, now = Backoff(pace), 0.0
    assert backoff.is_due(now)
    for how, late, took, _hurry in history:
        now += backoff.wait(now) + late + took
        backoff = ended(backoff, now, how)
        assert backoff.is_due(now + longest_wait(pace) + SLACK)


@given(paces(), st.integers(1, 200), chances)
def test_waits_grow_with_each_failure_up_to_the_longest(pace: Pace, times: int, chance: float) -> None:
    """Never shorter than the first, never longer than the longest and what chance adds."""
    backoff, waits = Backoff(pace), []
    for _ in range(times):
        backoff = backoff.failed(0.0, chance)
        waits.append(backoff.wait(0.0))
    assert all(before <= after + SLACK for before, after in pairwise(waits))
    assert waits[0] >= max(pace.first, pace.floor) - SLACK
    assert waits[-1] <= longest_wait(pace) + SLACK
    assert backoff.failures == times


@given(paces(), st.integers(1, 20), seconds)
def test_failures_are_forgotten_once_success_has_lasted(pace: Pace, times: int, lasted: float) -> None:
    """What succeeds for a moment and fails again waits longer each time; what was calm waits as at first."""
    backoff = Backoff(pace)
    for _ in range(times):
        backoff = backoff.failed(0.0, 0)
    retry = backoff.succeeded(0.0).succeeded(lasted / 2).failed(lasted, 0)
    assume(abs(lasted - pace.idle) > SLACK)
    assert retry.failures == (1 if lasted > pace.idle else times + 1)


@given(paces(), st.integers(1, 20), chances, seconds)
def test_hurry_only_ever_brings_the_next_attempt_forward_and_keeps_the_count(
    pace: Pace, times: int, chance: float, later: float
) -> None:
    """It never goes below the floor, which other laws show; it doesn't put anything off."""
    backoff = Backoff(pace)
    for _ in range(times):
        backoff = backoff.failed(0.0, chance)
    expedited = backoff.expedited(later)
    assert expedited.not_before <= backoff.not_before
    assert expedited.is_due(max(later, pace.floor))
    assert expedited.failures == backoff.failures


@given(paces(), st.integers(0, 20), chances)
def test_chance_only_lengthens_a_wait_by_the_spread(pace: Pace, failures: int, chance: float) -> None:
    """What failed together is spread; nothing is tried earlier for it."""
    certain = pace.delay(failures)
    assert certain <= pace.delay(failures, chance) <= certain * (1 + pace.spread) + SLACK


@pytest.mark.parametrize(
    ("pace", "delays"),
    [
        (Pace(1.0, longest=10.0), [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]),
        (Pace(0.5, longest=5.0, factor=3.0, floor=1.0), [1.0, 1.0, 1.5, 4.5, 5.0, 5.0]),
        (Pace(2.0, longest=2.0, floor=3.0), [3.0, 3.0, 3.0]),
    ],
)
def test_each_failure_multiplies_the_wait_from_the_first_to_the_longest(pace: Pace, delays: list[float]) -> None:
    """By the number of failures in a row, from none on; never under the floor."""
    assert [pace.delay(failures) for failures in range(len(delays))] == delays


def test_where_success_need_not_last_it_ends_the_row_at_once() -> None:
    """The next failure is the first; where it must last, from that moment on."""
    failed = Backoff(Pace(1.0, longest=10.0)).failed(0.0, 0).failed(0.0, 0)
    assert failed.succeeded(5.0).failures == 0
    assert failed.succeeded(5.0).failed(5.0, 0).not_before == 6.0
    idle = Backoff(Pace(1.0, longest=10.0, idle=3.0)).failed(0.0, 0).failed(0.0, 0).succeeded(5.0)
    assert [idle.succeeded(now).failures for now in (7.9, 8.0)] == [2, 0]
    assert [idle.is_idle(now) for now in (7.9, 8.0)] == [False, True]


@given(st.integers(1, 9), st.integers(0, 3), st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=80))
def test_quota_bounds_the_turns_in_any_second(maximum: int, owed: int, history: list[tuple[float, bool]]) -> None:
    """A request waits for the first free turn; owed requests have additional ones."""
    quota, now, turns = Quota(maximum, owed=owed), 0.0, list[float]()
    for late, is_owed in history:
        now += late
        allowed = maximum + owed if is_owed else maximum
        seconds = quota.wait(now, is_owed=is_owed)
        assert (seconds > SLACK) == (sum(now - 1 + SLACK < at for at in turns) >= allowed) or seconds < 2 * SLACK
        now += seconds
        assert quota.wait(now, is_owed=is_owed) < SLACK
        quota.take(now)
        turns.append(now)
    for begun in turns:
        assert sum(begun <= at < begun + 1 - SLACK for at in turns) <= maximum + owed


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 20))
def test_changed_quota_counts_at_once_with_the_turns_taken_before(before: int, after: int, claimed: int) -> None:
    """As far as those are remembered."""
    quota = Quota(before)
    for _ in range(claimed):
        quota.take(0.0)
    quota.allow(after)
    assert (quota.wait(0.5) > 0) == (min(claimed, before) >= after)


NAMES = ("a", "b", "c")
changes = st.lists(st.tuples(st.floats(0, 3), st.sampled_from((None, None, *NAMES)), st.booleans()), max_size=80)
"""Each by how late it comes, who changes (None: a turn is taken instead), and whether that turn is owed."""


@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 3), st.floats(0.1, 5), changes)
def test_credit_adds_a_bounded_number_of_turns_within_its_lifetime(
    maximum: int, owed: int, each: int, life: float, history: list[tuple[float, str | None, bool]]
) -> None:
    """However often one changes: a second has at most the common turns and those of credits that are still valid."""
    quota, now, turns, brought = Quota(maximum, 1.0, owed, Credit(each, life)), 0.0, list[float](), list[float]()
    ends = dict.fromkeys(NAMES, -math.inf)
    for late, party, is_owed in history:
        now += late
        if party is not None:
            quota.bring(party, now)
            brought += [now] if ends[party] <= now else []
            ends[party] = now + life if ends[party] <= now else ends[party]
            continue
        now += quota.wait(now, is_owed=is_owed)
        quota.take(now, is_owed=is_owed)
        turns.append(now)
    for begun in turns:
        good = sum(begun - life < at < begun + 1 for at in brought)
        assert sum(begun <= at < begun + 1 - SLACK for at in turns) <= maximum + owed + each * good


@given(st.integers(1, 4), st.integers(0, 3), st.lists(st.sampled_from(NAMES)), st.floats(0, 4.9))
def test_each_change_adds_its_credit_of_turns_exactly_once(
    maximum: int, each: int, party: list[str], late: float
) -> None:
    """Besides the common turns, while the credit is valid; and not one more."""
    quota = Quota(maximum, credit=Credit(each, 5.0))
    for name in party:
        quota.bring(name, 0.0)
    for _ in range(maximum + each * len(set(party))):
        assert quota.wait(late) == 0.0
        quota.take(late)
    assert quota.wait(late) == pytest.approx(1.0)


@given(st.integers(1, 4), st.floats(0, 20))
def test_turns_that_were_brought_and_not_taken_are_lost_in_the_end(each: int, late: float) -> None:
    """They help nobody later."""
    quota = Quota(1, credit=Credit(each, 5.0))
    quota.bring("a", 0.0)
    quota.take(late)
    assert (quota.wait(late) == 0.0) == (late < 5.0)
