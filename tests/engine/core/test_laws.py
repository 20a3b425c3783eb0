"""Laws of the core over random graphs and histories, in simulated time, with today's engine as the judge of states."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locallb.engine.core.core import Core
from locallb.engine.core.operations import Kind, Operation
from locallb.engine.state.checkpoint import check_resources, check_state
from locallb.engine.state.errors import StateUnwritable
from tests.engine.core.support import (
    MODEST,
    SimulatedExecutor,
    bring,
    by_the_engine,
    core_of,
    groups_of,
    histories,
    node_key,
    of_varied_length,
    retry,
    site_of,
    unlucky,
    without_providers,
)
from tests.engine.graphs import CrashError, Doom, Graph, Node, Site, changed, declare, fresh, graphs

FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_nothing_uses(core: Core, operation: Operation) -> None:
    """Check a deletion at its beginning: nothing in the state, or under way, is left that refers to what goes."""
    snapshot = core.snapshot
    under_way = [one.resource for one in snapshot.pending.values()]
    others = (*snapshot.live.values(), *snapshot.condemned.values(), *under_way)
    if operation.kind is Kind.DELETE:
        assert not [one for one in others if operation.urn in one.references and one.urn != operation.urn]
    if operation.kind is Kind.DELETE_OLD:
        live = snapshot.live.get(operation.urn)
        assert live is None or live.id != operation.subject.id
        users = (user.urn for user in snapshot.users_of(operation.urn) if core.is_wanted(user.urn))
        assert all(core.is_as_desired(user) for user in users)


@MODEST
@given(histories(), st.integers(0, 9), st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.5, 20.0]), min_size=6, max_size=6))
def test_random_histories_end_in_the_state_and_world_of_the_engine(
    place: Path, history: list[Graph], seed: int, pauses: list[float]
) -> None:
    """With failures, and operations that end long after something else is desired; none of a resource overlap."""
    site = site_of(place)
    executor = SimulatedExecutor(of_varied_length(seed), unlucky(seed))
    with core_of(site, executor) as core:
        executor.starting = lambda operation: assert_nothing_uses(core, operation)
        for graph, pause in zip(history, pauses, strict=False):
            core.desire(groups_of(graph))
            core.run(lambda: core.is_settled, pause)
            retry(core)
        executor.fails = lambda _operation: False
        core.run(lambda: core.is_at_rest, 600)
        retry(core)
        core.run(lambda: core.is_settled, 600)
        assert core.is_settled, (core.failures, core.waiting)
    twin = by_the_engine(place, history[-1])
    assert without_providers(site) == without_providers(twin)
    assert site.books.things == twin.books.things
    assert site.engine().up(lambda: declare(history[-1]), refresh=True).unchanged


BEFORE: Graph = (
    Node(0, 0, key=0),
    Node(1, 0, uses=(0,), first=True),
    Node(2, 1, uses=(1,), value=0),
    Node(3, 1, waits=(2,)),
)
AFTER: Graph = (
    Node(0, 0, key=1),
    Node(1, 0, uses=(0,), first=True, key=1),
    Node(2, 1, uses=(1,), value=1),
    Node(4, 2, uses=(2,)),
)


def engine_brings(site: Site, graph: Graph, doom: Doom | None = None) -> None:
    """Bring a site to a graph, or to nothing, by today's engine."""
    engine = site.engine(doom)
    result = engine.up(lambda: declare(graph)) if graph else engine.destroy()
    assert result.ok or (doom and doom.dead), result.diagnostics


def core_brings(site: Site, graph: Graph, doom: Doom | None = None) -> None:
    """Bring a site there by the core, which writes the state at times; what is done is known only later."""
    bring(site, graph, SimulatedExecutor(lambda _operation: 2.0, is_early=True), doom)


BY: dict[str, Callable[[Site, Graph, Doom | None], None]] = {"engine": engine_brings, "core": core_brings}


def crash_everywhere(place: Path, site: Site, graph: Graph, first: str, then: str) -> int:
    """Die at every write of one engine, and let the other one go on each time; gives the number of writes."""
    idle = site.copy(fresh(place))
    engine_brings(idle, graph)
    for at in count():
        victim = site.copy(fresh(place))
        doom = Doom(at)
        with suppress(CrashError, StateUnwritable):
            BY[first](victim, graph, doom)
        if not doom.dead:
            return at
        assert check_state(victim.state_path) == (), at
        assert not list(check_resources(victim.engine().resources())), at
        BY[then](victim, graph, None)
        assert victim.state() == idle.state(), at
        assert victim.books.things == idle.books.things, at
        made_since = victim.books.made[len(site.books.made) :]
        assert len(made_since) == len(set(made_since)), at
        assert not list((victim.folder / ".state" / ".pulumi" / "locks").rglob("*.json"))
    raise AssertionError


WAYS = pytest.mark.parametrize(("first", "then"), [("core", "engine"), ("engine", "core"), ("core", "core")])


@WAYS
def test_a_crash_at_any_write_of_each_kind_of_step_is_healed_by_the_other_engine(
    place: Path, first: str, then: str
) -> None:
    """Creation, update, both orders of replacement with dependents, and deletion."""
    site = by_the_engine(place, BEFORE)
    assert crash_everywhere(place, site, AFTER, first, then) > 15
    assert crash_everywhere(place, site, (), first, then) > 8


@WAYS
@FEW
@given(graphs(4), st.data())
def test_a_crash_at_any_write_is_healed_by_the_other_engine(
    place: Path, first: str, then: str, graph: Graph, data: st.DataObject
) -> None:
    """Whatever the graph and the change."""
    crash_everywhere(place, by_the_engine(place, graph), data.draw(changed(graph)), first, then)


@MODEST
@given(graphs(8), st.data(), st.integers(0, 2))
def test_with_one_party_hanging_what_does_not_need_it_settles_as_soon_as_without(
    place: Path, before: Graph, data: st.DataObject, party: int
) -> None:
    """Whatever is created and changed; what depends on a resource of that party waits, and nothing else."""
    before = tuple(replace(node, first=False) for node in before)
    after = data.draw(changed(before))
    free = {node.number for node in after if not needs(after, node, party)}
    times: list[dict[int, float]] = []
    for hangs in (False, True):
        site = site_of(place)
        executor = SimulatedExecutor(lambda _operation: 0.25)
        with core_of(site, executor) as core:
            core.desire(groups_of(before))
            core.run(lambda: core.is_settled, 60)
            assert core.is_settled
            if hangs:
                executor.seconds = lambda one: 1e6 if one.lane == f"party/{party}" else 0.25
            core.desire(groups_of(after))
            times.append(settling_times(core, executor, after))
            executor.under_way.clear()
    assert {number: times[1].get(number) for number in free} == {number: times[0][number] for number in free}


def needs(graph: Graph, node: Node, party: int) -> bool:
    """Return whether a node is of a party, or depends on one that is."""
    by_number = {one.number: one for one in graph}
    return node.number % 3 == party or any(needs(graph, by_number[one], party) for one in (*node.uses, *node.waits))


def settling_times(core: Core, executor: SimulatedExecutor, graph: Graph) -> dict[int, float]:
    """Return after which time each node was as desired."""
    began = executor.now()
    times: dict[int, float] = {}

    def inspect() -> bool:
        for node in graph:
            if core.is_as_desired(core.urn_of(node_key(node.number))):
                times.setdefault(node.number, executor.now() - began)
            else:
                times.pop(node.number, None)
        return False

    core.run(inspect, 60)
    return times
