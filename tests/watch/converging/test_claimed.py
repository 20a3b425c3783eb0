"""Proxies that Gateways took whole: nobody's update touches one that is another's, and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.desired import Desired
from locallb.engine.core.declared import Scope, only
from locallb.engine.core.desired_index import Groups
from locallb.engine.core.updates import Ended
from locallb.engine.engine import Engine
from locallb.engine.state.urns import root_urn
from locallb.model.desired import PROXY
from locallb.model.identities import Digest, Home, ObjectKey, ProxyName
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.planned import Plan
from locallb.planning.proxy_placing import PlanContext, proxy_of_stack
from locallb.sources.snapshot import SnapshotResult
from locallb.watch.converge import Converger
from locallb.watch.events import Cause, Mark
from locallb.watch.failures import Failures
from locallb.watch.updates import Batch

HOME = Home("p", "s", "/p")
FRAME = PlanContext.of(HOME, Settings((), ()), HostFacts())
WEB, OLDER = ObjectKey.parse("c/gateways/n/web"), ObjectKey.parse("c/gateways/n/older")
FIRST, SECOND = ObjectKey.parse("spare-1"), ObjectKey.parse("spare-2")


@dataclass
class Recording:
    """An engine whose updates end as told, and that keeps what they were about."""

    fails: bool = False
    scopes: list[Scope] = field(default_factory=list)
    refreshed: list[bool] = field(default_factory=list)
    """Which of them looked first."""
    readings: int = 0
    parts: frozenset[Hashable] = frozenset()
    outputs: Mapping[str, object] = field(default_factory=dict)

    def give_way(self) -> None:
        """Nobody else wants the stack."""

    def updates(self, *_: object) -> Recording:
        return self

    def begin(
        self,
        _groups: Groups,
        parts: Mapping[Hashable, frozenset[str]],
        *,
        inspect: bool,
        outputs: Mapping[str, object],
        first: Callable[[], None],
    ) -> None:
        first()
        self.outputs = outputs
        self.refreshed.append(inspect)
        self.scopes.append(only(urn for roots in parts.values() for urn in roots))
        self.parts = frozenset(parts)

    def wait(self, *_: object) -> None:
        """Wait for nothing."""

    def take(self) -> Ended:
        return Ended(self.parts, dict.fromkeys(self.parts, "it can't be") if self.fails else {})

    def read_stamp(self) -> object:
        """Say that somebody else wrote the state."""
        return None

    def covered(self, *proxies: ObjectKey) -> set[ObjectKey]:
        """Return which of these proxies the last update was about."""
        roots = {proxy: root_urn(HOME.project, HOME.stack, PROXY, str(proxy)) for proxy in proxies}
        return {proxy for proxy, root in roots.items() if self.scopes[-1].covers(root)}


@pytest.fixture
def engine() -> Recording:
    return Recording()


@pytest.fixture
def converger(engine: Recording) -> Converger:
    """Make one that knows two proxies that wait."""
    made = Converger(HOME, cast("Engine", engine))
    made.applied = dict.fromkeys((FIRST, SECOND), "1")
    return made


def plan(**serves: ObjectKey | None) -> Plan:
    """Plan spares, by number, and whom they serve."""
    proxies = [(ProxyName(name.replace("_", "-")), whom) for name, whom in serves.items()]
    return Plan(proxies=tuple(replace(proxy_of_stack(name, FRAME), serves=whom) for name, whom in proxies))


def update(converger: Converger, planned: Plan, key: ObjectKey) -> None:
    wanted = {**converger.wanted(planned), WEB: "1", OLDER: "1"}
    converger.work(wanted, ())
    converger.update(planned, wanted, Batch((key,)))


@pytest.mark.parametrize("fails", [True, False])
def test_a_spare_that_went_to_another_is_left_to_that_one(
    engine: Recording, converger: Converger, *, fails: bool
) -> None:
    """A Gateway couldn't take it; since then one that comes first was served by it."""
    engine.fails = True
    update(converger, plan(spare_1=WEB, spare_2=None), WEB)
    assert engine.covered(FIRST, SECOND) == {FIRST}
    engine.fails = False
    later = plan(spare_1=OLDER, spare_2=WEB)
    update(converger, later, OLDER)
    assert engine.covered(FIRST, SECOND) == {FIRST}
    engine.fails = fails
    update(converger, later, WEB)
    assert engine.covered(FIRST, SECOND) == {SECOND}
    update(converger, plan(spare_1=OLDER), WEB)
    assert engine.covered(FIRST, SECOND) == {SECOND}


def test_a_spare_that_could_not_be_taken_goes_with_whom_it_was_for(engine: Recording, converger: Converger) -> None:
    """What was told it may listen at addresses that are let go."""
    engine.fails = True
    update(converger, plan(spare_1=WEB, spare_2=None), WEB)
    update(converger, plan(spare_2=None), WEB)
    assert engine.covered(FIRST, SECOND) == {FIRST}


def test_a_spare_that_waits_again_is_looked_at(engine: Recording, converger: Converger) -> None:
    """Its files may have what the state doesn't say, as the update failed that was to tell it whom it serves."""
    engine.fails = True
    update(converger, plan(spare_1=WEB, spare_2=None), WEB)
    engine.fails = False
    waiting = plan(spare_1=None, spare_2=None)
    update(converger, waiting, WEB)
    assert engine.covered(FIRST, SECOND) == {FIRST}
    update(converger, waiting, WEB)
    assert engine.refreshed == [False, True, False]


def test_a_spare_that_was_to_be_taken_and_never_was_is_not_forgotten(converger: Converger) -> None:
    """The Gateway went before its update, and the number of spares was lowered: it goes, too."""
    converger.work(converger.wanted(plan(spare_1=WEB, spare_2=None)), ())
    assert FIRST not in converger.applied
    later = plan(spare_2=None)
    assert converger.work(converger.wanted(later), ()).removed == (FIRST,)


def test_a_spare_that_was_taken_is_no_work_of_its_own_afterwards(converger: Converger) -> None:
    """It goes in the update of its Gateway."""
    update(converger, plan(spare_1=WEB, spare_2=None), WEB)
    later = plan(spare_2=None)
    assert converger.work(converger.wanted(later), ()).removed == (WEB,)


def test_a_spare_that_ended_just_when_it_is_taken_is_looked_at_first(converger: Converger) -> None:
    """The state has its process: without a look the Gateway's first update would be in vain."""
    failures, reading = Failures(lambda _: {}), SnapshotResult(Snapshot(HOME))
    failures.exited(plan(spare_1=None, spare_2=None), [Mark(Cause.PROXY, "spare-1")])
    claimed = plan(spare_1=WEB, spare_2=None)
    wanted = {**converger.wanted(claimed), WEB: "1", OLDER: "1"}
    converger._wanted._last = claimed, Desired({}, {key: Digest(text) for key, text in wanted.items()})
    failures.inspect(reading, claimed, (), converger)
    work = converger.work(wanted, failures.broken)
    assert (work.broken, work.new) == ((WEB,), (OLDER,))
    assert (work.first().keys[0], work.first().refresh) == (WEB, True)
