"""The core in tests: random graphs as data, and a world in which time passes only when everybody waits."""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from locallb.engine.core.core import Core, Terms
from locallb.engine.core.desired_index import Groups
from locallb.engine.core.executor import Executor, Message
from locallb.engine.core.lanes import Parties
from locallb.engine.core.operations import Operation, OperationResult, attempted
from locallb.engine.core.session import open_core
from locallb.engine.state.errors import StepError
from locallb.engine.state.files import Files
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import root_urn
from locallb.engine.store import Store
from locallb.model.desired import DesiredResource as Resource
from locallb.model.desired import Group, Ref, ResourceKey
from locallb.model.identities import Digest
from tests.engine.graphs import BookKeeper, Doom, Graph, Node, Site, TornFiles, changed, declare, fresh, graphs

ROOTS = {number: root_urn("local-lb", "dev", "books:index:Root", f"r{number}") for number in range(3)}


def root_key(number: int) -> ResourceKey:
    return ResourceKey("books:index:Root", f"r{number}")


def node_key(number: int) -> ResourceKey:
    return ResourceKey("books:index:Node", f"n{number}")


def _resource(node: Node) -> Resource:
    return Resource(
        node_key(node.number),
        {
            "value": node.value,
            "key": node.key,
            "first": node.first,
            **{f"use{number}": Ref(node_key(number), ("out",)) for number in node.uses},
        },
        root_key(node.root),
        tuple(node_key(number) for number in node.waits),
    )


def groups_of(graph: Graph) -> Groups:
    """Say as data what `graphs.declare` declares."""
    return {
        root_key(root): Group(
            (
                Resource(root_key(root), {}, outputs={}),
                *(_resource(node) for node in graph if node.root == root),
            ),
            Digest(""),
        )
        for root in sorted({node.root for node in graph})
    }


class InPlace(BookKeeper):
    """A provider whose coroutines wait for nothing."""

    in_place = True


@dataclass
class SimulatedExecutor:
    """Operations that take the time that a test says, of a clock that moves only when the core waits.

    An operation does its work when it ends, or at once if `is_early`, so that what it did isn't known for a time.
    """

    seconds: Callable[[Operation], float] = lambda _operation: 0.01
    fails: Callable[[Operation], bool] = lambda _operation: False
    starting: Callable[[Operation], None] = lambda _operation: None
    is_early: bool = False
    time: float = 0.0
    under_way: list[tuple[float, int, Operation, OperationResult | None]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def now(self) -> float:
        return self.time

    def start(self, operation: Operation) -> None:
        """Let an operation end later; none of its resource may be under way."""
        assert operation.urn not in {other.urn for _at, _number, other, _outcome in self.under_way}
        self.starting(operation)
        outcome = self._attempted(operation) if self.is_early else None
        heapq.heappush(self.under_way, (self.time + self.seconds(operation), next(self._numbers), operation, outcome))

    def receive(self, until: float | None) -> Message | None:
        if self.messages:
            return self.messages.pop(0)
        if not self.under_way or (until is not None and self.under_way[0][0] > until):
            assert until is not None, "the core waits for ever"
            self.time = max(self.time, until)
            return None
        self.time, _number, operation, outcome = heapq.heappop(self.under_way)
        return outcome or self._attempted(operation)

    def _attempted(self, operation: Operation) -> OperationResult:
        return attempted(operation, lambda: self._perform(operation))

    def _perform(self, operation: Operation) -> object:
        if self.fails(operation):
            raise StepError("chance")
        return operation.perform()

    def post(self, message: Message) -> None:
        self.messages.append(message)


def lane_of(resource: ResourceState) -> str:
    return f"party/{int(resource.name[1:]) % 3}"


@contextmanager
def core_of(
    site: Site,
    executor: Executor,
    doom: Doom | None = None,
    terms: Terms = Terms(),  # noqa: B008 - it is frozen
) -> Iterator[Core]:
    """Open the core of a site, with an end in sight or not."""
    project = site.project()
    store = Store(project.backend, project.name, "dev", TornFiles(doom) if doom else Files())
    site.books.frozen = (lambda: doom.dead) if doom else (lambda: False)
    with open_core(
        store,
        project=project.name,
        stack="dev",
        sources={"books": InPlace(site.books)},
        parties=Parties(lane_of),
        executor=executor,
        terms=terms,
    ) as core:
        yield core


def desire(core: Core, graph: Graph) -> None:
    """Desire a graph, and nothing at all for none."""
    if graph:
        core.desire(groups_of(graph))
    else:
        core.desire_nothing()


def retry(core: Core) -> None:
    core.bring(ROOTS.values())


def bring(site: Site, graph: Graph, executor: SimulatedExecutor | None = None, doom: Doom | None = None) -> None:
    with core_of(site, executor or SimulatedExecutor(), doom) as core:
        desire(core, graph)
        core.run(lambda: core.is_settled, 300)
        assert core.is_settled, (core.failures, core.waiting)


def unlucky(seed: int, part: float = 0.15) -> Callable[[Operation], bool]:
    """Let a part of the operations fail."""
    dice = Random(seed)
    return lambda _operation: dice.random() < part


def of_varied_length(seed: int) -> Callable[[Operation], float]:
    """Let operations take some time, few of them more than their deadline."""
    dice = Random(seed)
    return lambda _operation: dice.choice((0.0, 0.01, 0.02, 0.1, 3.0))


MODEST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def histories(draw: st.DrawFn, maximum: int = 6) -> list[Graph]:
    """Draw what is desired one after the other; each differs from the one before, some take that back."""
    history = [draw(graphs(maximum))]
    for _ in range(draw(st.integers(1, 5))):
        before = history[-1]
        back = len(history) > 1 and draw(st.booleans())
        history.append(history[-2] if back else draw(changed(before)) if before else draw(graphs(maximum)))
    return history


def site_of(place: Path) -> Site:
    site = Site(fresh(place))
    site.project()
    return site


def without_providers(site: Site) -> dict[str, object]:
    """Return the state; a default provider may stay of which nothing is left to use it."""
    return {urn: resource for urn, resource in site.state().items() if "pulumi:providers" not in urn}


def by_the_engine(place: Path, graph: Graph) -> Site:
    """Make a site that today's engine brought from nothing to the graph."""
    site = site_of(place)
    assert site.engine().up(lambda: declare(graph)).ok
    return site
