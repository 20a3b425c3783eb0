"""`top` beside somebody who edits: what can't be read just then ends no look."""

from __future__ import annotations

import pytest

from locallb.cli import traffic
from locallb.cli.session import Session
from locallb.engine.state.project import load_project
from locallb.planning.planned import Plan
from tests.support.manifests import node, port, service
from tests.support.stages import stage


@pytest.mark.parametrize("text", ["", "config: {", "config: 1", "config: {local-lb:sources: 1}", "\x00"])
def test_a_configuration_that_is_half_written_keeps_the_plan_before(text: str) -> None:
    """Until it is whole again."""
    with stage() as play:
        play.write("s.yaml", node(), service("web", port(8080, 30000)))
        session, before = Session(load_project(play.root), "dev"), Plan()
        path = play.root / "stacks/Pulumi.dev.yaml"
        whole = path.read_text()
        path.write_text(text)
        assert traffic._planned(session, before) is before
        path.write_text(whole)
        assert traffic._planned(session, before).placements
