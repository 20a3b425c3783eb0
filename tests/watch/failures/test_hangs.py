"""A proxy that hangs: told first, then ended and started again, by nobody who wouldn't start it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.model.errors import ClientError
from locallb.model.identities import Home, ObjectKey, ProxyName, RunIdentity
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.planned import Plan
from locallb.planning.proxy_placing import PlanContext, proxy_of_stack
from locallb.runtimes.process_runtime import RUNTIME
from locallb.sources.snapshot import SnapshotResult
from locallb.storage.proxy_directories import Proxies
from locallb.watch.converge import Converger
from locallb.watch.failures import Failures
from locallb.watch.hangs import Hang
from locallb.watch.loop import Loop

HOME = Home("p", "s", "/p")
FRAME = PlanContext.of(HOME, Settings((), ()), HostFacts())
ONE, TWO = ObjectKey.parse("spare-1"), ObjectKey.parse("spare-2")
PLAN = Plan(proxies=tuple(proxy_of_stack(ProxyName(name), FRAME) for name in ("spare-1", "spare-2")))
READING = SnapshotResult(Snapshot(HOME))
HOUR = 3600.0


def hang(after: float = 0.0) -> Hang:
    """Return a hang that was just found, of a proxy that is to be replaced after so many seconds."""
    now = time.monotonic()
    return Hang(now - 5, now + after, time.time() - 5, RunIdentity.of_process(1, "boot.1"))


@pytest.fixture
def failures() -> Failures:
    return Failures(lambda _: {})


@pytest.fixture
def converger() -> Converger:
    """Know of both as they are planned."""
    made = Converger(HOME, cast("Engine", mock.Mock(readings=0)))
    made.applied = dict(made.wanted(PLAN))
    return made


def inspect(failures: Failures, converger: Converger, **hanging: Hang) -> None:
    failures.hung({name.replace("_", "-"): each for name, each in hanging.items()})
    failures.inspect(READING, PLAN, (), converger)


def test_the_look_that_finds_a_hang_tells_it_and_the_next_one_replaces_the_proxy(
    failures: Failures, converger: Converger
) -> None:
    """It is an outage since it was asked, and the next look comes at once; the other proxy is left alone."""
    found = hang()
    inspect(failures, converger, spare_1=found)
    assert failures.outages.lasting(time.monotonic()) == {"spare-1"}
    assert [sentence.partition(":")[0] for sentence in failures.notices()] == ["spare-1"]
    assert (failures.broken, failures.replaced) == (set(), {})
    assert failures.replacements() == {"spare-1": found.replace_at}
    inspect(failures, converger, spare_1=found)
    assert (failures.broken, failures.replaced) == ({ONE}, {"spare-1": found})
    assert not failures.replacements()


def test_what_fails_already_is_not_told_first(failures: Failures, converger: Converger) -> None:
    """Its update would wait for the Envoy that hangs."""
    failing = mock.Mock(key=ONE, proxy="spare-1")
    converger.applied[ONE] = ""
    with mock.patch.object(Plan, "placements", (failing,)):
        failures.hung({"spare-1": hang()})
        assert failures._unhung_or_due(time.monotonic(), PLAN, converger) == {"spare-1"}


def test_one_that_hangs_again_is_told_as_soon_and_replaced_later(failures: Failures, converger: Converger) -> None:
    """Also a full pass leaves it alone until then."""
    found = hang(HOUR)
    for _ in range(3):
        inspect(failures, converger, spare_1=found)
        assert (failures.broken, failures.replaced) == (set(), {})
        assert failures.replacements() == {"spare-1": found.replace_at}
    assert failures.outages.lasting(time.monotonic()) == {"spare-1"}
    with mock.patch.object(Converger, "drifted", return_value=set()):
        assert failures.drifted(PLAN, converger) == set()


def test_one_that_answers_again_is_looked_at_and_not_ended(failures: Failures, converger: Converger) -> None:
    """Whether it serves is found out by asking it; that was told to be over."""
    inspect(failures, converger, spare_1=hang(HOUR))
    inspect(failures, converger)
    assert (failures.broken, failures.replaced) == ({ONE}, {})
    assert not list(failures.notices())


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """Make a loop that knows that the first of both hangs and is to be replaced."""
    engine = cast("Engine", mock.Mock())
    made = Loop(HOME, engine, lambda: Settings((), ()), tmp_path / "x", lambda _: None, observe=lambda _: {})
    made._failures.replaced = made._hangs._hanging = {"spare-1": hang()}
    yield made
    made._planner.stop()


def test_the_very_run_that_was_asked_is_ended_when_its_update_begins(loop: Loop) -> None:
    """By its runtime; nothing of an update of others, nor what answers again, nor another run."""
    (requested,) = loop._failures.replaced.values()
    directory = Proxies.ours().path(PLAN.proxies[0].proxy.id)
    with mock.patch.object(RUNTIME, "end_requested") as end:
        loop._end_hanging(PLAN, {TWO})
        assert not end.called
        loop._end_hanging(PLAN, {ONE, TWO})
        end.assert_called_once_with(directory, requested.process, requested.requested)
        loop._hangs._hanging = {"spare-1": hang()}
        loop._end_hanging(PLAN, {ONE, TWO})
        loop._hangs._hanging = {}
        loop._end_hanging(PLAN, {ONE, TWO})
        assert end.call_count == 1


def test_a_run_that_cannot_be_ended_is_left_to_its_update(loop: Loop) -> None:
    """Which finds that it doesn't answer, and tells."""
    with mock.patch.object(RUNTIME, "end_requested", side_effect=ClientError("it doesn't end")) as end:
        loop._end_hanging(PLAN, {ONE})
        assert end.called


def test_proxies_that_are_planned_are_asked_and_no_others(loop: Loop) -> None:
    """Nobody would start those again."""
    with mock.patch.object(loop._hangs, "follow") as follow:
        for plan in (PLAN, PLAN, Plan(proxies=PLAN.proxies[1:])):
            loop._ask_whether_they_hang(plan)
    assert [set(call.args[0]) for call in follow.mock_calls] == [{"spare-1", "spare-2"}, {"spare-2"}]
