"""An update from data does, tells and leaves what an update by a program does: also with failures, and in a scope.

So does a preview, which changes nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from locallb.engine.core.declared import EVERYTHING, Declared, Scope, only
from locallb.engine.core.events import Event, Op, Result, Severity, StepDone, StepFailed, StepPlanned, StepStarted
from locallb.engine.engine import Engine
from locallb.engine.state.errors import Cancelled, EngineError, FullScopeNeeded
from locallb.engine.store import Store
from tests.engine.core.support import groups_of
from tests.engine.graphs import Failing, Graph, Node, Site, changed, declare, fresh, graphs, roots_of
from tests.support.engine import messages

MODEST = settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


NEEDS_ALL = ("everything",)
_RETAINED = re.compile(r"^\S+ can't be deleted: \S+")
"""Of several that stay the first one in the state is named, whose order is that in which threads came."""


@dataclass(frozen=True)
class Turn:
    """What is desired, what fails of it, which roots it is about (None: all), and if its outputs are foreseen."""

    graph: Graph
    failing: frozenset[str]
    roots: frozenset[int] | None
    foresees: bool = True


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    graph = draw(graphs(6))
    claimed: list[Turn] = []
    for _ in range(draw(st.integers(1, 4))):
        names = [f"n{node.number}" for node in graph]
        failing = draw(st.frozensets(st.sampled_from(names), max_size=2)) if names else frozenset()
        roots = draw(st.none() | st.frozensets(st.integers(0, 2), min_size=1))
        claimed.append(Turn(graph, failing, roots, draw(st.booleans())))
        graph = draw(changed(graph)) if graph else draw(graphs(6))
    return claimed


@dataclass
class Twin:
    """A site that is always updated in one way."""

    site: Site
    by_data: bool
    events: list[Event] = field(default_factory=list)

    def take(self, turn: Turn, *, preview: bool = False) -> tuple[object, ...]:
        """Take a turn, or foresee it; give all that can be seen of it."""
        project = self.site.project()
        provider = Failing(self.site.books)
        provider.failing, provider.foresees = turn.failing, turn.foresees
        self.events.clear()
        store = Store(project.backend, project.name, "dev")
        engine = Engine(project, "dev", {"books": provider}, store=store, on_event=self.events.append)
        scope = EVERYTHING if turn.roots is None else scope_of(turn.roots)
        try:
            result = self._run(engine, turn.graph, scope, preview=preview)
        except FullScopeNeeded:
            return NEEDS_ALL
        steps = [step for step in result.steps if step.op is not Op.DELETE_REPLACED]
        reported = [one for one in self.events if isinstance(one, StepPlanned if preview else StepDone | StepFailed)]
        return (
            result.ok,
            {op: number for op, number in result.changes.items() if number},
            result.broken,
            sorted(_RETAINED.sub("something", message) for message in messages(result)),
            sorted((step.op, step.subject.urn, step.failed, repr(step.changes)) for step in steps),
            len(reported) == len(result.steps),
            result.outputs,
            {urn: resource for urn, resource in self.site.state().items() if not urn.endswith("!")},
        )

    @property
    def has_old_instances(self) -> bool:
        return any(urn.endswith("!") for urn in self.site.state())

    def foresee(self, turn: Turn) -> tuple[object, ...]:
        """Foresee a turn; give all that can be seen of that. Nothing is different afterwards."""
        before = self.site.state(), dict(self.site.books.things)
        foreseen = self.take(turn, preview=True)
        assert before == (self.site.state(), self.site.books.things)
        return foreseen

    def destroy(self, *, preview: bool) -> object:
        """Destroy the stack, or foresee that; give what was, or would be, deleted."""
        result = self.site.engine().destroy(preview=preview)
        deleted = sorted((step.op, step.subject.urn) for step in result.steps)
        return result.ok, result.changes, deleted, messages(result)

    def finish(self, graph: Graph) -> tuple[object, object]:
        """Let everything succeed; give what is left, old instances included."""
        assert self.take(Turn(graph, frozenset(), None))[0]
        return self.site.state(), self.site.books.things

    def _run(self, engine: Engine, graph: Graph, scope: Scope, *, preview: bool) -> Result:
        if self.by_data:
            return engine.bring(lambda: declared(graph), scope=scope, preview=preview)
        return (engine.preview if preview else engine.up)(lambda: declare(graph), scope=scope)


def _are_alike(by_data: Any, by_program: Any) -> bool:  # noqa: ANN401 - what `Twin.take` gives
    if by_program[0]:
        return bool(by_data == by_program)
    *seen, state = by_data
    *seen_of_program, state_of_program = by_program
    changes, steps = 1, 4
    for each in (seen, seen_of_program):
        each[changes] = {op: number for op, number in each[changes].items() if op is not Op.DELETE}
        each[steps] = [step for step in each[steps] if step[0] is not Op.DELETE]
    return bool(seen == seen_of_program and state.items() <= state_of_program.items())


def scope_of(roots: frozenset[int]) -> Scope:
    return only(roots_of([tuple(Node(0, root) for root in roots)]))


@MODEST
@given(turns())
def test_updates_from_data_are_those_of_a_program(place: Path, claimed: list[Turn]) -> None:
    """The same operations, counts, sentences and broken roots, foreseen as well; the same state and world in the end.

    Where something failed, old instances are left aside, which from data stay as long as anything that stays refers to
    them, and deletions: a program may not have come to register what it doesn't declare.
    """
    by_program, by_data = Twin(Site(fresh(place)), by_data=False), Twin(Site(fresh(place)), by_data=True)
    for turn in claimed:
        if by_data.has_old_instances and (turn.failing or turn.roots):  # they may stay for others, and what they need
            assert by_data.finish(turn.graph) == by_program.finish(turn.graph)
        foreseen = by_data.foresee(turn), by_program.foresee(turn)
        assert NEEDS_ALL in foreseen or _are_alike(*foreseen), turn
        observed = by_data.take(turn), by_program.take(turn)
        if NEEDS_ALL in observed:  # what was done before that was found depends on who came first
            everything = Turn(turn.graph, frozenset(), None)
            observed = by_data.take(everything), by_program.take(everything)
            assert (observed[0][0], observed[0][-1]) == (observed[1][0], observed[1][-1]), turn
        else:
            assert _are_alike(*observed), turn
            if observed[0][-1] != observed[1][-1]:
                assert by_data.finish(turn.graph) == by_program.finish(turn.graph)
    assert by_data.finish(claimed[-1].graph) == by_program.finish(claimed[-1].graph)
    assert by_data.destroy(preview=True) == by_data.destroy(preview=False) == by_program.destroy(preview=False)
    assert by_data.site.books.things == {}


BEFORE: Graph = (Node(0, 0), Node(1, 0, uses=(0,), first=True), Node(2, 1, uses=(1,)), Node(3, 2))
AFTER: Graph = (Node(0, 0, key=1), Node(1, 0, uses=(0,), first=True, key=1), Node(2, 1, value=1), Node(4, 2, uses=(2,)))
EFFECTS = frozenset((Op.CREATE, Op.UPDATE, Op.DELETE, Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "p")


def declared(graph: Graph) -> Declared:
    return Declared(tuple(groups_of(graph).values()))


def begun_after_a_stop(engine: Engine, moment: int) -> tuple[Result, int]:
    """Stop an update at one of its steps' ends; give its result, and how many operations it began afterwards."""
    ends = began = 0

    def stop(event: Event) -> None:
        nonlocal ends, began
        ends += isinstance(event, StepDone)
        if ends > moment:
            engine.cancel()
            began += isinstance(event, StepStarted) and event.op in EFFECTS and "$" in event.subject.urn

    engine._listener = stop
    return engine.bring(lambda: declared(AFTER)), began


def test_after_a_stop_nothing_more_is_begun_and_the_next_update_goes_on(site: Site) -> None:
    """At each end of a step of an update that does everything there is to do; after the last one it is too late."""
    assert site.engine().bring(lambda: declared(BEFORE)).ok
    twin = Site(site.folder.parent / "twin")
    assert twin.engine().up(lambda: declare(AFTER)).ok
    for moment in count():
        stopped = site.copy(site.folder.parent / str(moment))
        result, began = begun_after_a_stop(stopped.engine(), moment)
        assert began <= 1  # a successor, as its resource was told to be replaced
        assert result.interrupted is not result.ok
        assert messages(result) == [str(Cancelled())] * (not result.ok)
        assert stopped.engine().bring(lambda: declared(AFTER)).ok
        assert (stopped.state(), stopped.books.things) == (twin.state(), twin.books.things)
        if result.ok:  # the last ones run at a time
            break
    assert moment > 10


def test_a_preview_that_is_stopped_says_so_unless_it_was_complete(site: Site) -> None:
    """At each step that it foresees; neither the state nor the world is another afterwards."""
    assert site.engine().bring(lambda: declared(BEFORE)).ok
    before = site.state_path.read_bytes(), dict(site.books.things)
    for moment in count():
        engine, planned = site.engine(), count()

        def stop(event: Event, engine: Engine = engine, planned: Iterator[int] = planned, moment: int = moment) -> None:
            if isinstance(event, StepPlanned) and next(planned) == moment:
                engine.cancel()

        engine._listener = stop
        result = engine.bring(lambda: declared(AFTER), preview=True)
        assert result.interrupted is not result.ok
        assert messages(result) == [str(Cancelled())] * (not result.ok)
        assert (site.state_path.read_bytes(), site.books.things) == before
        if next(planned) <= moment:
            break
    assert moment > 12


def test_in_a_scope_no_reference_is_turned_round(site: Site) -> None:
    """What is outside may have turned too: an update of everything is asked for, and does it."""
    one, other = (Node(0, 0), Node(1, 1, waits=(0,))), (Node(0, 0, waits=(1,)), Node(1, 1))
    assert site.engine().bring(lambda: declared(one)).ok
    before = site.state_path.read_bytes()
    with pytest.raises(FullScopeNeeded, match="update everything"):
        site.engine().bring(lambda: declared(other), scope=scope_of(frozenset({0})))
    assert site.state_path.read_bytes() == before
    assert site.engine().bring(lambda: declared(other)).ok
    assert site.engine().destroy().ok


@pytest.mark.parametrize("by_data", [True, False])
@pytest.mark.parametrize("preview", [True, False])
def test_what_needs_something_absent_outside_the_scope_is_said_to_be_left_out(
    site: Site, *, by_data: bool, preview: bool
) -> None:
    """Once, and not of what needs it in turn; the rest of the scope is made, and an update of everything makes all."""
    graph: Graph = (Node(0, 0), Node(1, 1, uses=(0,)), Node(2, 1, waits=(1,)), Node(3, 1))
    twin = Twin(site, by_data)
    observed: Any = twin.take(Turn(graph, frozenset(), frozenset({1})), preview=preview)
    ok, _changes, _broken, sentences, steps, *_ = observed
    n0, n1 = (f"urn:pulumi:dev::local-lb::books:index:Root$books:index:Node::n{number}" for number in (0, 1))
    outside = f"it needs {n0}, which isn't there and is outside the scope; include that, or update everything"
    assert (ok, sentences) == (False, [f"{n1} is left out: {outside}"])
    assert any(step[1].endswith("::n3") for step in steps)
    assert twin.take(Turn(graph, frozenset(), None))[0]


def test_what_can_not_be_declared_is_told_and_changes_nothing(site: Site) -> None:
    """As a program that breaks off."""
    assert site.engine().bring(lambda: declared(BEFORE)).ok
    before = site.state()

    def broken() -> Declared:
        raise EngineError("there is no plan")

    result = site.engine().bring(broken)
    assert (result.ok, result.is_whole, messages(result)) == (False, False, ["there is no plan"])
    assert site.state() == before


def test_remarks_are_told_and_an_error_among_them_keeps_nothing_from_being_done(site: Site) -> None:
    """Outputs are the Stack's from then on; in a scope the others stay."""
    remarks = ((Severity.WARNING, "beware"), (Severity.ERROR, "one source is away"))
    result = site.engine().bring(lambda: Declared(declared(BEFORE).groups, {"b": 1, "a": [2]}, remarks=remarks))
    assert (result.ok, result.is_whole, messages(result)) == (False, True, ["beware", "one source is away"])
    assert len(site.books.things) == len(BEFORE)
    assert result.outputs == {"a": [2], "b": 1}
    scope = scope_of(frozenset({0}))
    assert site.engine().bring(lambda: Declared(declared(BEFORE).groups, {"b": 2}), scope=scope).outputs == {
        "a": [2],
        "b": 2,
    }
    assert site.engine().bring(lambda: Declared(declared(BEFORE).groups, {"c": 3})).outputs == {"c": 3}
