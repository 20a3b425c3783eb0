"""Whenever somebody asks an engine to stop, it is heard: before a run, between two, in any moment of one."""

from collections.abc import Callable

import pytest

from locallb.engine.core.declared import only
from locallb.engine.core.events import Op, StepDone
from locallb.engine.core.interrupts import Stop
from locallb.engine.engine import Engine
from locallb.engine.state.errors import Cancelled, FullScopeNeeded
from tests.support.balancers import BOTH, declare, roots
from tests.support.engine import Bench, Thing, messages

INTERRUPTED = str(Cancelled())
EFFECTS = ("create", "update", "delete")
RUNS: dict[str, Callable[[Engine], object]] = {
    "up": lambda engine: engine.up(lambda: declare(BOTH)),
    "up with refresh": lambda engine: engine.up(lambda: declare(BOTH), refresh=True),
    "scoped up": lambda engine: engine.up(lambda: declare(BOTH), scope=only(roots("alpha"))),
    "preview": lambda engine: engine.preview(lambda: declare(BOTH)),
    "refresh": lambda engine: engine.refresh(),
    "destroy": lambda engine: engine.destroy(),
}


@pytest.mark.parametrize("run", RUNS)
def test_engine_stopped_before_a_run_calls_no_provider(run: str, bench: Bench) -> None:
    """Neither this run nor the next; another engine of the stack is not concerned."""
    bench.engine().up(lambda: declare({"balancers": {"alpha": BOTH["balancers"]["alpha"] | {"port": 1}}}))
    calls = len(bench.world.calls)
    engine = bench.engine()
    engine.cancel()
    for _ in range(2):
        result = RUNS[run](engine)
        assert (result.ok, result.interrupted, messages(result)) == (False, True, [INTERRUPTED])  # type: ignore[attr-defined, arg-type]
    assert len(bench.world.calls) == calls
    assert bench.engine().up(lambda: declare(BOTH)).ok


@pytest.mark.parametrize("moment", range(16))
def test_after_a_stop_nothing_more_is_begun_whatever_was_done(moment: int, bench: Bench) -> None:
    """At each end of an operation of an update that creates, updates and deletes; the next engine finishes it."""
    gamma = {"balancers": {"alpha": BOTH["balancers"]["alpha"], "gamma": BOTH["balancers"]["beta"]}}
    assert bench.engine().up(lambda: declare(BOTH)).ok
    engine = bench.engine(parallel=1)
    ends = 0
    at_stop = -1

    def stop(event: object) -> None:
        nonlocal ends, at_stop
        if isinstance(event, StepDone):
            if ends == moment:
                engine.cancel()
                at_stop = len(bench.world.called(*EFFECTS))
            ends += 1

    engine._listener = stop
    result = engine.up(lambda: declare(gamma))
    assert at_stop >= 0
    assert (
        len(bench.world.called(*EFFECTS)) <= at_stop + 1
    )  # the one that was under way, as another thread's step ended
    assert result.interrupted is not result.ok
    assert not bench.checkpoint().pending
    assert bench.engine().up(lambda: declare(gamma)).ok
    assert {key.partition("::")[2].partition("|")[0] for key in bench.world.things} == {"alpha", "gamma"}


def test_a_stop_in_a_scoped_update_holds_for_the_full_one_that_was_needed(bench: Bench) -> None:
    """Whoever falls back to everything doesn't take the stop back."""
    bench.engine().up(lambda: declare(BOTH))
    engine = bench.engine()
    calls = len(bench.world.called(*EFFECTS))

    def needs_all() -> None:
        engine.cancel()
        raise FullScopeNeeded("a provider changed")

    def program() -> None:
        declare({"balancers": {}})

    assert not engine.up(needs_all, scope=only(roots("alpha"))).ok
    assert engine.up(program).interrupted
    assert len(bench.world.called(*EFFECTS)) == calls


def test_a_stop_after_the_last_operation_is_too_late_to_matter(bench: Bench) -> None:
    """What is complete isn't called interrupted."""
    engine = bench.engine()

    def program() -> None:
        Thing("Reachable", "a", {"address": "x"})

    def stop(event: object) -> None:
        if isinstance(event, StepDone) and event.op is Op.CREATE and event.subject.name == "a":
            engine.cancel()

    engine._listener = stop
    result = engine.up(program)
    assert (result.ok, result.interrupted) == (True, False)
    assert len(bench.world.things) == 1


def test_a_stop_between_the_program_and_the_deletions_is_reported(bench: Bench) -> None:
    """What was to be deleted is there still, and nobody may take that for done."""
    bench.engine().up(lambda: declare(BOTH))
    engine = bench.engine()
    result = engine.up(engine.cancel)
    assert (result.ok, result.interrupted, messages(result)) == (False, True, [INTERRUPTED])
    assert bench.world.called("delete") == []


def test_a_narrow_stop_leaves_the_wide_one_alone() -> None:
    """Ctrl-C ends one run, the end of an engine all of its runs."""
    wide = Stop()
    narrow, other = Stop(wide), Stop(wide)
    narrow.ask()
    assert (narrow.is_requested(), other.is_requested(), wide.is_requested()) == (True, False, False)
    wide.ask()
    assert (other.is_requested(), wide.is_requested()) == (True, True)
