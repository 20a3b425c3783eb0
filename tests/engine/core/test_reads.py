"""What reads find: of many resources as of one, also where a party doesn't answer."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi.provider.experimental.provider import ReadRequest, ReadResponse

from locallb.engine.core import reads
from locallb.engine.core.declared import only
from locallb.engine.core.events import Op, StepFailed
from locallb.engine.core.lanes import Parties
from locallb.engine.state.resource import ResourceState
from tests.engine.graphs import Graph, Site, fresh, graphs
from tests.engine.graphs import declare as declare_graph
from tests.support.balancers import BOTH, declare
from tests.support.engine import Bench, WorldProvider, messages, short

LONGEST = 0.05
"""Seconds after which a party counts as hanging in these tests."""


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Return the names of what can't be read before the test ends: empty at first."""
    names: set[str] = set()
    is_over = threading.Event()
    read = WorldProvider.read

    async def hang(provider: WorldProvider, request: ReadRequest) -> ReadResponse:
        if request.name in names:
            is_over.wait()
        return await read(provider, request)

    monkeypatch.setattr(WorldProvider, "read", hang)
    yield names
    is_over.set()


def party_of(resource: ResourceState) -> str:
    """Let each load balancer be a party."""
    return resource.name


@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_a_party_that_hangs_may_differ_and_what_others_are_is_found_out(
    bench: Bench, hanging: set[str], at_once: int
) -> None:
    """It isn't waited for, however few threads there are, and nothing of it is left to wait in the next read."""
    engine = bench.engine(parallel=at_once, parties=Parties(party_of))
    engine.up(lambda: declare(BOTH))
    hanging.add("alpha")
    bench.world.control = {"read": {"Reachable::beta": "gone"}}
    for _ in range(2):
        drifted = engine.drifted(longest=LONGEST)
        assert set(map(short, drifted)) == {"LoadBalancer::alpha", "Proxy::alpha", "LoadBalancer::beta"}
    beta = [resource.urn for resource in engine.resources() if resource.name == "beta" and not resource.custom]
    assert set(map(short, engine.drifted(scope=only(beta)))) == {"LoadBalancer::beta"}


def test_a_refresh_before_an_update_reports_each_read(bench: Bench) -> None:
    """One that fails too, once as a step and once as a sentence."""
    engine = bench.engine()
    engine.up(lambda: declare(BOTH))
    bench.events.clear()
    bench.world.control = {"fail_read": {"Reachable::beta": "no route"}}
    result = engine.up(lambda: declare(BOTH), refresh=True)
    assert (result.ok, messages(result)) == (False, ["no route"])
    refreshed = [step for step in result.steps if step.op is Op.REFRESH]
    made = [resource.urn for resource in engine.resources() if resource.id and "providers" not in resource.type]
    assert sorted(step.subject.urn for step in refreshed) == sorted(made)
    assert [short(event.subject.urn) for event in bench.events if isinstance(event, StepFailed)] == ["Reachable::beta"]


@settings(deadline=None, max_examples=25)
@given(graph=graphs(), removed=st.sets(st.integers(0, 5)), moment=st.sampled_from([0.0, 10.0]))
def test_a_refresh_leaves_what_one_of_one_resource_after_the_other_does(
    place: Path, graph: Graph, removed: set[int], moment: float
) -> None:
    """However reads are dealt out to threads: what is gone leaves the state, with all references to it."""
    many, single = Site(fresh(place)), Site(fresh(place))
    results = []
    for site, parallel in ((many, 16), (single, 1)):
        assert site.engine().up(lambda: declare_graph(graph)).ok
        for identity in [*site.books.things]:
            if int(identity[1:].partition("#")[0]) in removed:
                del site.books.things[identity]
        engine = site.engine()
        engine._parallel = parallel
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reads, "_MOMENT", moment)
            result = engine.refresh()
        results.append((result.ok, result.changes, sorted((step.op, step.subject.urn) for step in result.steps)))
    assert results[0] == results[1]
    assert many.state() == single.state()
    assert sum(step[0] is Op.DELETE for step in results[0][2]) == len(removed & {node.number for node in graph})
