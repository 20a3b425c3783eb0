"""The core for commands: what a destruction deletes in which order, what it tells, how many operations it begins."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pulumi.provider.experimental.provider import CreateRequest, CreateResponse, DeleteRequest

from locallb.engine.core.declared import EVERYTHING
from locallb.engine.core.events import Op, StepDone, StepFailed, StepStarted, ignore
from locallb.engine.core.interrupts import Stop
from locallb.engine.core.lanes import Parties
from locallb.engine.core.once import Once, circles_of
from locallb.engine.core.provider_resources import ProviderResources
from locallb.engine.core.reporting import Reporter
from locallb.engine.core.session import Run
from locallb.engine.provider_registry import Providers
from locallb.engine.state.errors import Cancelled
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.stack_state import StackState
from locallb.engine.store import Recorder
from tests.engine.interrupting import SECONDS, interrupt
from tests.engine.references import resource
from tests.support.balancers import BOTH, declare
from tests.support.engine import Bench, Thing, World, WorldProvider, messages, short

MODEST = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
PROVIDER = "urn:pulumi:dev::local-lb::pulumi:providers:locallb::default"


@st.composite
def graphs(draw: st.DrawFn) -> dict[int | str, ResourceState]:
    """Draw live resources that refer to earlier ones, and old instances that refer to anything."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    live = [resource(name, *draw(st.sets(st.sampled_from(names[:number] or "-")))) for number, name in enumerate(names)]
    old = draw(
        st.lists(
            st.builds(
                lambda name, needs: resource(name, *needs),
                st.sampled_from(names),
                st.sets(st.sampled_from(names), max_size=3),
            ),
            max_size=4,
        )
    )
    return {resource.urn: resource for resource in live} | dict(enumerate(old))


@contextmanager
def run_of(stated: list[ResourceState], provider: Callable[[], WorldProvider]) -> Iterator[Run]:
    """Give a run on a stack that has these, and the provider of all of them."""
    entry = ResourceState(PROVIDER, "pulumi:providers:locallb", custom=True, id="1")
    snapshot = StackState([entry, *(replace(one, provider=f"{PROVIDER}::1") for one in stated)])
    reporter, providers = Reporter(ignore, planning=False), Providers({"locallb": provider})
    recorder = Recorder(snapshot)
    resources = ProviderResources("local-lb", "dev", EVERYTHING, recorder, reporter, providers)
    yield Run(reporter, recorder, resources, EVERYTHING, 4, Stop(), is_preview=False)
    providers.close()


@MODEST
@given(graphs())
def test_a_destruction_deletes_everything_and_each_thing_after_what_refers_to_it(
    doomed: dict[int | str, ResourceState],
) -> None:
    """Old instances that refer to each other, or to what refers to their successors, included."""
    resources = [
        replace(one, id=f"{key}", outputs={"address": "x"}, delete=isinstance(key, int)) for key, one in doomed.items()
    ]
    removed: list[str] = []

    class Noting(WorldProvider):
        async def delete(self, request: DeleteRequest) -> None:
            removed.append(request.resource_id)

    with run_of(resources, lambda: Noting(World())) as run:
        Once(run, Parties()).destroy()
        snapshot = run.recorder.snapshot
        assert run.reporter.diagnostics == []
        assert (snapshot.live, snapshot.condemned) == ({}, {})
    assert sorted(removed) == sorted(map(str, doomed))
    for key, user in doomed.items():
        for used in user.references & doomed.keys() - {user.urn}:
            assert removed.index(str(key)) < removed.index(used)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")))
def test_a_circle_is_each_set_of_those_that_wait_for_each_other(waiting: dict[str, str]) -> None:
    """Each is found once, and whoever only waits for one is none of it."""

    def comes_back(start: str) -> bool:
        urn: str | None = waiting.get(start)
        for _ in waiting:
            if urn == start:
                return True
            urn = waiting.get(urn or "")
        return False

    found = [urn for circle in circles_of(waiting) for urn in circle]
    assert sorted(found) == sorted(filter(comes_back, waiting))
    for circle in circles_of(waiting):
        assert [waiting[urn] for urn in circle] == [*circle[1:], circle[0]]


def test_each_deletion_is_told_at_its_beginning_and_its_end_and_counted(bench: Bench) -> None:
    """As a preview foresees it; one that fails too, with what it says."""
    bench.engine().up(lambda: declare(BOTH))
    bench.world.control = {"fail_delete": {"ProxyConfig::alpha": "busy"}}
    engine = bench.engine()
    foreseen = engine.destroy(preview=True)
    bench.events.clear()
    result = engine.destroy()
    begun = {short(event.subject.urn) for event in bench.events if isinstance(event, StepStarted)}
    done = {short(event.subject.urn) for event in bench.events if isinstance(event, StepDone)}
    (failed,) = (event for event in bench.events if isinstance(event, StepFailed))
    assert (short(failed.subject.urn), failed.message) == ("ProxyConfig::alpha", "busy")
    assert begun == done | {"ProxyConfig::alpha"}
    assert (result.ok, messages(result)) == (False, ["busy"])
    assert {short(urn) for urn in result.broken} == {"Proxy::alpha"}
    bench.world.control = {}
    rest = engine.destroy()
    assert rest.changes[Op.DELETE] + result.changes[Op.DELETE] == foreseen.changes[Op.DELETE]
    assert bench.world.called("delete").count(("delete", "ProxyConfig::alpha")) == 2


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_no_more_operations_run_at_a_time_than_an_engine_is_told(
    parallel: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so many do: each waits here until that is so, or none is left to come."""
    bench.engine().up(lambda: [Thing("Reachable", f"r{number}", {"address": "x"}) for number in range(4)])
    delete = WorldProvider.delete
    together = threading.Barrier(parallel)
    now = 0
    observed: list[int] = []

    async def count(provider: WorldProvider, request: DeleteRequest) -> None:
        nonlocal now
        with bench.world.lock:
            now += 1
            observed.append(now)
        together.wait(SECONDS)
        with bench.world.lock:
            now -= 1
        await delete(provider, request)

    monkeypatch.setattr(WorldProvider, "delete", count)
    assert bench.engine(parallel=parallel).destroy().ok
    assert max(observed) == parallel


@pytest.mark.parametrize(("parallel", "number"), [(1, 8), (4, 8), (4, 100)])
def test_a_party_that_hangs_keeps_no_other_from_being_updated(
    parallel: int, number: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it answers once all others have what they need; each load balancer is a party."""
    create, made = WorldProvider.create, set[str]()

    async def hang(provider: WorldProvider, request: CreateRequest) -> CreateResponse:
        deadline = time.monotonic() + SECONDS
        while request.name.startswith("hung") and len(made) < number:
            assert time.monotonic() < deadline, "the others wait for it"
            await asyncio.sleep(0.01)
        made.add(request.name)
        return await create(provider, request)

    def program() -> None:
        for each in range(2 * number):
            Thing("Reachable", f"{'hung' if each < number else 'r'}{each}", {"address": "x"})

    monkeypatch.setattr(WorldProvider, "create", hang)
    parties = Parties(lambda one: one.name.rstrip("0123456789"))
    assert bench.engine(parallel=parallel, parties=parties).up(program).ok
    assert len(bench.world.called("create")) == 2 * number


def test_a_signal_lets_a_destruction_end_what_runs_and_begin_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread it comes to; the next one deletes the rest."""
    bench.engine().up(lambda: declare(BOTH))
    delete = WorldProvider.delete

    async def interrupted(provider: WorldProvider, request: DeleteRequest) -> None:
        interrupt()
        await delete(provider, request)

    with monkeypatch.context() as patch:
        patch.setattr(WorldProvider, "delete", interrupted)
        result = bench.engine(parallel=1).destroy()
    assert (result.interrupted, messages(result)) == (True, [str(Cancelled())])
    assert len(bench.world.called("delete")) == 1
    assert not bench.checkpoint().pending
    assert bench.engine().destroy().ok
    assert bench.world.things == {}
