"""What a start may take for done: not what broke off, nor what somebody else wrote between two updates."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pulumi.provider.experimental.provider import ReadRequest, ReadResponse

from locallb.config.settings import Settings
from locallb.desired import Desired
from locallb.engine.core.desired_index import Groups
from locallb.engine.core.updates import Ended, Updates
from locallb.engine.state.urns import name_of
from locallb.model.desired import BALANCER, CONFIG, SERVICE_CONFIG, Group, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.identities import Digest, Home, ObjectKey
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult
from locallb.watch import converge
from locallb.watch import updates as work
from locallb.watch.converge import Converger
from locallb.watch.events import Cause, Converged, LoopEvent, Mark
from locallb.watch.failures import Failures
from locallb.watch.loop import Loop
from locallb.watch.updates import Outcome, Wanted
from tests.support.engine import Bench, World, WorldProvider, make_project

if TYPE_CHECKING:
    from locallb.sources.workspace import Workspace

SETTINGS = Settings((), ())
NAMES = ("k/n/a", "k/n/b", "k/n/c")
KEYS = [ObjectKey.parse(name) for name in NAMES]


def balancer(name: str, version: str) -> Group:
    """Desire a root with two resources, one after the other."""
    root, first = ResourceKey(BALANCER, name), ResourceKey(CONFIG, name)
    return Group(
        (
            Resource(root, {"digest": version}, outputs={}),
            Resource(first, {"x": version}, root),
            Resource(ResourceKey(SERVICE_CONFIG, f"{name}/z"), {"x": version}, root, (first,)),
        ),
        Digest(version),
    )


def wanting(monkeypatch: pytest.MonkeyPatch, *groups: Group) -> Mapping[ObjectKey, str]:
    """Have every plan want these; give their digests."""
    owners = {ObjectKey.parse(group.root.name): group for group in groups}
    digests = {key: group.digest for key, group in owners.items()}
    wanted = Desired({key: (group,) for key, group in owners.items()}, digests)
    monkeypatch.setattr(Wanted, "of", lambda _self, _plan: wanted)
    return digests


def all_of(version: str) -> tuple[Group, ...]:
    return tuple(balancer(name, version) for name in NAMES)


def brought(converger: Converger, wanted: Mapping[ObjectKey, str], *, refresh: bool = False) -> Outcome:
    outcome = converger.update(Plan(), wanted, work.Batch(tuple(wanted), refresh=refresh))
    converger.stop()
    return outcome


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return where a stack may be deployed, with its directory of readings."""
    made = Bench(make_project(tmp_path / "p"), World())
    (tmp_path / "p/.state/locallb/dev").mkdir(parents=True)
    return made


def learnt(bench: Bench) -> Converger:
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), bench.engine())
    converger.learn()
    return converger


def test_interrupted_update_is_declared_again_after_a_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a root that is in the state with its new digest, what is below may never have been declared."""
    brought(learnt(bench), wanting(monkeypatch, *all_of("1")))
    engine = bench.engine(parallel=1)
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    converger.learn()
    bench.world.control = {"meanwhile": {f"ProxyConfig::{name}": engine.cancel for name in NAMES}}
    outcome = brought(converger, wanting(monkeypatch, *all_of("2")))
    bench.world.control = {}
    assert not outcome.result.is_whole
    assert outcome.failed.keys() == {*KEYS}
    assert not any(learnt(bench)._checks.needs_check_only([key]) for key in KEYS)


def test_state_written_by_another_process_is_not_taken_as_verified(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version's update between two of ours."""
    converger = learnt(bench)
    wanted = wanting(monkeypatch, *all_of("1"))
    converger.update(Plan(), wanted, work.Batch(tuple(KEYS)))
    converger._updates().release()
    brought(learnt(bench), wanting(monkeypatch, *all_of("other")))
    wanted = wanting(monkeypatch, *all_of("2"))
    converger.update(Plan(), wanted, work.Batch((KEYS[2],)))
    converger.stop()
    assert not any(learnt(bench)._checks.needs_check_only([key]) for key in KEYS)


@pytest.mark.parametrize("drifted", [(), NAMES[1:2], NAMES])
def test_a_start_brings_about_again_what_differs_and_nothing_beside_it(
    bench: Bench, drifted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many that it looks at in one go, an update takes those that others changed; all of them are checked then."""
    wanted = wanting(monkeypatch, *all_of("1"))
    brought(learnt(bench), wanted)
    retry, begun, begin = learnt(bench), list[object](), Updates.begin

    def noted(self: Updates, groups: Groups, parts: Mapping[Hashable, frozenset[str]], **how: Any) -> None:  # noqa: ANN401 - as it is given
        begun.extend(parts)
        begin(self, groups, parts, **how)

    monkeypatch.setattr(Updates, "begin", noted)
    for name in drifted:
        del bench.world.things[f"ProxyConfig::{name}"]
    outcome = brought(retry, wanted, refresh=True)
    assert {*begun} == {*map(ObjectKey.parse, drifted)}
    assert outcome.result.ok
    assert not outcome.failed
    assert outcome.untouched == set(KEYS) - set(map(ObjectKey.parse, drifted))
    assert learnt(bench)._checks.check_only
    assert bench.engine().drifted() == frozenset()


def test_a_party_that_hangs_at_a_start_is_left_under_way_and_others_are_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of many doesn't wait for it; what it serves ends once it answers."""
    wanted = wanting(monkeypatch, *all_of("1"))
    brought(learnt(bench), wanted)
    answers, read = threading.Event(), WorldProvider.read

    async def hang(provider: WorldProvider, request: ReadRequest) -> ReadResponse:
        if request.name == NAMES[1]:
            answers.wait()
        return await read(provider, request)

    monkeypatch.setattr(WorldProvider, "read", hang)
    monkeypatch.setattr(converge, "DEADLINE", 0.05)
    retry = learnt(bench)
    outcome = retry.update(Plan(), wanted, work.Batch(tuple(KEYS), refresh=True), lambda: True)
    assert outcome.ended == {KEYS[0], KEYS[2]}
    assert {*retry.going_on} == {KEYS[1]}
    answers.set()
    outcome = retry.wait(lambda: False)
    assert outcome.ended == {KEYS[1]}
    assert not outcome.failed
    retry.stop()
    assert learnt(bench)._checks.check_only


def test_dependents_of_a_vanished_resource_are_brought_about_again_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look removes the reference; a dependent that is left out of the update would stay without it."""
    first = balancer(NAMES[0], "1")
    root, needed = ResourceKey(BALANCER, NAMES[1]), ResourceKey(CONFIG, NAMES[0])
    user = Resource(ResourceKey(SERVICE_CONFIG, "user"), {"x": "1"}, root, (needed,))
    wanted = wanting(monkeypatch, first, Group((Resource(root, {"digest": "1"}, outputs={}), user), Digest("1")))

    def dependencies() -> list[str]:
        users = (each for each in bench.engine().resources() if each.name == "user")
        return [name_of(urn) for user in users for urn in user.dependencies]

    brought(learnt(bench), wanted)
    before = dependencies()
    retry = learnt(bench)
    del bench.world.things[f"ProxyConfig::{NAMES[0]}"]
    assert brought(retry, wanted, refresh=True).result.ok
    assert dependencies() == before == [NAMES[0]]


@pytest.mark.parametrize("at", ["between two updates", "after the last"])
def test_resources_removed_by_another_process_are_made_again(
    bench: Bench, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's write of the state is no news of ours, and is seen at once: the loop looks again."""
    home, engine, reported = Home("local-lb", "dev", str(bench.project.root)), bench.engine(), list[LoopEvent]()
    loop = Loop(home, engine, lambda: SETTINGS, bench.project.root / "x.yaml", reported.append, observe=lambda _: {})
    world: Any = SimpleNamespace(
        stale=dict,
        retry=dict,
        unready=lambda: False,
        updated=lambda: None,
        invalidate_host_facts=lambda: None,
        stop=lambda: None,
    )
    reading = SnapshotResult(Snapshot(home))
    workspace = SimpleNamespace(settings=SETTINGS, cache=world, read_and_plan=lambda *_, **__: (reading, Plan()))
    workspace.configured = lambda _settings: workspace
    loop._planner._workspace = cast("Workspace", workspace)
    monkeypatch.setattr(Failures, "inspect", lambda *_: ())
    wanting(monkeypatch, *all_of("1"))
    monkeypatch.setattr(work, "MAX", 1)
    batches, take = list[object](), Updates.take

    def claimed(self: Updates) -> Ended:
        ended = take(self)
        batches.extend(ended.parts)
        if ended.parts and len(batches) == (1 if at == "between two updates" else len(KEYS)):
            self.release()
            assert bench.engine().destroy().ok
        return ended

    monkeypatch.setattr(Updates, "take", claimed)
    loop._take(Mark(Cause.RETRY))
    for _ in KEYS:
        loop._inspect()
    assert Converged() in reported
    assert {*NAMES} <= {resource.name for resource in engine.resources()}
    loop._end()
