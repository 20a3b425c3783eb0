"""Questions that are answered together: each by a call that begins after it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from threading import Barrier, Event

import pytest

from locallb.threads import Joined, _Ticket


def test_every_answer_comes_from_a_call_begun_after_the_question() -> None:
    """Many threads, many rounds: nobody gets another one's answer, or one of a call that was under way."""
    calls, requested = count(1), count(1)

    def serve(questions: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
        call = next(calls)
        return [(question, call) for question in questions]

    joined, observed = Joined(serve), []
    started = Barrier(16)

    def ask(number: int) -> None:
        started.wait()
        for turn in range(50):
            begun = next(calls)
            answer, call = joined.ask((number, turn))
            assert answer == (number, turn)
            assert call > begun
            observed.append(next(requested))

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(ask, range(16)))
    assert len(observed) == 16 * 50


def test_callers_during_a_call_share_the_next_one() -> None:
    """The call that is under way answers the first alone, the next one all others."""
    under_way, go_on = Event(), Event()
    calls: list[list[int]] = []

    def serve(questions: Sequence[int]) -> list[int]:
        calls.append(list(questions))
        under_way.set()
        go_on.wait(5)
        return [question * 2 for question in questions]

    joined = Joined(serve)
    with ThreadPoolExecutor(10) as threads:
        first = threads.submit(joined.ask, 0)
        assert under_way.wait(5)
        others = [threads.submit(joined.ask, number) for number in range(1, 10)]
        while len(joined._waiting) < 9:
            pass
        go_on.set()
        assert [future.result() for future in (first, *others)] == [number * 2 for number in range(10)]
    assert [sorted(call) for call in calls] == [[0], list(range(1, 10))]


def test_failed_call_does_not_fail_the_next_question() -> None:
    """Only the questions that shared the call get its failure."""
    failing = [True]

    def serve(questions: Sequence[int]) -> list[int]:
        if failing.pop():
            raise LookupError("nobody answers")
        return list(questions)

    joined = Joined(serve)
    with pytest.raises(LookupError, match="nobody answers"):
        joined.ask(1)
    failing.append(False)
    assert joined.ask(2) == 2


def test_expected_callers_share_one_call() -> None:
    """The first of them waits for the others; once they are there nobody waits any more."""
    calls: list[list[int]] = []

    def serve(questions: Sequence[int]) -> list[int]:
        calls.append(list(questions))
        return list(questions)

    joined = Joined(serve)
    joined.expect(10)
    with ThreadPoolExecutor(10) as threads:
        first = threads.submit(joined.ask, 0)
        while not joined._waiting:
            pass
        others = [threads.submit(joined.ask, number) for number in range(1, 10)]
        assert [future.result() for future in (first, *others)] == list(range(10))
    assert [sorted(call) for call in calls] == [list(range(10))]
    assert joined.ask(10) == 10


def test_absent_expected_caller_delays_others_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose turn to ask never came: the others are answered, and those after them."""
    monkeypatch.setattr("locallb.threads.QUIET", 0.001)
    joined = Joined[int, int](list)
    joined.expect(5)
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(joined.ask, (1, 2))] == [1, 2]
    monkeypatch.setattr("locallb.threads.QUIET", 60.0)
    assert joined._complete.is_set()  # nobody is waited for again
    assert joined.ask(3) == 3


def test_trickling_callers_do_not_postpone_a_call_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often another one comes, a call begins in time."""
    monkeypatch.setattr("locallb.threads.LONGEST", 0.05)
    over, joined = Event(), Joined[int, int](list)
    joined.expect(1_000_000)

    def trickle(number: int) -> int:
        with joined._entrance:
            joined._waiting.append(_Ticket(number))
        return 0 if over.wait(0.005) else 1

    with ThreadPoolExecutor(1) as threads:
        others = threads.submit(lambda: sum(map(trickle, takewhile(lambda _: not over.is_set(), range(10_000)))))
        assert joined.ask(-1) == -1
        assert not others.done()
        over.set()
