"""How often a follower asks: laws over every sequence of answers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.answers import IDLE, LISTS, MAX, WATCHES, WatchPace

PAGES = 3
ROUNDING = 1e-6
answers = st.lists(
    st.tuples(st.sampled_from(["fails", "is void", "closes", "breaks"]), st.floats(0, 30) | st.just(0.0)),
    min_size=1,
    max_size=60,
)
"""What becomes of a list, or of the watch after it, and how long that lives."""


def requests(history: list[tuple[str, float]], chance: float) -> tuple[list[float], list[float]]:
    """Play a history as a follower does; give when it lists and when it watches."""
    tempo, now, listed = WatchPace(), 100.0, False
    lists: list[float] = []
    watches: list[float] = []
    for what, lives in history:
        if not listed:
            now += tempo.lists.wait(now)
            lists.append(now)
            if what == "fails":
                tempo = tempo.broken(now, chance)
                continue
            listed = True
        now += tempo.watches.wait(now)
        watches.append(now)
        if what == "is void":  # without having been opened
            tempo, listed = tempo.broken(now, chance), False
            continue
        tempo = tempo.opened(now)
        now += lives
        if what == "breaks":
            tempo, listed = tempo.broken(now, chance), False
        else:
            tempo = tempo.ended(now, chance)
    return lists, watches


@given(answers, st.floats(0, 1))
def test_no_follower_sends_more_than_so_many_requests_in_a_second(
    history: list[tuple[str, float]], chance: float
) -> None:
    """Whatever is answered; a list counts as the pages that it may have without a pause."""
    lists, watches = requests(history, chance)
    times = sorted([*lists * PAGES, *watches])
    assert all(sum(begun <= at < begun + 1 - ROUNDING for at in times) <= MAX for begun in times)


@given(answers, st.floats(0, 1))
def test_lists_are_a_second_apart_at_least_and_never_late(history: list[tuple[str, float]], chance: float) -> None:
    """Nothing that is due is forgotten: a follower that fails asks again within the longest wait."""
    lists, watches = requests(history, chance)
    assert all(after - before >= LISTS.floor - ROUNDING for before, after in pairwise(lists))
    longest = max(LISTS.longest, WATCHES.longest) * (1 + LISTS.spread)
    times = sorted([*lists, *watches])
    lived = max(lives for _, lives in history)
    assert all(after - before <= lived + longest + ROUNDING for before, after in pairwise(times))


@given(st.integers(1, 30), st.floats(IDLE + ROUNDING, 1000), st.floats(0, 1))
def test_a_watch_that_lived_is_opened_again_at_once(before: int, lives: float, chance: float) -> None:
    """However often it had ended too soon before."""
    tempo, now = WatchPace(), 0.0
    for _ in range(before):
        tempo = tempo.opened(now).ended(now, chance)
        now += tempo.watches.wait(now)
    tempo = tempo.opened(now).ended(now + lives, chance)
    assert tempo.watches.wait(now + lives) == 0


@given(st.integers(4, 30), st.floats(0, 1))
def test_watches_that_end_at_once_are_spaced_more_and_more(times: int, chance: float) -> None:
    """At most the first few in a second."""
    _, watches = requests([("closes", 0.0)] * times, chance)
    gaps = [after - before for before, after in pairwise(watches)]
    assert all(before <= after + ROUNDING for before, after in pairwise(gaps))
    assert gaps[0] >= WATCHES.first - ROUNDING
    assert times < 10 or gaps[-1] >= WATCHES.longest - ROUNDING


@given(answers, st.floats(0, 1))
def test_changed_kubeconfig_is_tried_as_soon_as_the_floor_allows(
    history: list[tuple[str, float]], chance: float
) -> None:
    """A renewed credential may be what was missing; rewriting a file all the time gains nothing."""
    tempo = WatchPace()
    for number, _ in enumerate(history):
        tempo = tempo.broken(100.0 + number, chance)
    now = 100.0 + len(history) - 1
    assert tempo.expedited(now).lists.wait(now) == LISTS.floor
