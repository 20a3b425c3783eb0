"""What a command tells is of the plan that its run was made from, also where the world has changed since."""

from __future__ import annotations

from typing import Any

import pytest

from locallb.engine.core.events import Result
from locallb.engine.engine import Engine
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

WAS, BECOMES = 7, 9


@pytest.fixture
def moving(play: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stack whose Service asks for another address as soon as a run is over."""
    play.write("a.yaml", node(), service("a", port(8080, 30080), loadBalancerIP=play.at(WAS)))
    for name in ("preview", "bring"):
        ran = getattr(Engine, name)

        def then_it_moves(*given: Any, ran: Any = ran, **named: Any) -> Result:  # noqa: ANN401 - whatever it takes
            result: Result = ran(*given, **named)
            play.write("a.yaml", node(), service("a", port(8080, 30080), loadBalancerIP=play.at(BECOMES)))
            return result

        monkeypatch.setattr(Engine, name, then_it_moves)
    return play


@pytest.mark.parametrize(
    "terms",
    [
        ("preview",),
        ("preview", "--json"),
        ("preview", "--target", "a"),
        ("preview", "--format", "json"),
        ("preview", "--format", "markdown"),
        ("preview", "--format", "html"),
        pytest.param(("up", "--yes"), marks=pytest.mark.envoy),
        pytest.param(("up", "--yes", "--json"), marks=pytest.mark.envoy),
    ],
    ids=" ".join,
)
def test_tree_table_and_report_are_of_one_plan(moving: Stage, terms: tuple[str, ...]) -> None:
    """The address that the run gave stands everywhere; the next run has the new one."""
    done = moving.run(*terms)
    assert done.code == 0, done.err
    assert moving.at(WAS) in done.out
    assert moving.at(BECOMES) not in done.out
    assert moving.at(BECOMES) in moving.run("preview").out


def test_a_program_that_breaks_off_is_reported_without_a_plan(play: Stage) -> None:
    """Its sentence once, and no table of something that it didn't plan."""
    play.configure(sources=[{"manifests": "nowhere", "name": "c"}])
    done = play.run("preview")
    assert done.code == 1
    assert "nowhere" in done.err
    assert "SERVICE" not in done.out


@pytest.mark.envoy
@pytest.mark.parametrize(
    "stated",
    ["serve()\n", "plan = serve()[1]\n", "def main() -> None:\n    read, planned = serve()\n\n\nmain()\n"],
    ids=["no names", "one name", "names of a function"],
)
def test_a_program_need_not_name_what_serve_returns(play: Stage, stated: str) -> None:
    """Every command does and tells what it does of one that has the usual names."""
    (play.root / "__main__.py").write_text(f"from locallb.program import serve\n\n{stated}")
    play.write("a.yaml", node(), service("a", port(8080, 30080), loadBalancerIP=play.at(WAS)))
    for terms in (("preview",), ("up", "--yes"), ("up", "--yes", "--expect-no-changes"), ("destroy", "--yes")):
        done = play.run(*terms)
        assert done.code == 0, (terms, done.err)
        assert not done.err, terms
        assert terms[0] == "destroy" or play.at(WAS) in done.out, terms
    assert not play.pids()


def test_a_program_that_serves_nothing_is_told_as_what_is_there(play: Stage) -> None:
    """It may declare resources of its own only; the Services of the stack are pending."""
    (play.root / "__main__.py").write_text("import pulumi\n\npulumi.export('mine', 1)\n")
    play.write("a.yaml", node(), service("a", port(8080, 30080)))
    done = play.run("preview", "--json")
    assert done.code == 0, done.err
    assert [row["state"] for row in done.json["services"]] == ["pending"]
