"""Runs that are interrupted, and what the next run makes of what they left."""

import os
import signal
import threading

import pytest

from locallb.engine.core.events import Op, StepDone
from locallb.engine.monitor import refuse_unfinished
from locallb.engine.state.errors import Cancelled, UpdateUnfinished
from tests.engine.interrupting import SECONDS, interrupt, interrupt_twice
from tests.support.balancers import ALPHA, BOTH, declare
from tests.support.engine import Bench, messages, short

INTERRUPTED = str(Cancelled())


def test_an_interrupt_finishes_what_runs_and_starts_nothing_more(bench: Bench) -> None:
    """Ctrl-C once: the result says so, the state is complete, the next update goes on."""
    bench.world.control = {"meanwhile": {"ProxyConfig::alpha": interrupt}}
    engine = bench.engine()
    result = engine.up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    assert not result.ok
    assert messages(result) == [INTERRUPTED]
    made = [party for _method, party in bench.world.called("create")]
    assert made == ["LoopbackAddress::alpha", "ProxyConfig::alpha"]
    assert len([r for r in bench.checkpoint().resources if r.custom]) == 3
    assert bench.checkpoint().pending == ()
    bench.world.control = {}
    assert engine.up(lambda: declare({"balancers": {"alpha": ALPHA}})).changes == {Op.CREATE: 3, Op.SAME: 5}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_that_the_program_handles_interrupt_as_well(bench: Bench, number: signal.Signals) -> None:
    """The first finishes what runs; the handler that was there gets the next one, and is there again afterwards."""
    handled: list[int] = []
    retry = threading.Event()

    def handle(got: int, _frame: object) -> None:
        handled.append(got)
        retry.set()

    def twice() -> None:
        interrupt(number)
        signal.pthread_kill(threading.get_ident(), number)
        assert retry.wait(SECONDS)

    before = signal.signal(number, handle)
    try:
        bench.world.control = {"meanwhile": {"ProxyConfig::alpha": twice}}
        engine = bench.engine()
        result = engine.up(lambda: declare({"balancers": {"alpha": ALPHA}}))
        assert (messages(result), handled) == ([INTERRUPTED], [number])
        os.kill(os.getpid(), number)
        assert handled == [number, number]
    finally:
        signal.signal(number, before)


def test_a_second_interrupt_stops_at_once_and_the_next_run_takes_over(bench: Bench) -> None:
    """What was under way is in the journal."""
    interrupt_twice(bench, lambda: declare({"balancers": {"alpha": ALPHA}}))
    result = bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    assert result.ok
    assert "removed the lock" in messages(result)[0]
    assert "took over what an interrupted update had done" in messages(result)[1]
    assert any("finished the interrupted creation of" in message for message in messages(result))
    assert len(bench.world.things) == 5


def test_wakeup_descriptor_of_the_embedding_program_gets_signals_during_a_run(bench: Bench) -> None:
    """Signals wake the run's own loop as well, and the descriptor is restored afterwards."""
    news, bell = os.pipe2(os.O_NONBLOCK)
    woken = signal.set_wakeup_fd(bell)
    try:
        bench.world.control = {"meanwhile": {"ProxyConfig::alpha": interrupt}}
        assert bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}})).interrupted
        assert os.read(news, 16) == bytes([signal.SIGINT])
    finally:
        assert signal.set_wakeup_fd(woken) == bell
        os.close(news)
        os.close(bell)


def test_pulumi_cli_says_that_locallb_has_to_resume(bench: Bench) -> None:
    """What broke off stands where only this engine reads it; this engine isn't refused, and then nobody is."""
    root = bench.project.root

    def program() -> None:
        refuse_unfinished(root, "dev")
        declare({"balancers": {"alpha": ALPHA}})

    refuse_unfinished(root, "dev")
    interrupt_twice(bench, lambda: declare({"balancers": {"alpha": ALPHA}}))
    with pytest.raises(UpdateUnfinished, match="run `locallb up`"):
        refuse_unfinished(root, "dev")
    assert bench.engine().up(program).ok
    assert bench.engine().up(program).unchanged
    refuse_unfinished(root, "dev")


def test_cancel_works_from_another_thread_and_for_destroy(bench: Bench) -> None:
    """A program that embeds the engine has no Ctrl-C."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))

    def stop(event: object) -> None:
        if isinstance(event, StepDone):
            engine.cancel()

    engine._listener = stop
    result = engine.destroy()
    assert not result.ok
    assert INTERRUPTED in messages(result)
    assert 0 < len(bench.world.called("delete")) < 10
    assert bench.engine().destroy().ok
    assert bench.world.things == {}


def test_interrupted_operation_of_an_unknown_kind_is_examined(bench: Bench) -> None:
    """A kind of the official command line that this engine never notes."""
    bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    resource = next(r for r in bench.checkpoint().resources if short(r.urn) == "Reachable::alpha")
    operation = f'"pending_operations":[{{"resource":{resource.text},"type":"reading"}}],"metadata"'
    bench.state_path.write_text(bench.state_path.read_text().replace('"metadata"', operation))
    result = bench.engine().refresh()
    assert result.ok
    assert "whose reading was interrupted" in messages(result)[0]
    assert bench.checkpoint().pending == ()


def test_a_journal_of_a_state_that_another_engine_wrote_is_kept_aside(bench: Bench) -> None:
    """Nothing is guessed, nothing is lost."""
    bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    journal = bench.project.backend / ".pulumi" / "journals" / "local-lb" / "dev.jsonl"
    journal.write_text('{"journal":1,"base":"then"}\n[{"drop":"urn:pulumi:dev::local-lb::a:b:C::d"}]\n')
    result = bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}}))
    assert result.ok
    assert "the state was written again" in messages(result)[0]
    assert not journal.exists()
    assert len(list((bench.project.backend / ".pulumi" / "backups").rglob("*.journal"))) == 1
    journal.write_text("")
    assert bench.engine().up(lambda: declare({"balancers": {"alpha": ALPHA}})).diagnostics == ()
