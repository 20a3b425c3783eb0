"""`logs` reads the sources again when somebody wrote the state, and else seldom."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locallb.cli.session import UNPLANNED, Session
from locallb.cli.traffic import Plans
from locallb.engine.state.project import load_project
from locallb.sources.snapshot import ReadingAndPlan
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage


@pytest.fixture(name="play")
def one_service() -> Iterator[Stage]:
    """Make a project with a Service, of which nothing is up."""
    with stage() as play:
        play.write("s.yaml", node(), service("web", port(8080, 30000)))
        yield play


def plans_of(play: Stage, stale: float = 60.0) -> Plans:
    return Plans(Session(load_project(play.root), "dev"), stale)


def names(planned: ReadingAndPlan) -> set[str]:
    return {placement.key.name for placement in planned[1].placements}


def test_plan_is_reused_until_the_state_is_written(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sources say meanwhile: what isn't up has no proxy that could be read."""
    plans, stamp = plans_of(play), object()
    monkeypatch.setattr(Session, "stamp", lambda _session: stamp)
    first = plans.now()
    assert names(first) == {"web"}
    play.write("t.yaml", service("other", port(8081, 30001)))
    assert plans.now() is first
    stamp = object()
    retry = plans.now()
    assert names(retry) == {"web", "other"}
    assert plans.now() is retry


def test_outdated_plan_is_made_again(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the configuration may have become another one."""
    plans, stamp = plans_of(play, stale=0.0), object()
    monkeypatch.setattr(Session, "stamp", lambda _session: stamp)
    plans.now()
    play.write("t.yaml", service("other", port(8081, 30001)))
    assert names(plans.now()) == {"web", "other"}


def test_failed_planning_is_tried_at_the_next_look(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next look, not when the plan before is old."""
    plans, stamp = plans_of(play), object()
    monkeypatch.setattr(Session, "stamp", lambda _session: stamp)
    plans.now()
    path = play.root / "stacks/Pulumi.dev.yaml"
    whole, stamp = path.read_text(), object()
    path.write_text("config: {")
    play.write("t.yaml", service("other", port(8081, 30001)))
    with pytest.raises(UNPLANNED):
        plans.now()
    path.write_text(whole)
    assert names(plans.now()) == {"web", "other"}
