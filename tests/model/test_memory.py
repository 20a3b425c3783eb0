"""What is kept of things that come again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.memory import Memo


def test_unused_results_are_evicted() -> None:
    """Memo is bounded by what there is now."""
    existing = Memo[Any]()
    assert existing.of("a", lambda: 1) == 1
    existing.evict_unused()
    existing.evict_unused()
    assert existing.of("a", lambda: 2) == 2


def test_a_failure_is_not_kept() -> None:
    """Whoever asks again hears of it again."""
    existing = Memo[Any]()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            existing.of("a", lambda: 1 // 0)
        existing.evict_unused()


steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 1), st.sampled_from(["", "evict", "forget"]))
)


@given(steps)
def test_with_a_memory_and_without_it_the_outcome_is_the_same(history: list[tuple[str, int, int, str]]) -> None:
    """Whatever is asked in whatever order, within whatever frame, and whatever is forgotten between."""
    memory, frame = Memo[tuple[int, int]](), 0
    for key, number, frame, then in history:
        memory.within(frame)
        assert memory.of(key, lambda given, frame=frame: (given, frame), number) == (number, frame)
        if then == "evict":
            memory.evict_unused()
        elif then == "forget":
            memory.forget(key)


def test_value_is_made_again_only_for_other_arguments_or_another_frame() -> None:
    """Equal arguments count as the same."""
    made: list[int] = []
    memory = Memo[None]()
    for frame, number in [(0, 1), (0, 1), (0, 2), (1, 2), (1, 2)]:
        memory.within(frame)
        memory.of("key", made.append, number)
        memory.evict_unused()
    assert made == [1, 2, 2]


def test_an_equal_result_is_the_former_object() -> None:
    """So that all that depend on it find identical arguments."""
    memory = Memo[tuple[int, ...]]()
    first = memory.of("key", lambda number: (abs(number),), -1)
    assert memory.of("key", lambda number: (abs(number),), 1) is first
    assert memory.of("key", lambda number: (abs(number),), 2) == (2,)


class Deep:
    """Equal to all others, and counts how often it is asked."""

    requested = 0

    def __eq__(self, other: object) -> bool:
        Deep.requested += 1
        return isinstance(other, Deep)

    __hash__ = None  # type: ignore[assignment]


def test_equal_arguments_are_compared_in_depth_once() -> None:
    """Afterwards they are recognised by identity."""
    memory, first, second = Memo[Deep](), Deep(), Deep()
    for this in (first, second, second, second):
        assert memory.of("key", lambda given: given, this) is first
        memory.evict_unused()
    assert Deep.requested == 1


@given(st.lists(st.tuples(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=6), st.integers(0, 1))))
def test_only_rows_are_made_that_were_absent_the_last_time(
    history: list[tuple[list[tuple[int, int]], int]],
) -> None:
    """In any order; a row that occurs twice is made once at most; in another frame all are made again."""
    objects, memory, before = [[number] for number in range(4)], Memo[tuple[int, int, int]](), set[tuple[int, ...]]()
    for rows, frame in history:
        made: list[tuple[int, int, int]] = []

        def make(one: list[int], other: list[int], made: list[Any] = made, frame: int = frame) -> tuple[int, int, int]:
            made.append((one[0], other[0], frame))
            return one[0], other[0], frame

        memory.within(frame)
        wanted = tuple((one, other, frame) for one, other in rows)
        assert memory.each(make, (objects[one] for one, _ in rows), (objects[other] for _, other in rows)) == wanted
        assert before.isdisjoint(row for row in made if wanted.count(row) == 1)
        assert len(set(made)) == len(made)
        before = set(wanted)


def test_an_equal_object_that_is_another_one_is_made_again() -> None:
    """It may mean something else: a 1 isn't a true."""
    memory, made = Memo[None](), list[object]()
    for item in ([1], [True]):
        memory.each(made.append, [item])
    assert made == [[1], [True]]


def test_where_one_of_many_cannot_be_made_nothing_is_remembered_of_it() -> None:
    """Whoever asks again hears of it again, and of the others as before."""
    memory, good, bad = Memo[float](), [1], [0]
    assert memory.each(lambda item: 1 / item[0], [good]) == (1.0,)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            memory.each(lambda item: 1 / item[0], [good, bad])
    assert memory.each(lambda item: 0.0 * item[0], [good]) == (1.0,)
