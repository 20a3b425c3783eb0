"""Threads of the core: one that hangs holds up neither others nor the end, and mistakes aren't lost."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.operations import Kind, Operation, OperationResult
from locallb.engine.state.errors import StepError
from locallb.engine.state.resource import ResourceState

TIMEOUT = 60.0


class Doing(Operation):
    """An operation that does what a test says."""

    def perform(self) -> object:
        return cast("Callable[[], object]", self.handle)()


def doing(what: Callable[[], object]) -> Operation:
    return Doing(Kind.CREATE, ResourceState("urn", "a:b:C", custom=True), cast("Any", what), "lane")


@pytest.fixture
def executor() -> ThreadExecutor:
    return ThreadExecutor()


def outcome(executor: ThreadExecutor) -> OperationResult:
    message = executor.receive(executor.now() + TIMEOUT)
    assert isinstance(message, OperationResult)
    return message


def test_operations_that_hang_hold_up_nobody(executor: ThreadExecutor) -> None:
    """Others run beside them, in any number, and later ones in threads that are idle again."""
    release, before = threading.Event(), frozenset(threading.enumerate())
    hanging = [doing(lambda: release.wait(TIMEOUT)) for _ in range(20)]
    for operation in hanging:
        executor.start(operation)
    for number in range(50):
        executor.start(doing(lambda number=number: number))  # type: ignore[misc]  # the default is the loop's value
        assert outcome(executor).answer == number
    threads = [one for one in threading.enumerate() if one.name.startswith("operation-") and one not in before]
    assert 20 < len(threads) < 40
    assert all(one.daemon for one in threads), "none keeps the process from ending"
    release.set()
    assert {id(outcome(executor).operation) for _ in hanging} == {*map(id, hanging)}
    executor.close()


def test_refusals_are_outcomes_and_mistakes_are_raised_where_somebody_waits(executor: ThreadExecutor) -> None:
    """And the threads go on."""

    def refuse() -> object:
        raise StepError("no")

    executor.start(doing(refuse))
    assert str(outcome(executor).error) == "no"
    executor.start(doing(lambda: 1 // 0))
    with pytest.raises(ZeroDivisionError):
        executor.receive(executor.now() + TIMEOUT)
    executor.start(doing(lambda: 7))
    assert outcome(executor).answer == 7
    executor.close()


def test_a_message_from_another_thread_ends_the_waiting(executor: ThreadExecutor) -> None:
    """And no message is none."""
    assert executor.receive(executor.now()) is None
    heard: list[int] = []
    threading.Timer(0.01, lambda: executor.post(lambda: heard.append(1))).start()
    message = executor.receive(None)
    assert callable(message)
    message()
    assert heard == [1]
    executor.close()


def test_threads_of_a_burst_end_but_for_a_few() -> None:
    """So that a loop doesn't keep as many as it once needed at a time; those that stay work on."""
    before, executor, go_on = threading.active_count(), ThreadExecutor(), threading.Event()

    def work() -> OperationResult | Callable[[], None]:
        assert go_on.wait(20)
        return _nothing

    for _ in range(20):
        executor.call(work)
    assert threading.active_count() == before + 20
    go_on.set()
    for _ in range(20):
        assert executor.receive(time.monotonic() + 20) is _nothing
    until = time.monotonic() + 20
    while threading.active_count() > before + 4:
        assert time.monotonic() < until
        time.sleep(0.01)
    for _ in range(6):
        executor.call(work)
    assert [executor.receive(time.monotonic() + 20) for _ in range(6)] == [_nothing] * 6
    executor.close()


def _nothing() -> None:
    """Ask the core for nothing."""
