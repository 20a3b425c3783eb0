"""Random resource graphs: a program made from data, a provider that keeps books, and crashes at any write."""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pulumi
from hypothesis import strategies as st
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import (
    ConfigureRequest,
    ConfigureResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    Provider,
    ReadRequest,
    ReadResponse,
    UpdateRequest,
    UpdateResponse,
)

from locallb.engine.engine import Engine
from locallb.engine.state.checkpoint import parse_checkpoint
from locallb.engine.state.files import Files
from locallb.engine.state.project import Project
from locallb.engine.state.urns import root_urn
from locallb.engine.state.values import UNKNOWN
from locallb.engine.store import Store
from tests.support.engine import make_project

_numbers = count()


def fresh(place: Path) -> Path:
    """Return a folder below `place` that isn't there yet."""
    return place / str(next(_numbers))


@dataclass(frozen=True)
class Node:
    """A resource: its number, its root's, what it uses by value and merely waits for, and what can change of it.

    A change of `value` updates it, one of `key` replaces it, first deleting the old one if `first`.
    """

    number: int
    root: int
    uses: tuple[int, ...] = ()
    waits: tuple[int, ...] = ()
    value: int = 0
    key: int = 0
    first: bool = False


Graph = tuple[Node, ...]


@st.composite
def graphs(draw: st.DrawFn, maximum: int = 6) -> Graph:
    """Draw a graph whose roots depend on earlier roots only."""
    size = draw(st.integers(1, maximum))
    roots = sorted(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    return tuple(_node(draw, number, root) for number, root in enumerate(roots))


def _node(draw: st.DrawFn, number: int, root: int) -> Node:
    earlier = st.sets(st.integers(0, number - 1), max_size=2) if number else st.just(set())
    uses, waits = tuple(sorted(draw(earlier))), tuple(sorted(draw(earlier)))
    return Node(number, root, uses, waits, draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.booleans()))


@st.composite
def changed(draw: st.DrawFn, graph: Graph) -> Graph:
    """Draw a graph that differs from another one: nodes gone, changed, new."""
    removed = draw(st.sets(st.sampled_from([node.number for node in graph]), max_size=2))
    retained = [node for node in graph if node.number not in removed]
    after = [_change(draw, node, removed) for node in retained]
    if draw(st.booleans()):
        number = max(node.number for node in graph) + 1
        after.append(Node(number, 2, tuple(node.number for node in after[-1:])))
    return tuple(after)


def _change(draw: st.DrawFn, node: Node, removed: set[int]) -> Node:
    uses = tuple(number for number in node.uses if number not in removed)
    waits = tuple(number for number in node.waits if number not in removed)
    value, key = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    return replace(node, uses=uses, waits=waits, value=value, key=key)


@dataclass
class Books:
    """What the provider made, by id; `frozen` stops it like a process that died."""

    things: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    frozen: Callable[[], bool] = lambda: False
    lock: Lock = field(default_factory=Lock)

    def alive(self) -> None:
        if self.frozen():
            raise RuntimeError("the process is dead")


def _outputs(inputs: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    existing = {key: value for key, value in inputs.items() if key != "out"}
    if any(value.value == UNKNOWN for value in existing.values()):
        return {**existing, "out": PropertyValue(UNKNOWN)}
    text = ";".join(f"{key}={value.value}" for key, value in sorted(existing.items()))
    return {**existing, "out": PropertyValue(str(hash(text) % 1_000_003))}


def _changed_keys(old: dict[str, PropertyValue], new: dict[str, PropertyValue]) -> list[str]:
    return sorted(key for key in {*old, *new} - {"out"} if old.get(key) != new.get(key))


class BookKeeper(Provider):
    """A provider that adopts what it made before, as the engine expects of providers."""

    def __init__(self, books: Books) -> None:
        self.books = books

    async def diff(self, request: DiffRequest) -> DiffResponse:
        """Replace for another key, update for anything else."""
        keys = _changed_keys(request.old_state, request.new_inputs)
        first = bool(request.new_inputs["first"].value)
        return DiffResponse(
            changes=bool(keys), diffs=keys, replaces=[key for key in keys if key == "key"], delete_before_replace=first
        )

    async def create(self, request: CreateRequest) -> CreateResponse:
        """Make a thing, or take over the one that is there."""
        outputs = _outputs(request.properties)
        if request.preview:
            return CreateResponse("", outputs)
        identity = f"{request.name}#{request.properties['key'].value}"
        with self.books.lock:
            self.books.alive()
            if identity not in self.books.things:
                self.books.made.append(identity)
            self.books.things[identity] = outputs
        return CreateResponse(identity, outputs)

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        """Change a thing that must be there."""
        outputs = _outputs(request.news)
        if not request.preview:
            with self.books.lock:
                self.books.alive()
                assert request.resource_id in self.books.things
                self.books.things[request.resource_id] = outputs
        return UpdateResponse(outputs)

    async def read(self, request: ReadRequest) -> ReadResponse:
        outputs = self.books.things.get(request.resource_id)
        if outputs is None:
            return ReadResponse("", {}, {})
        inputs = {key: value for key, value in outputs.items() if key != "out"}
        return ReadResponse(request.resource_id, outputs, inputs)

    async def delete(self, request: DeleteRequest) -> None:
        with self.books.lock:
            self.books.alive()
            self.books.things.pop(request.resource_id, None)


class _Root(pulumi.ComponentResource):
    def __init__(self, name: str) -> None:
        super().__init__("books:index:Root", name)


def declare(graph: Graph) -> None:
    roots: dict[int, _Root] = {}
    made: dict[int, pulumi.CustomResource] = {}
    for node in graph:
        if node.root not in roots:
            roots[node.root] = _Root(f"r{node.root}")
        inputs = {
            "value": node.value,
            "key": node.key,
            "first": node.first,
            "out": None,
            **{f"use{number}": made[number].__dict__["out"] for number in node.uses},
        }
        options = pulumi.ResourceOptions(parent=roots[node.root], depends_on=[made[number] for number in node.waits])
        made[node.number] = pulumi.CustomResource("books:index:Node", f"n{node.number}", inputs, options)


def roots_of(graphs_: Iterable[Graph]) -> list[str]:
    """Return the URNs of all roots, in order."""
    numbers = sorted({node.root for graph in graphs_ for node in graph})
    return [root_urn("local-lb", "dev", "books:index:Root", f"r{number}") for number in numbers]


class CrashError(Exception):
    """The process died here."""


class Doom:
    """Dies at the nth write from now, half-way through it if it adds to the journal, and stays dead."""

    def __init__(self, after: int) -> None:
        self.remaining = after
        self.dead = False
        self._lock = Lock()

    def __call__(self, _what: str) -> None:
        with self._lock:
            if self.dead or self.remaining == 0:
                self.dead = True
                raise CrashError
            self.remaining -= 1


class TornFiles(Files):
    """Files that die half-way through a line of the journal."""

    def __init__(self, doom: Doom) -> None:
        super().__init__(doom)
        self._doom = doom

    def append(self, descriptor: int, path: Path, text: str) -> None:
        """Write half of the line on which the process dies."""
        was_dead = self._doom.dead
        try:
            super().append(descriptor, path, text)
        except CrashError:
            if not was_dead:
                os.write(descriptor, text.encode()[: len(text) // 2])
            raise


@dataclass
class Site:
    """A project with its books; can be copied, to try every crash from the same start."""

    folder: Path
    books: Books = field(default_factory=Books)

    def project(self) -> Project:
        return make_project(self.folder)

    def engine(self, doom: Doom | None = None) -> Engine:
        """Make an engine, with an end in sight or not."""
        project = self.project()
        files = TornFiles(doom) if doom else Files()
        store = Store(project.backend, project.name, "dev", files)
        self.books.frozen = (lambda: doom.dead) if doom else (lambda: False)
        return Engine(project, "dev", {"books": BookKeeper(self.books)}, store=store)

    def copy(self, folder: Path) -> "Site":
        shutil.copytree(self.folder, folder)
        return Site(folder, Books(dict(self.books.things), list(self.books.made)))

    @property
    def state_path(self) -> Path:
        return self.folder / ".state" / ".pulumi" / "stacks" / "local-lb" / "dev.json"

    def state(self) -> dict[str, dict[str, Any]]:
        """Read the state, checking its rules; without what differs from run to run."""
        if not self.state_path.exists():
            return {}
        checkpoint = parse_checkpoint(self.state_path.read_text(), "", self.state_path)
        assert not checkpoint.pending
        return {resource.urn + "!" * resource.delete: _plain(resource.as_json()) for resource in checkpoint.resources}


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in raw.items() if key not in {"created", "modified"}}
    plain["dependencies"] = sorted(raw.get("dependencies", []))
    plain["propertyDependencies"] = {
        key: sorted(urns) for key, urns in (raw.get("propertyDependencies") or {}).items() if urns
    }
    if "provider" in plain:
        plain["provider"] = plain["provider"].rpartition("::")[0]
    if "providers" in plain["type"]:
        plain["id"] = "some"
    return plain


class Failing(BookKeeper):
    """A provider that refuses to make some things, and may foresee nothing."""

    failing: frozenset[str] = frozenset()
    foresees = True

    async def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        del request
        return ConfigureResponse(supports_preview=self.foresees)

    async def create(self, request: CreateRequest) -> CreateResponse:
        self._refuse(request.name)
        return await super().create(request)

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        self._refuse(request.name)
        return await super().update(request)

    def _refuse(self, name: str) -> None:
        if name in self.failing:
            raise RuntimeError(f"{name} is refused")
