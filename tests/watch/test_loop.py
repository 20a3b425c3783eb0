"""The loop, with everything that it uses played: what it remembers from look to look."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from locallb.config.settings import Settings
from locallb.engine.core.events import Op, Result, StepRecord, Subject
from locallb.kubernetes.api.writes import UNREACHABLE
from locallb.model.desired import ADDRESS, DNS_NAME, GATEWAY_STATUS, PROCESS, REACHABLE, SERVICE_STATUS
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult
from locallb.watch import schedule
from locallb.watch.events import Cause, Converged, LoopEvent, Mark
from locallb.watch.failures import Failures
from locallb.watch.loop import Loop
from locallb.watch.planner import Planner
from locallb.watch.schedule import OF_OTHERS, UPDATES
from locallb.watch.updates import MAX, Batch, Outcome, Work

HOME = Home("p", "s", "/p")
SETTINGS = Settings((), ())
DEMO, AWAY = ClusterName("demo"), ClusterName("away")
ACCESS = {name: Access("/kubeconfig", ContextName(name)) for name in (DEMO, AWAY)}


class World:
    """What is read, and of which sources it is old."""

    def __init__(self) -> None:
        self.old: dict[ClusterName, str] = {}
        self.existing = self.old
        self.reading = SnapshotResult(Snapshot(HOME, access=ACCESS))

    def read(self, *, keep: bool) -> SnapshotResult:
        """Read: only then is it known which are old."""
        assert keep
        self.existing = self.old
        return self.reading

    def stale(self) -> dict[ClusterName, str]:
        return self.existing

    def retry(self) -> dict[ClusterName, float]:
        """No source is to be read again without an event."""
        return {}

    def unready(self) -> bool:
        return False

    def updated(self) -> None:
        """Forget nothing."""

    def invalidate_host_facts(self) -> None:
        """Forget nothing."""

    def stop(self) -> None:
        """Follow nothing."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def reported() -> list[LoopEvent]:
    return []


@pytest.fixture
def loop(world: World, reported: list[LoopEvent], tmp_path: Path) -> Loop:
    """Make a loop whose engine has nothing."""
    engine: Any = SimpleNamespace(
        state_stamp=lambda: 1,
        read_stamp=lambda: 1,
        readings=1,
        resources=lambda: (),
        unfinished=frozenset,
        cancel=lambda: None,
    )
    made = Loop(HOME, engine, lambda: SETTINGS, tmp_path / "x.yaml", reported.append, observe=lambda _proxies: {})
    workspace: Any = SimpleNamespace(
        settings=SETTINGS, cache=world, read_and_plan=lambda *_, keep: (world.read(keep=keep), Plan())
    )
    workspace.configured = lambda _settings: workspace
    made._planner._workspace = workspace
    nobody: Any = SimpleNamespace(follow=lambda _settings: None, runs=lambda _resources: None, stop=lambda: None)
    made._planner.triggers = nobody  # what happens to routes of this host meanwhile is none of these tests' news
    return made


def played(update: Callable[..., Outcome], **more: object) -> Any:  # noqa: ANN401 - a part of one
    """Play a converger that leaves nothing under way."""
    parts = {
        "update": update,
        "learn": lambda: None,
        "applied": {},
        "is_overtaken": False,
        "going_on": (),
        "is_full": lambda _now: False,
        "under_way": lambda *_: frozenset(),
        "exited": lambda _keys: None,
        "wake": lambda: None,
    }
    return SimpleNamespace(**parts | more)


def inspect(loop: Loop) -> None:
    loop._take(Mark(Cause.RETRY))
    loop._inspect()


def test_a_cluster_counts_as_silent_as_long_as_it_is_stale(loop: Loop, world: World) -> None:
    """Nothing is asked of it, and of the others as always; a loop that ends leaves nobody silent."""
    world.old = {AWAY: "source away: it doesn't answer"}
    inspect(loop)
    assert UNREACHABLE.why(ACCESS[AWAY]) == "source away: it doesn't answer"
    assert not UNREACHABLE.why(ACCESS[DEMO])
    world.old = {}
    inspect(loop)
    assert not UNREACHABLE.why(ACCESS[AWAY])
    world.old = {AWAY: "source away: it doesn't answer"}
    inspect(loop)
    loop._planner.stop()
    assert not UNREACHABLE.why(ACCESS[AWAY])


@pytest.mark.parametrize(("type_", "searches"), [(REACHABLE, 1), (GATEWAY_STATUS, 0), (PROCESS, 0)])
def test_only_a_proxy_that_did_not_take_its_configuration_is_searched_for_what_envoy_refuses(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, type_: str, searches: int
) -> None:
    """A status that can't be written, or a runtime that is away, says nothing of it, and a search takes seconds."""
    subject = Subject("urn", type_, "demo/n/web", "")
    result = Result(ok=False, steps=(StepRecord(Op.UPDATE, subject, failed=True),))
    key = ObjectKey(DEMO, "n", "web")
    outcome, searched = Outcome(result, {key: "it failed"}, ended=frozenset({key})), list[object]()
    loop._converger = played(lambda *_: outcome)
    monkeypatch.setattr(Planner, "find_refusals", lambda _self, _plan, keys: searched.append(keys))
    loop._read(frozenset(), 0.0)
    loop._update(Plan(), {}, Work(changed=(key,)), 0.0)
    assert len(searched) == searches


def test_failures_of_a_silent_cluster_are_retried_once_it_answers_and_rarely_before(loop: Loop, world: World) -> None:
    """Looking at this host again wouldn't help; failures of other clusters may be this host's fault."""
    keys = of_away, of_demo = ObjectKey(AWAY, "n", "web"), ObjectKey(DEMO, "n", "web")
    result: Any = SimpleNamespace(changes={}, failed_types=frozenset())
    outcome = Outcome(result, dict.fromkeys(keys, "it can't be written"), ended=frozenset(keys))
    loop._converger = played(lambda *_: outcome)
    world.old = {AWAY: "source away: it doesn't answer"}
    loop._read(frozenset(), 0.0)
    loop._update(Plan(), {}, Work(changed=keys), 0.0)
    paces = {key: retry.backoff.pace for key, retry in loop._schedule.retries.items()}
    assert paces == {of_away: OF_OTHERS, of_demo: UPDATES}
    world.old = {}
    loop._read(frozenset(), 0.0)
    assert loop._schedule.waiting(time.monotonic(), {}) <= {of_demo}
    UNREACHABLE.put({})


@pytest.mark.parametrize(
    ("types", "invalidated"), [((), 1), ((REACHABLE,), 1), ((DNS_NAME, SERVICE_STATUS), 0), ((DNS_NAME, ADDRESS), 1)]
)
def test_the_host_is_looked_at_again_where_a_failure_may_be_its_fault(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...], invalidated: int
) -> None:
    """Not where only a name server or a cluster failed; an update that broke off may have failed for any reason."""
    key, count = ObjectKey(DEMO, "n", "web"), list[int]()
    result: Any = SimpleNamespace(changes={}, failed_types=frozenset(types))
    loop._converger = played(lambda *_: Outcome(result, {key: "it fails"}, ended=frozenset({key})))
    monkeypatch.setattr(Planner, "find_refusals", lambda *_: False)
    loop._read(frozenset(), 0.0)
    monkeypatch.setattr(Planner, "invalidate_host_facts", lambda _self: count.append(1))
    loop._update(Plan(), {}, Work(changed=(key,)), 0.0)
    assert len(count) == invalidated


@pytest.mark.parametrize("ends", ["all is done", "it is stopped", "something else came"])
def test_converged_is_reported_only_after_all_of_the_plan_is_done(
    ends: str, loop: Loop, reported: list[LoopEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a loop that was stopped in between, nor by one that looks again before it goes on."""
    keys = tuple(ObjectKey(DEMO, "n", f"s{number}") for number in range(2 * MAX))
    result: Any = SimpleNamespace(changes={}, failed_types=frozenset())
    batches = list[int]()

    def update(_plan: Plan, _wanted: object, batch: Batch, _is_enough: object) -> Outcome:
        batches.append(len(batch.keys))
        if ends == "it is stopped":
            loop.stop()
        elif ends == "something else came":
            loop.mark(Mark(Cause.SOURCE, "demo"))
        return Outcome(result, ended=frozenset(batch.keys))

    existing = dict.fromkeys(keys, "digest")
    loop._converger = played(update, wanted=lambda _plan: existing, work=lambda *_: Work(new=keys))
    monkeypatch.setattr(Failures, "inspect", lambda *_: ())
    inspect(loop)
    assert batches == ([MAX, MAX] if ends == "all is done" else [MAX])
    assert (Converged() in reported) == (ends == "all is done")


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_new_is_served_although_something_changes_all_the_time(
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_broken: bool,
) -> None:
    """Whatever changes, or breaks, goes first, and is another every time the loop looks."""
    busy, fresh, status = (ObjectKey(DEMO, "n", name) for name in ("busy", "fresh", "status"))
    many = tuple(ObjectKey(DEMO, "n", f"told{number}") for number in range(MAX))
    done = list[ObjectKey]()

    def update(_plan: Plan, _wanted: object, batch: Batch, _is_enough: object) -> Outcome:
        done.extend(batch.keys)
        loop.mark(Mark(Cause.SOURCE, "demo"))
        result: Any = SimpleNamespace(changes={}, failed_types=frozenset())
        return Outcome(result, ended=frozenset(batch.keys))

    def work(*_: object) -> Work:
        work = Work(new=(fresh,), reported=(status, *many)).without({fresh, status} & {*done})
        return replace(work, broken=(busy,)) if is_broken else replace(work, changed=(busy,))

    loop._converger = played(update, wanted=lambda _plan: {}, work=work)
    monkeypatch.setattr(Failures, "inspect", lambda *_: ())
    monkeypatch.setattr(schedule, "TIMEOUT", 0.0)
    for _ in range(3):
        inspect(loop)
    assert done[0] == busy
    assert {fresh, status} <= {*done}


def test_what_changes_all_the_time_lets_others_go_first_and_is_repaired_at_once(
    loop: Loop, reported: list[LoopEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a burst of its updates a look leaves it out, says that it waits, and comes back to it."""
    busy, fresh = ObjectKey(DEMO, "n", "busy"), ObjectKey(DEMO, "n", "fresh")
    result: Any = SimpleNamespace(changes={}, failed_types=frozenset())
    batches = list[tuple[ObjectKey, ...]]()

    def update(_plan: Plan, _wanted: object, batch: Batch, _is_enough: object) -> Outcome:
        batches.append(batch.keys)
        return Outcome(result, ended=frozenset(batch.keys))

    open_ = [Work(changed=(busy,), new=(fresh,))]
    loop._converger = played(update, wanted=lambda _plan: {}, work=lambda *_: open_[0])
    monkeypatch.setattr(Failures, "inspect", lambda *_: ())
    now = time.monotonic()
    for _ in range(schedule.BURST):
        loop._schedule = loop._schedule.updating(now + 1000, [busy])
    inspect(loop)
    assert batches == [(fresh,)]
    assert reported[-1] == Converged(1)
    assert loop._schedule.later == now + 1000 + schedule.APART
    open_[0] = Work(broken=(busy,))
    inspect(loop)
    assert batches[-1] == (busy,)
