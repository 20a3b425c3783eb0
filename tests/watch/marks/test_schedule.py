"""When the loop looks, and what it tries again: laws over random histories, and the cases worth reading."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey
from locallb.watch.events import Cause, Mark
from locallb.watch.schedule import (
    APART,
    BURST,
    CRASHES,
    FLOOR,
    LONGEST,
    OF_OTHERS,
    QUIET,
    REST,
    SPAN,
    TIMEOUT,
    UPDATES,
    WHOLE,
    Schedule,
)

IDLE = CRASHES.idle
FIRST_RETRY = UPDATES.first
LONGEST_WHOLE = WHOLE.longest * (1 + WHOLE.spread)
"""Seconds that nothing waits longer than while the whole fails."""
A, B = (ObjectKey(ClusterName("c"), "n", name) for name in "ab")
MARK = Mark(Cause.SOURCE, "c")
chances = st.floats(0, 1)


def test_idle_schedule_has_no_next_look() -> None:
    """An idle loop waits for ever."""
    assert Schedule().check_at() is None


@given(st.lists(st.floats(0, 0.02), min_size=1, max_size=30))
def test_a_look_is_a_moment_after_the_last_mark_and_never_long_after_the_first(gaps: list[float]) -> None:
    """However marks follow each other."""
    schedule, now = Schedule(), 100.0
    for gap in gaps:
        now += gap
        schedule = schedule.marked(now, MARK)
    at = schedule.check_at()
    assert at is not None
    assert at == min(now + QUIET, 100.0 + gaps[0] + LONGEST)
    assert schedule.begun(at).check_at() is None


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
    assert max(waits) <= UPDATES.longest * 1.25


def test_failed_load_balancer_delays_no_other() -> None:
    """Only that one waits, and only as long as it shall be the same."""
    schedule = Schedule().ended(10.0, (B,), {A: "d1"}, 0)
    assert schedule.waiting(10.0, {A: "d1", B: "x"}) == {A}
    assert schedule.waiting(10.0, {A: "d2", B: "x"}) == frozenset()
    assert schedule.waiting(10.0 + FIRST_RETRY, {A: "d1", B: "x"}) == frozenset()


def test_a_new_wish_starts_counting_again() -> None:
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
    assert failed.planned([]).check_at() is None


@given(st.integers(1, 40), chances)
def test_while_the_whole_fails_marks_wait_for_its_next_try(failures: int, chance: float) -> None:
    """A source that can't be read isn't read at every event."""
    schedule = Schedule()
    for _ in range(failures):
        schedule = schedule.broken(0.0, chance)
    at = schedule.marked(0.0, MARK).check_at()
    assert schedule.whole
    assert at == schedule.whole.not_before <= LONGEST_WHOLE
    assert schedule.planned([]).whole == schedule.whole
    assert schedule.healthy().whole is None


@pytest.mark.parametrize("cause", [Cause.CONFIGURATION, Cause.KUBECONFIG, Cause.FOUND_CLUSTERS])
def test_changed_configuration_is_tried_without_waiting(cause: Cause) -> None:
    """A corrected mistake shows at once; if it wasn't the last one, the count of failures goes on."""
    schedule = Schedule()
    for _ in range(20):
        schedule = schedule.broken(0.0, 0)
    assert schedule.marked(1.0, MARK).check_at() == WHOLE.longest
    repaired = schedule.marked(1.0, Mark(cause))
    assert repaired.check_at() == schedule.marked(1.0, MARK, Mark(cause)).check_at() == 1.0
    retry = repaired.begun(1.0).broken(1.0, 0)
    assert retry.marked(1.0, MARK).check_at() == 1.0 + WHOLE.longest


@given(st.lists(st.floats(0, 10), min_size=1, max_size=10), st.floats(0, 10))
def test_an_alarm_that_is_set_again_and_again_rings_when_it_was_to_at_first(times: list[float], now: float) -> None:
    """Looks that come meanwhile never put it off; it rings once."""
    schedule = Schedule()
    for at in times:
        schedule = schedule.alarmed(at, MARK)
    timer_fired = schedule.timer_fired(now)
    if now < times[0]:
        assert not timer_fired.marks
        assert timer_fired.rings_at() == times[0]
    else:
        assert timer_fired.marks == {MARK}
        assert timer_fired.rings_at() is None
        assert timer_fired.begun(now).timer_fired(now + 1).check_at() is None


def test_a_proxy_that_ends_is_repaired_at_once_and_one_that_ends_again_and_again_more_and_more_seldom() -> None:
    """A crash loop costs little; a calm proxy counts as new."""
    wanted = {A: "d"}
    schedule = Schedule().exited(0.0, A, wanted, 0)
    assert schedule.waiting(0.0, wanted) == frozenset()
    now, waits = 0.0, []
    for _ in range(4):
        schedule = schedule.ended(now, (A,), {}, 0).repaired(now, (A,))
        schedule = schedule.exited(now, A, wanted, 0)
        waits.append(schedule.retries[A].at - now)
        now = schedule.retries[A].at
    assert [round(wait, 6) for wait in waits] == [CRASHES.delay(n) for n in (1, 2, 3, 4)]
    idle = schedule.ended(now, (A,), {}, 0).repaired(now, (A,))
    assert idle.exited(now + IDLE + 1, A, wanted, 0).waiting(now + IDLE + 1, wanted) == frozenset()
    assert idle.exited(now, A, wanted, 0).waiting(now, wanted) == {A}
    assert idle.removed([A]).exited(now, A, wanted, 0).waiting(now, wanted) == frozenset()


def test_host_obstacles_are_rechecked_with_back_off() -> None:
    """Nobody tells that another process let a port go."""
    schedule = Schedule().blocked(0.0, "port 80 in use", 0)
    assert schedule.check_at() == FIRST_RETRY
    assert schedule.blocked(0.01, "port 80 in use", 0).check_at() == FIRST_RETRY
    later = schedule.blocked(FIRST_RETRY, "port 80 in use", 0)
    assert later.check_at() == FIRST_RETRY + UPDATES.delay(2)
    assert later.blocked(1.0, "port 81 in use", 0).check_at() == 1.0 + FIRST_RETRY
    assert later.blocked(1.0, "", 0).check_at() is None


def test_failures_of_a_returned_cluster_are_retried_at_once() -> None:
    """The others go on waiting."""
    other = ObjectKey(ClusterName("other"), "n", "a")
    schedule = Schedule()
    for _ in range(10):
        schedule = schedule.ended(0.0, (), {A: "d", other: "d"}, 0)
    assert schedule.back(1.0, [ClusterName("c")]).waiting(1.0, {A: "d", other: "d"}) == {other}
    assert schedule.back(1.0, []) == schedule


@given(st.lists(st.floats(0, 10), min_size=1, max_size=10), st.sampled_from([0.0, REST / 2, REST * 2, 60.0]))
def test_spares_wait_for_a_calm_moment(gaps: list[float], pause: float) -> None:
    """As long as updates follow each other it waits; it never waits where nothing was updated yet."""
    schedule, now = Schedule(), 100.0
    assert schedule.idle_at(now, busy=False) <= now
    for gap in gaps:
        now += gap
        assert schedule.idle_at(now, busy=True) == now + REST
        schedule = schedule.ended(now, (), {}, 0)
    assert (schedule.idle_at(now + pause, busy=False) <= now + pause) == (pause >= REST)


@dataclass(frozen=True, slots=True)
class Pass:
    """What happens at one look, and until the next."""

    whole_fails: bool
    fails: frozenset[ObjectKey]
    hindrance: str
    again_in: float | None
    marks: tuple[tuple[float, Mark], ...]
    """Marks that come after it: how much later each."""
    late: float
    """Seconds by which the loop is late for the next."""
    took: float
    chance: float


marks = st.sampled_from([MARK, Mark(Cause.CONFIGURATION), Mark(Cause.PROXY, "p")])
checks = st.builds(
    Pass,
    st.booleans(),
    st.frozensets(st.sampled_from([A, B])),
    st.sampled_from(["", "port 80 in use"]),
    st.none() | st.floats(0, 2),
    st.lists(st.tuples(st.floats(0, 2), marks), max_size=3).map(tuple),
    st.floats(0, 1),
    st.floats(0, 1),
    chances,
)
WANTED = {A: "d", B: "d"}


@dataclass(slots=True)
class Played:
    """A loop that follows its schedule, with played time."""

    schedule: Schedule
    now: float = 0.0

    def inspect(self, inspect: Pass) -> None:
        began, claimed = self.now, self.schedule.marks
        self.schedule = self.schedule.begun(began)
        self.now += inspect.took
        if inspect.whole_fails:
            self.schedule = self.schedule.marked(self.now, *claimed) if claimed else self.schedule
            self.schedule = self.schedule.broken(self.now, inspect.chance)
            return
        open_ = {A, B} if inspect.fails else set()
        self.schedule = self.schedule.planned(open_).blocked(self.now, inspect.hindrance, inspect.chance)
        self.schedule = (
            self.schedule if inspect.again_in is None else self.schedule.reading(self.now + inspect.again_in)
        )
        tried = open_ - self.schedule.waiting(self.now, WANTED)
        failed = dict.fromkeys(tried & inspect.fails, "d")
        self.schedule = self.schedule.ended(self.now, tried - inspect.fails, failed, inspect.chance).healthy()

    def wait(self, inspect: Pass) -> bool:
        """Wait for the next look, taking marks that come meanwhile; return whether there is one."""
        for after, mark in sorted(inspect.marks):
            at = self.schedule.check_at()
            if at is not None and at <= self.now + after:
                break
            self.now += after
            self.schedule = self.schedule.marked(self.now, mark)
        at = self.schedule.check_at()
        if at is None:
            return False
        self.now = max(self.now, at) + inspect.late
        return True


@given(st.lists(checks, min_size=1, max_size=30))
def test_no_schedule_looks_more_often_than_its_floor(history: list[Pass]) -> None:
    """Whatever fails, and whatever is due: only something new that was marked makes it look sooner."""
    played = Played(Schedule().marked(0.0, Mark(Cause.START)))
    for inspect in history:
        began, failed, old = played.now, inspect.whole_fails, played.schedule.marks
        played.inspect(inspect)
        whole = played.schedule.whole
        if not played.wait(inspect):
            return
        new = played.schedule.marks - (old if failed else frozenset())
        if failed or not new:
            assert played.now - began >= FLOOR - 1e-9
        if whole and played.schedule.whole == whole:
            assert played.now - began >= WHOLE.delay(whole.failures) - 1e-9


@given(st.lists(checks, min_size=1, max_size=30))
def test_every_due_load_balancer_is_looked_at(history: list[Pass]) -> None:
    """Whatever is marked, failed, blocked or to be looked at again is looked at before the longest wait is over."""
    played = Played(Schedule().marked(0.0, Mark(Cause.START)))
    for inspect in history:
        played.inspect(inspect)
        schedule, at = played.schedule, played.schedule.check_at()
        bounds = [
            UPDATES.longest * 1.25 if schedule.retries or schedule.hindrance else math.inf,
            inspect.again_in if schedule.later is not None and inspect.again_in is not None else math.inf,
            LONGEST_WHOLE if schedule.whole else math.inf,
            LONGEST if schedule.marks and not schedule.whole else math.inf,
        ]
        soonest = max(min(bounds), FLOOR, LONGEST_WHOLE if schedule.whole else 0.0)
        assert (at is None) == (soonest == math.inf)
        assert at is None or at <= played.now + soonest
        if not played.wait(inspect):
            return
        due = {key for key, retry in played.schedule.retries.items() if retry.at <= played.now}
        assert not due & played.schedule.waiting(played.now, WANTED)


@given(
    st.lists(
        st.tuples(st.floats(0, 0.3), st.sampled_from([frozenset({A}), frozenset({A, B})])), min_size=30, max_size=90
    )
)
def test_no_load_balancer_is_updated_all_the_time(changes: list[tuple[float, frozenset[ObjectKey]]]) -> None:
    """After so many updates in a short time the next ones of it are apart; it never waits for longer than that."""
    schedule, now = Schedule(), 0.0
    updates: dict[ObjectKey, list[float]] = {A: [], B: []}
    for after, changed in changes:
        now += after
        waiting = {key: at for key, at in schedule.busy(now).items() if at > now}
        assert all(at <= now + APART for at in waiting.values())
        done = changed - waiting.keys()
        schedule = schedule.updating(now, done)
        for key in done:
            last = updates[key][-BURST:]
            assert len(last) < BURST or last[0] + SPAN <= now or last[-1] + APART <= now
            updates[key].append(now)
    assert schedule.updating(now + 2 * SPAN, ()).recent == {}


def test_a_busy_load_balancer_delays_no_other_and_looks_are_further_apart() -> None:
    """The one that changes with it is updated at once; a look for each of its changes would cost what it waits for."""
    schedule, of_stack = Schedule().begun(0.0), ObjectKey(ClusterName(""), "", "names")
    for _ in range(BURST):
        schedule = schedule.updating(0.0, {A, of_stack})
    assert schedule.updating(0.0, {B}).busy(1.0) == {A: APART}
    assert schedule.marked(0.0, MARK).check_at() == FLOOR
    assert schedule.begun(SPAN).marked(SPAN, MARK).check_at() == SPAN + QUIET


def test_while_the_whole_fails_nothing_that_is_due_makes_it_look_without_a_pause() -> None:
    """Another command holds the stack's lock, and a load balancer waits to be tried again."""
    schedule = Schedule().ended(0.0, (), {A: "d"}, 0).blocked(0.0, "port 80 in use", 0).reading(0.0)
    at, checked = 10.0, 0
    while at < 70.0:
        schedule = schedule.begun(at).broken(at, 0)
        checked, at = checked + 1, schedule.check_at() or math.inf
    assert checked < 60 / WHOLE.longest + 10


def test_dependent_is_retried_rarely_and_at_once_when_its_dependency_is_back() -> None:
    """A thousand load balancers of one shared proxy that can't start cost next to nothing."""
    schedule = Schedule().ended(0.0, (), {A: "d", B: "d"}, 0, dependent={A})
    assert schedule.retries[A].at == OF_OTHERS.first
    assert schedule.retries[B].at == UPDATES.first
    assert schedule.expedited(1.0, [A, B]).waiting(1.0, WANTED) == frozenset()
    assert schedule.expedited(1.0, []) == schedule


def test_retry_pace_follows_the_latest_kind_of_failure() -> None:
    """In both directions: earlier failures had another reason."""
    schedule = Schedule()
    for dependent, first in (
        (set[ObjectKey](), UPDATES.first),
        ({A}, OF_OTHERS.first),
        (set[ObjectKey](), UPDATES.first),
    ):
        schedule = schedule.ended(0.0, (), {A: "d"}, 0, dependent)
        assert schedule.retries[A].at == first


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_earliest_requested_look_counts(moments: list[float]) -> None:
    """None is forgotten for another one."""
    schedule = Schedule()
    for at in moments:
        schedule = schedule.reading(at)
    assert schedule.check_at() == min(moments)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=5, unique=True))
def test_alarms_ring_one_by_one_in_the_order_of_their_times(times: list[float]) -> None:
    """None is lost, none rings early."""
    schedule = Schedule()
    for number, at in enumerate(times):
        schedule = schedule.alarmed(at, Mark(Cause.SOURCE, str(number)))
    for at in sorted(times):
        assert schedule.rings_at() == at
        schedule = schedule.timer_fired(at)
        assert schedule.marks == {Mark(Cause.SOURCE, str(times.index(at)))}
        schedule = schedule.begun(at)
    assert schedule.rings_at() is None


def test_a_hurry_for_what_does_not_wait_is_none() -> None:
    """Whoever names a load balancer that didn't fail changes nothing for it; the others are hurried."""
    schedule = Schedule().ended(0.0, (), {A: "d"}, 0, dependent={A})
    assert schedule.expedited(1.0, [B]) == schedule
    expedited = schedule.expedited(1.0, [A, B])
    assert set(expedited.retries) == {A}
    assert expedited.retries[A].at == 1.0


def test_an_update_is_no_repair() -> None:
    """A proxy that ends right after its load balancer was updated, and never did before, is repaired at once."""
    schedule = Schedule().ended(10.0, (A,), {}, 0)
    assert schedule.exited(10.0, A, WANTED, 0).waiting(10.0, WANTED) == frozenset()


def test_a_crash_loop_is_remembered_while_others_are_repaired_and_forgotten_once_it_was_calm() -> None:
    """A repair of one proxy says nothing of another's."""
    schedule = Schedule().repaired(0.0, (A,)).exited(0.0, A, WANTED, 0).repaired(0.0, (A,))
    sibling = schedule.repaired(0.0, (B,)).exited(0.0, A, WANTED, 0)
    assert sibling.retries[A].at == schedule.exited(0.0, A, WANTED, 0).retries[A].at == CRASHES.delay(2)
    assert set(schedule.repaired(IDLE, (B,)).crashes) == {B}


def test_what_is_left_again_and_again_is_overdue() -> None:
    """Since it was left first, not since it was left last; what is done or not due meanwhile begins anew."""
    schedule = Schedule().interrupted(10.0, [A]).interrupted(10.5, [A, B])
    assert schedule.overdue(10.0 + TIMEOUT) == (A,)
    assert schedule.overdue(10.5 + TIMEOUT) == (A, B)
    retry = schedule.interrupted(11.0, [B]).interrupted(12.0, [A, B])
    assert retry.overdue(11.0 + TIMEOUT) == (B,)
    assert retry.overdue(12.0 + TIMEOUT) == (B, A), "the one that waits longer comes first"
    assert retry.interrupted(12.0, []).overdue(100.0) == ()


def test_what_is_going_on_is_not_tried_again_meanwhile() -> None:
    """However long it hangs, the loop doesn't look for its sake; for that of others it does."""
    schedule = Schedule().ended(0.0, (), {A: "1", B: "1"}, 0)
    at = schedule.check_at()
    assert at is not None
    assert schedule.check_at({A}) == at
    assert schedule.check_at({A, B}) is None
