"""What a start may take for done: not what broke off, nor what somebody else wrote between two updates."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pulumi
import pytest

from locallb.config.settings import Settings
from locallb.engine.deploy.events import Result
from locallb.engine.deploy.scope import Scope, only
from locallb.engine.state.urns import name_of, root_urn
from locallb.model.identities import Home, ObjectKey
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult
from locallb.watch.converging import converge, work
from locallb.watch.converging.converge import Converger
from locallb.watch.events import Cause, Converged, LoopEvent, Mark
from locallb.watch.loop import Loop
from locallb.watch.troubles.troubles import Troubles
from tests.engine.support import Bench, Thing, World, make_project

if TYPE_CHECKING:
    from locallb.sources.workspace import Workspace

SETTINGS = Settings((), ())
NAMES = ("k/n/a", "k/n/b", "k/n/c")
KEYS = [ObjectKey.parse(name) for name in NAMES]


class LoadBalancer(pulumi.ComponentResource):
    """A root with two resources, one after the other."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__("locallb:index:LoadBalancer", name, {"digest": version})
        self.first = Thing("ProxyConfig", name, {"x": version}, pulumi.ResourceOptions(parent=self))
        options = pulumi.ResourceOptions(parent=self, depends_on=[self.first])
        Thing("ServiceConfig", f"{name}/z", {"x": version}, options)


def declaring(version: str, names: tuple[str, ...] = NAMES) -> Callable[[], None]:
    """Return a program that declares some."""

    def program() -> None:
        for name in names:
            LoadBalancer(name, version)

    return program


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return where a stack may be deployed, with its directory of readings."""
    made = Bench(make_project(tmp_path / "p"), World())
    (tmp_path / "p/.state/locallb/dev").mkdir(parents=True)
    return made


def learnt(bench: Bench) -> Converger:
    """Start."""
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), bench.engine())
    converger.learn()
    return converger


def test_interrupted_update_is_declared_again_after_a_start(bench: Bench) -> None:
    """Of a root that is in the state with its new digest, what is below may never have been declared."""
    engine = bench.engine(parallel=1)
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    engine.up(declaring("1"))
    converger.learn()
    bench.world.control = {"meanwhile": {f"ProxyConfig::{name}": engine.cancel for name in NAMES}}
    result = engine.up(declaring("2"))
    bench.world.control = {}
    assert not result.is_whole
    converger.note(KEYS, result)
    assert not any(learnt(bench)._checks.needs_look_only([key]) for key in KEYS)


def test_state_written_by_another_process_is_not_taken_as_verified(bench: Bench) -> None:
    """Another version's update between two of ours."""
    engine = bench.engine()
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    converger.note(KEYS, engine.up(declaring("1")))
    converger.learn()
    bench.engine().up(declaring("other"))
    scope = only([root_urn("local-lb", "dev", "locallb:index:LoadBalancer", NAMES[2])])
    converger.note(KEYS[2:], engine.up(declaring("2", NAMES[2:]), scope=scope))
    assert not any(learnt(bench)._checks.needs_look_only([key]) for key in KEYS)


@pytest.mark.parametrize("drifted", [(), NAMES[1:2], NAMES])
def test_a_start_declares_again_what_differs_and_nothing_beside_it(
    bench: Bench, drifted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many that it looks at in one go, an update takes those that others changed; all of them are checked then."""
    engine = bench.engine()
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    converger.learn()
    converger.note(KEYS, engine.up(declaring("1")))
    wanted, declared = dict.fromkeys(KEYS, "1"), list[ObjectKey]()

    def declare_some(_: Plan, keys: Collection[ObjectKey], *_others: object) -> None:
        declared.extend(keys)
        declaring("1", tuple(map(str, keys)))()

    monkeypatch.setattr(converge, "declare_some", declare_some)
    again = learnt(bench)
    for name in drifted:
        del bench.world.things[f"ProxyConfig::{name}"]
    outcome = again.update(Plan(), wanted, work.Batch(tuple(KEYS), refresh=True))
    assert sorted(declared) == sorted(map(ObjectKey.parse, drifted))
    assert outcome.result.ok
    assert not outcome.failed
    assert outcome.untouched == set(KEYS) - set(declared)
    assert learnt(bench)._checks.look_only
    assert bench.engine().drifted() == frozenset()


def test_dependents_of_a_vanished_resource_are_declared_again_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh removes the reference; a dependent that is left out of the update would stay without it."""

    def declare(names: Collection[str]) -> None:
        first = LoadBalancer(NAMES[0], "1").first
        if NAMES[1] in names:
            options = pulumi.ResourceOptions(parent=LoadBalancer(NAMES[1], "1"), depends_on=[first])
            Thing("ServiceConfig", "user", {"x": "1"}, options)

    def dependencies() -> list[str]:
        users = (each for each in bench.engine().resources() if each.name == "user")
        return [name_of(urn) for user in users for urn in user.dependencies]

    engine = bench.engine()
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    converger.learn()
    converger.note(KEYS[:2], engine.up(lambda: declare(NAMES)))
    before = dependencies()
    monkeypatch.setattr(converge, "declare_some", lambda _plan, keys, *_others: declare([str(key) for key in keys]))
    again = learnt(bench)
    del bench.world.things[f"ProxyConfig::{NAMES[0]}"]
    outcome = again.update(Plan(), dict.fromkeys(KEYS[:2], "1"), work.Batch(tuple(KEYS[:2]), refresh=True))
    assert outcome.result.ok
    assert dependencies() == before == [NAMES[0]]


@pytest.mark.parametrize("at", ["between two updates", "after the last"])
def test_resources_removed_by_another_process_are_made_again(
    bench: Bench, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's write of the state is no news of ours, and is seen at once: the loop looks again."""
    home, engine, told = Home("local-lb", "dev", str(bench.project.root)), bench.engine(), list[LoopEvent]()
    loop = Loop(home, engine, lambda: SETTINGS, bench.project.root / "x.yaml", told.append, observe=lambda _: {})
    world: Any = SimpleNamespace(
        stale=dict, again=dict, unready=lambda: False, updated=lambda: None, surprised=lambda: None, stop=lambda: None
    )
    reading = SnapshotResult(Snapshot(home))
    loop._planner._workspace = cast(
        "Workspace",
        SimpleNamespace(settings=SETTINGS, cache=world, read_and_plan=lambda *_, **__: (reading, Plan())),
    )
    monkeypatch.setattr(Troubles, "look", lambda *_: ())
    monkeypatch.setattr(Converger, "wanted", lambda *_: dict.fromkeys(KEYS, "1"))
    monkeypatch.setattr(work, "MOST", 1)
    batches = list[tuple[ObjectKey, ...]]()

    def declare_some(_plan: Plan, keys: Collection[ObjectKey], *_: object) -> None:
        batches.append(tuple(keys))
        for key in keys:
            LoadBalancer(str(key), "1")

    def up(program: Callable[[], None], *, refresh: bool, scope: Scope, begin: Callable[[], None]) -> Result:
        result = ours(program, refresh=refresh, scope=scope, begin=begin)
        if len(batches) == (1 if at == "between two updates" else len(KEYS)):
            bench.engine().up(declaring("1", ()))
        return result

    ours = engine.up
    monkeypatch.setattr(engine, "up", up)
    monkeypatch.setattr(converge, "declare_some", declare_some)
    loop._take(Mark(Cause.RETRY))
    for _ in KEYS:
        loop._look()
    assert Converged() in told
    assert {*NAMES} <= {resource.name for resource in engine.resources()}
