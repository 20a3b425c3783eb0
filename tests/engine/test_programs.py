"""Laws of programs: components with outputs, providers of their own, failures at any operation, exceptions, scopes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pulumi.provider.experimental.provider import DeleteRequest

from locallb.engine.core.declared import EVERYTHING, only
from locallb.engine.core.events import Op, Result
from locallb.engine.engine import Engine
from locallb.engine.state.errors import FullScopeNeeded
from locallb.engine.state.urns import root_urn
from locallb.engine.store import Store
from tests.engine.graphs import Failing, Graph, Node, Site, changed, fresh, graphs
from tests.support.engine import messages

MODEST = settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Program:
    """A graph whose roots are components with a part each; the odd nodes are in the part.

    `shown` are the nodes that their component, or the stack, has as outputs. `own` are the roots whose nodes have a
    provider of the program. `breaks` raises once the node of this number, or what becomes of it, is known.
    """

    graph: Graph
    shown: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()
    size: int = 0
    breaks: int | None = None

    def __call__(self) -> None:
        roots: dict[int, tuple[pulumi.ComponentResource, pulumi.ComponentResource]] = {}
        providers = {root: pulumi.ProviderResource("books", f"p{root}", {}) for root in sorted(self.own)}
        made: dict[int, pulumi.CustomResource] = {}
        for node in self.graph:
            if node.root not in roots:
                roots[node.root] = self._components(node.root)
            made[node.number] = self._node(node, roots[node.root][node.number % 2], made, providers.get(node.root))
        for number, pair in roots.items():
            for component in pair:
                mine = [node.number for node in self.graph if node.root == number and node.number in self.shown]
                component.register_outputs({f"n{each}": _out(made[each]) for each in mine})
        for number in self.shown & made.keys():
            pulumi.export(f"n{number}", _out(made[number]))
        if self.breaks in made:
            _out(made[self.breaks]).apply(_break)

    def _components(self, root: int) -> tuple[pulumi.ComponentResource, pulumi.ComponentResource]:
        above = pulumi.ComponentResource("books:index:Root", f"r{root}", {"size": self.size})
        return above, pulumi.ComponentResource(
            "books:index:Part", f"r{root}", {"size": self.size}, pulumi.ResourceOptions(parent=above)
        )

    @staticmethod
    def _node(
        node: Node,
        parent: pulumi.Resource,
        made: dict[int, pulumi.CustomResource],
        provider: pulumi.ProviderResource | None,
    ) -> pulumi.CustomResource:
        inputs = {
            "value": node.value,
            "key": node.key,
            "first": node.first,
            "out": None,
            **{f"use{number}": _out(made[number]) for number in node.uses},
        }
        options = pulumi.ResourceOptions(
            parent=parent, depends_on=[made[number] for number in node.waits], provider=provider
        )
        return pulumi.CustomResource("books:index:Node", f"n{node.number}", inputs, options)


def _out(resource: pulumi.CustomResource) -> Any:  # noqa: ANN401 an output of any type
    return resource.__dict__["out"]


def _break(_value: object) -> None:
    raise ValueError("the program is broken")


@dataclass(frozen=True)
class Turn:
    """A program, what of it can't be made or changed, what can't be deleted, and of which roots the update is."""

    program: Program
    failing: frozenset[str] = frozenset()
    staying: frozenset[str] = frozenset()
    roots: frozenset[int] | None = None
    is_preview: bool = False
    refresh: bool = False


class Refusing(Failing):
    """A provider that refuses to delete some things, too."""

    staying: frozenset[str] = frozenset()

    async def delete(self, request: DeleteRequest) -> None:
        if request.resource_id.partition("#")[0] in self.staying:
            raise RuntimeError(f"{request.resource_id} stays")
        await super().delete(request)


@dataclass
class Stage:
    """A site on which turns are taken."""

    site: Site
    turns: int = field(default=0)

    def take(self, turn: Turn) -> Result:
        """Take a turn. Raises FullScopeNeeded."""
        project = self.site.project()

        def provider() -> Refusing:
            made = Refusing(self.site.books)
            made.failing, made.staying = turn.failing, turn.staying
            return made

        engine = Engine(project, "dev", {"books": provider}, store=Store(project.backend, project.name, "dev"))
        update = engine.preview if turn.is_preview else engine.up
        scope = EVERYTHING if turn.roots is None else only(_root(number) for number in turn.roots)
        return update(turn.program, scope=scope, refresh=turn.refresh)

    @property
    def names(self) -> set[str]:
        return {identity.partition("#")[0] for identity in self.site.books.things}


def _root(number: int) -> str:
    return root_urn("local-lb", "dev", "books:index:Root", f"r{number}")


NUMBERS = st.frozensets(st.integers(0, 6), max_size=4)
NAMES = st.frozensets(st.integers(0, 6).map("n{}".format), max_size=2)


@st.composite
def programs(draw: st.DrawFn, graph: Graph) -> Program:
    own = draw(st.frozensets(st.integers(0, 2), max_size=1))
    breaks = draw(st.none() | st.none() | st.none() | st.integers(0, 6))
    return Program(graph, draw(NUMBERS), own, draw(st.integers(0, 1)), breaks)


@st.composite
def histories(draw: st.DrawFn) -> list[Turn]:
    graph = draw(graphs(6))
    taken: list[Turn] = []
    for _ in range(draw(st.integers(1, 4))):
        roots = draw(st.none() | st.none() | st.frozensets(st.integers(0, 2), min_size=1))
        program = draw(programs(graph))
        taken.append(Turn(program, draw(NAMES), draw(NAMES), roots, draw(st.booleans()), draw(st.booleans())))
        graph = draw(changed(graph)) if graph else draw(graphs(6))
    return taken


def _mended(program: Program) -> Program:
    return Program(program.graph, program.shown, program.own, program.size)


@MODEST
@given(histories())
def test_history_does_not_matter_once_an_update_succeeds(place: Path, turns: list[Turn]) -> None:
    """State and world are those of a stack that never had another program; the next update has nothing to do."""
    stage, twin = Stage(Site(fresh(place))), Stage(Site(fresh(place)))
    for turn in turns:
        before = stage.site.state(), dict(stage.site.books.things)
        try:
            stage.take(turn)
        except FullScopeNeeded:
            stage.site.state()  # nothing is left under way
            continue
        assert not turn.is_preview or before == (stage.site.state(), stage.site.books.things)
    last = Turn(_mended(turns[-1].program))
    assert stage.take(last).ok
    assert twin.take(last).ok
    assert (stage.site.state(), stage.site.books.things) == (twin.site.state(), twin.site.books.things)
    assert stage.take(last).unchanged
    assert stage.site.engine().destroy().ok
    assert (stage.site.books.things, stage.site.engine().resources()) == ({}, ())


@st.composite
def first_programs(draw: st.DrawFn) -> Program:
    """Draw the first program of a stack."""
    return draw(programs(draw(graphs(7))))


@MODEST
@given(first_programs(), NAMES)
def test_a_failure_holds_back_what_needs_it_and_nothing_else(
    place: Path, program: Program, failing: frozenset[str]
) -> None:
    """Each has one sentence; what is held back has none; the roots of both are named."""
    stage, program = Stage(Site(fresh(place))), _mended(program)
    result = stage.take(Turn(program, failing))
    held: set[int] = set()
    refused: set[int] = set()
    for node in program.graph:
        if held & {*node.uses, *node.waits}:
            held.add(node.number)
        elif f"n{node.number}" in failing:
            held.add(node.number)
            refused.add(node.number)
    assert stage.names == {f"n{node.number}" for node in program.graph if node.number not in held}
    assert sorted(messages(result)) == sorted(f"n{number} is refused" for number in refused)
    assert result.broken == {_root(node.root) for node in program.graph if node.number in held}
    assert (result.ok, result.is_whole) == (not refused, True)
    exported = {f"n{number}" for number in program.shown if any(number == node.number for node in program.graph)}
    assert result.outputs.keys() == exported - {f"n{number}" for number in held}


@MODEST
@given(first_programs(), st.data())
def test_an_exception_in_a_program_removes_nothing(place: Path, program: Program, data: st.DataObject) -> None:
    """After any of its registrations: what that one needed is made, what was there before is there, one sentence."""
    stage = Stage(Site(fresh(place)))
    assert stage.take(Turn(_mended(program))).ok
    before, graph = stage.names, data.draw(changed(program.graph))
    number = data.draw(st.sampled_from([node.number for node in graph])) if graph else None
    result = stage.take(Turn(Program(graph, program.shown, program.own, 1 - program.size, number)))
    if number is None:
        assert result.ok
        return
    assert (result.ok, result.is_whole) == (False, False)
    (sentence,) = messages(result)
    assert sentence.startswith("the program failed: ValueError: the program is broken")
    assert before | {f"n{number}"} <= stage.names
    assert not any(step.op is Op.DELETE for step in result.steps)
