"""When the loop looks, and what it tries again: laws over random histories, and the cases worth reading."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.planning.model import ClusterName, ServiceKey
from locallb.watch.happenings import Cause, Mark
from locallb.watch.schedule import CALM, FIRST_RETRY, LAST_RETRY, LAST_WHOLE, LONGEST, QUIET, REST, Schedule, delay

A, B = (ServiceKey(ClusterName("c"), "n", name) for name in "ab")
MARK = Mark(Cause.SOURCE, "c")
chances = st.floats(0, 1)


def test_nothing_asks_for_a_look() -> None:
    """An idle loop waits for ever."""
    assert Schedule().look_at() is None


@given(st.lists(st.floats(0, 0.02), min_size=1, max_size=30))
def test_a_look_is_a_moment_after_the_last_mark_and_never_long_after_the_first(gaps: list[float]) -> None:
    """However marks follow each other."""
    schedule, now = Schedule(), 100.0
    for gap in gaps:
        now += gap
        schedule = schedule.marked(now, MARK)
    at = schedule.look_at()
    assert at is not None
    assert at == min(now + QUIET, 100.0 + gaps[0] + LONGEST)
    assert schedule.taken().look_at() is None


@given(st.integers(1, 60), chances)
def test_a_load_balancer_that_fails_again_and_again_waits_longer_each_time_and_never_too_long(
    times: int, chance: float
) -> None:
    """50 ms, doubling to 30 s, spread by a quarter at most."""
    schedule, waits = Schedule(), []
    for _ in range(times):
        schedule = schedule.ended(0.0, (), {A: "d"}, chance)
        waits.append(schedule.retries[A].at)
    assert FIRST_RETRY <= waits[0] <= FIRST_RETRY * 1.25
    assert all(before <= after for before, after in pairwise(waits))
    assert max(waits) <= LAST_RETRY * 1.25


def test_one_that_fails_holds_up_nobody_else() -> None:
    """Only that one waits, and only as long as it shall be the same."""
    schedule = Schedule().ended(10.0, (B,), {A: "d1"}, 0)
    assert schedule.waiting(10.0, {A: "d1", B: "x"}) == {A}
    assert schedule.waiting(10.0, {A: "d2", B: "x"}) == frozenset()
    assert schedule.waiting(10.0 + FIRST_RETRY, {A: "d1", B: "x"}) == frozenset()


def test_a_new_wish_starts_counting_anew() -> None:
    """Who fails with another wish than before waits as briefly as at first."""
    schedule = Schedule()
    for _ in range(10):
        schedule = schedule.ended(0.0, (), {A: "d1"}, 0)
    assert schedule.ended(0.0, (), {A: "d2"}, 0).retries[A].at == FIRST_RETRY


def test_success_forgets_the_failures_and_so_does_what_is_not_open_any_more() -> None:
    """Nothing is tried for ever."""
    failed = Schedule().ended(0.0, (), {A: "d", B: "d"}, 0)
    assert set(failed.ended(1.0, (A,), {}, 0).retries) == {B}
    assert set(failed.planned([A]).retries) == {A}
    assert failed.planned([]).look_at() is None


@given(st.integers(1, 40), chances)
def test_while_the_whole_fails_marks_wait_for_its_next_try(failures: int, chance: float) -> None:
    """A source that can't be read isn't read at every event."""
    schedule = Schedule()
    for _ in range(failures):
        schedule = schedule.broken(0.0, chance)
    at = schedule.marked(0.0, MARK).look_at()
    assert schedule.whole
    assert at == schedule.whole.at <= LAST_WHOLE
    assert schedule.planned([]).whole == schedule.whole
    assert schedule.well().whole is None


@pytest.mark.parametrize("cause", [Cause.CONFIGURATION, Cause.KUBECONFIG, Cause.KIND])
def test_what_may_have_mended_the_whole_does_not_wait_for_its_next_try(cause: Cause) -> None:
    """Whoever corrects a mistake sees at once whether it was the last one; if it wasn't, the count goes on."""
    schedule = Schedule()
    for _ in range(20):
        schedule = schedule.broken(0.0, 0)
    assert schedule.marked(1.0, MARK).look_at() == LAST_WHOLE
    mended = schedule.marked(1.0, Mark(cause))
    assert mended.look_at() == 1.0
    again = mended.taken().broken(1.0, 0)
    assert again.marked(1.0, MARK).look_at() == 1.0 + LAST_WHOLE


@given(st.lists(st.floats(0, 10), min_size=1, max_size=10), st.floats(0, 10))
def test_an_alarm_that_is_set_again_and_again_rings_when_it_was_to_at_first(times: list[float], now: float) -> None:
    """Looks that come meanwhile never put it off; it rings once."""
    schedule = Schedule()
    for at in times:
        schedule = schedule.alarmed(at, MARK)
    rung = schedule.rung(now)
    if now < times[0]:
        assert not rung.marks
        assert rung.rings_at() == times[0]
    else:
        assert rung.marks == {MARK}
        assert rung.rings_at() is None
        assert rung.taken().rung(now + 1).look_at() is None


def test_a_proxy_that_ends_is_repaired_at_once_and_one_that_ends_again_and_again_more_and_more_seldom() -> None:
    """A crash loop costs little; a calm proxy counts as new."""
    wanted = {A: "d"}
    schedule = Schedule().fell(0.0, A, wanted, 0)
    assert schedule.waiting(0.0, wanted) == frozenset()
    now, waits = 0.0, []
    for _ in range(4):
        schedule = schedule.ended(now, (A,), {}, 0, (A,))
        schedule = schedule.fell(now, A, wanted, 0)
        waits.append(schedule.retries[A].at - now)
        now = schedule.retries[A].at
    assert [round(wait, 6) for wait in waits] == [delay(n) for n in (1, 2, 3, 4)]
    calm = schedule.ended(now, (A,), {}, 0, (A,))
    assert calm.fell(now + CALM + 1, A, wanted, 0).waiting(now + CALM + 1, wanted) == frozenset()
    assert calm.fell(now, A, wanted, 0).waiting(now, wanted) == {A}
    assert calm.gone([A]).fell(now, A, wanted, 0).waiting(now, wanted) == frozenset()


def test_what_stands_in_the_way_on_the_host_is_looked_at_more_and_more_seldom() -> None:
    """Nobody tells that another process let a port go."""
    schedule = Schedule().hindered(0.0, "port 80 in use", 0)
    assert schedule.look_at() == FIRST_RETRY
    assert schedule.hindered(0.01, "port 80 in use", 0).look_at() == FIRST_RETRY
    later = schedule.hindered(FIRST_RETRY, "port 80 in use", 0)
    assert later.look_at() == FIRST_RETRY + delay(2)
    assert later.hindered(1.0, "port 81 in use", 0).look_at() == 1.0 + FIRST_RETRY
    assert later.hindered(1.0, "", 0).look_at() is None


def test_what_failed_of_a_cluster_that_is_back_is_tried_at_once() -> None:
    """The others go on waiting."""
    other = ServiceKey(ClusterName("other"), "n", "a")
    schedule = Schedule()
    for _ in range(10):
        schedule = schedule.ended(0.0, (), {A: "d", other: "d"}, 0)
    assert schedule.back([ClusterName("c")]).waiting(0.0, {A: "d", other: "d"}) == {other}
    assert schedule.back([]) == schedule


@given(st.lists(st.floats(0, 10), min_size=1, max_size=10), st.sampled_from([0.0, REST / 2, REST * 2, 60.0]))
def test_what_nobody_needs_yet_waits_for_a_calm_moment(gaps: list[float], pause: float) -> None:
    """As long as updates follow each other it waits; it never waits where nothing was updated yet."""
    schedule, now = Schedule(), 100.0
    assert schedule.calm_at(now, busy=False) <= now
    for gap in gaps:
        now += gap
        assert schedule.calm_at(now, busy=True) == now + REST
        schedule = schedule.ended(now, (), {}, 0)
    assert (schedule.calm_at(now + pause, busy=False) <= now + pause) == (pause >= REST)
