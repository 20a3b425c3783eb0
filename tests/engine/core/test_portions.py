"""Laws of a core that brings about parts of a stack, in any order and however often, over random histories."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.core.core import Core, Terms
from tests.engine.core.support import (
    MODEST,
    ROOTS,
    SimulatedExecutor,
    by_the_engine,
    core_of,
    groups_of,
    histories,
    node_key,
    of_varied_length,
    site_of,
    unlucky,
    without_providers,
)
from tests.engine.graphs import Graph, Node, Site, declare


def partial_core(site: Site, executor: SimulatedExecutor) -> AbstractContextManager[Core]:
    """Open a core that brings about what it is asked for."""
    return core_of(site, executor, terms=Terms(is_partial=True))


@MODEST
@given(histories(), st.integers(0, 99), st.lists(st.sampled_from([0.0, 0.01, 0.5, 20.0]), min_size=6, max_size=6))
def test_portions_end_in_the_state_and_world_of_the_engine(
    place: Path, history: list[Graph], seed: int, pauses: list[float]
) -> None:
    """With sessions that end in between, failures, looks, and operations that end when something else is asked for."""
    site, dice = site_of(place), Random(seed)
    executor = SimulatedExecutor(of_varied_length(seed), unlucky(seed))
    for graph, pause in zip(history, pauses, strict=False):
        with partial_core(site, executor) as core:
            core.desire(groups_of(graph))
            for number in dice.sample(range(3), dice.randint(0, 3)):
                core.bring([ROOTS[number]], inspect=dice.random() < 0.3)
                core.run(lambda core=core: core.is_at_rest, pause)  # type: ignore[misc]
        assert not executor.under_way, "12 seconds are enough"
    executor.fails = lambda _operation: False
    with partial_core(site, executor) as core:
        core.desire(groups_of(history[-1]))
        members = core.bring(ROOTS.values())
        core.run(lambda: core.is_at_rest, 600)
        assert all(core.has_ended(urn) for urn in members), (core.failures, core.waiting)
    twin = by_the_engine(place, history[-1])
    assert without_providers(site) == without_providers(twin)
    assert site.books.things == twin.books.things
    assert site.engine().up(lambda: declare(history[-1]), refresh=True).unchanged


APART: Graph = (Node(0, 0), Node(1, 0, uses=(0,)), Node(2, 1), Node(3, 1, waits=(2,)))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Make a site that has two roots."""
    return by_the_engine(tmp_path, APART)


def test_what_is_not_asked_for_stays_as_it_is(site: Site) -> None:
    """Whether it is to be changed, or to go."""
    executor, begun = SimulatedExecutor(), list[str]()
    executor.starting = lambda one: begun.append(one.subject.name)
    with partial_core(site, executor) as core:
        core.desire(groups_of(tuple(replace(node, value=1) for node in APART[:3])))
        core.bring([ROOTS[0]])
        core.run(lambda: core.is_at_rest, 60)
    assert begun == ["n0", "n1"]


def test_what_is_needed_and_is_not_there_is_made_as_well(site: Site) -> None:
    """A part alone would otherwise wait for ever."""
    executor, begun = SimulatedExecutor(), list[str]()
    executor.starting = lambda one: begun.append(one.subject.name)
    with partial_core(site, executor) as core:
        core.desire(groups_of((*APART, Node(4, 1), Node(5, 2, uses=(4,)))))
        members = core.bring([ROOTS[2]])
        core.run(lambda: core.is_at_rest, 60)
        assert all(core.has_ended(urn) for urn in members)
    assert begun == ["n4", "n5"]


def test_what_still_uses_what_is_to_go_lets_go_of_it_first(site: Site) -> None:
    """Though nobody asked for it."""
    before: Graph = (*APART, Node(4, 2, waits=(3,)))
    executor, begun = SimulatedExecutor(), list[tuple[str, str]]()
    with partial_core(site, executor) as core:
        core.desire(groups_of(before))
        core.bring([ROOTS[2]])
        core.run(lambda: core.is_at_rest, 60)
        executor.starting = lambda one: begun.append((one.kind.value, one.subject.name))
        core.desire(groups_of((*APART[:2], Node(4, 2))))
        core.bring([ROOTS[1]])
        core.run(lambda: core.is_at_rest, 60)
    assert begun == [("deleting", "n3"), ("deleting", "n2")]


def test_a_failure_is_forgotten_when_it_is_asked_for_again_and_not_before(site: Site) -> None:
    """Whoever asks knows when."""
    executor, begun = SimulatedExecutor(fails=lambda _operation: True), list[str]()
    executor.starting = lambda one: begun.append(one.subject.name)
    with partial_core(site, executor) as core:
        core.desire(groups_of((replace(APART[0], value=1), *APART[1:])))
        core.bring([ROOTS[0]])
        core.run(lambda: core.is_at_rest)
        core.run(lambda: False, 100)
        assert begun == ["n0"]
        assert str(core.failure_of(core.urn_of(node_key(1)))) == "chance"
        executor.fails = lambda _operation: False
        core.bring([ROOTS[0]])
        core.run(lambda: core.is_at_rest)
        assert begun == ["n0", "n0", "n1"]
        assert not core.failures


def test_a_look_finds_what_others_took_away_before_anything_is_decided(site: Site) -> None:
    """It is made again, and what refers to it keeps the reference."""
    site.books.things.pop("n2#0.0")
    with partial_core(site, SimulatedExecutor()) as core:
        core.desire(groups_of(APART))
        core.bring([ROOTS[1]])
        core.run(lambda: core.is_at_rest)
        assert "n2#0.0" not in site.books.things, "nobody looked"
        core.bring([ROOTS[1]], inspect=True)
        core.run(lambda: core.is_at_rest)
    assert "n2#0.0" in site.books.things
    assert site.engine().up(lambda: declare(APART), refresh=True).unchanged


def test_whoever_waits_for_a_party_that_does_not_answer_is_told_so(site: Site) -> None:
    """And holds nothing up; what hangs is waited for, and the next try may succeed."""
    several = tuple(Node(10 + 3 * number, 2) for number in range(12))
    executor = SimulatedExecutor(lambda one: 100.0 if one.lane == "party/1" else 0.01)
    with partial_core(site, executor) as core:
        core.desire(groups_of((*APART, *several)))
        core.bring([ROOTS[2]])
        core.run(lambda: False, 60)
        reported = {str(error) for error in core.failures.values()}
        assert [text.partition(":")[0] for text in reported] == ["party/1 doesn't answer"]
        assert 0 < len(core.failures) < len(several)
        core.run(lambda: core.is_at_rest, 600)
        executor.seconds = lambda _operation: 0.01
        members = core.bring([ROOTS[2]])
        core.run(lambda: core.is_at_rest, 600)
        assert all(core.has_ended(urn) for urn in members)
