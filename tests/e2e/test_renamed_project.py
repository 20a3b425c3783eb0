"""A project under another name: what it serves under the old one is refused, listed and ended, never served twice."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from locallb.model.desired import ADDRESS
from locallb.model.identities import Home
from locallb.sources.stack_home import earlier_names
from tests.e2e.owned_stacks import COMMANDS, play, record, served, state
from tests.support.backends import backends
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys, stage

__all__ = ["play"]

pytestmark = pytest.mark.envoy


def test_a_renamed_project_is_the_same_one() -> None:
    """Its address stays; where it is now is written down by the next `up`."""
    home = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    with backends() as backend, stage() as made, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        monkeypatch.setenv("LOCALLB_LEDGER", str(home / "ledger"))
        made.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
        made.up()
        renamed, address = Stage(made.root.with_name(f"{made.root.name}-new")), made.addresses()["n/web"]
        made.root.rename(renamed.root)
        try:
            assert [renamed.run(*command.split()).code for command in ("status", "up --yes")] == [0, 0]
            assert json.loads(record(renamed).read_text())["root"] == str(renamed.root)
            assert renamed.addresses()["n/web"] == address
            assert served(renamed) == "web: hello"
            assert len(envoys(home)) == 1
        finally:
            destroyed = renamed.run("destroy", "--yes")
            remaining = envoys(home)
            renamed.root.rename(made.root)
            shutil.rmtree(home)
        assert (destroyed.code, remaining) == (0, [])


def call(play: Stage, name: str) -> None:
    """Give the project another name, as an editor does."""
    path = play.root / "Pulumi.yaml"
    path.write_text(re.sub("^name: .*", f"name: {name}", path.read_text()))


def test_a_project_under_another_name_is_refused_by_every_command(play: Stage) -> None:
    """Nothing is served twice; under the old name all goes on, or ends, and then the new one is free."""
    before, pids = state(play), envoys(play.root)
    call(play, "new")
    for command in COMMANDS:
        done = play.run(*command.split())
        reported = " ".join(done.err.split())
        assert done.code == 1, command
        assert "is deployed as project 'local-lb'" in reported, command
        assert f"Write `name: local-lb` into {play.root}/Pulumi.yaml again" in reported, command
    doctor = play.run("doctor", "--json")
    assert any("is deployed as project 'local-lb'" in finding["text"] for finding in doctor.json["findings"])
    assert (state(play), envoys(play.root), served(play)) == (before, pids, "web: hello")
    (listed,) = play.run("stack", "list", "--json").json
    assert (listed["stack"], listed["load_balancers"], listed["earlier_projects"]) == ("dev", 0, ["local-lb"])
    assert "0, more as project 'local-lb'" in play.run("stack", "list").out
    call(play, "local-lb")
    (listed,) = play.run("stack", "list", "--json").json
    assert (listed["load_balancers"], listed["earlier_projects"]) == (1, [])
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert play.run("destroy", "--yes").code == 0
    call(play, "new")
    play.up()
    assert play.run("destroy", "--yes").code == 0
    call(play, "local-lb")


def test_stack_deployed_under_two_project_names_can_be_destroyed_under_one(play: Stage) -> None:
    """Other commands are refused as long as both exist."""
    old = play.root / ".state/.pulumi/stacks/local-lb/dev.json"
    old.rename(play.root / "aside")
    call(play, "new")
    play.up()
    (play.root / "aside").rename(old)
    assert len(envoys(play.root)) == 2
    done = play.run("up", "--yes")
    assert done.code == 1
    assert "is deployed as project 'local-lb'" in " ".join(done.err.split())
    assert play.run("destroy", "--yes").code == 0
    call(play, "local-lb")
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert served(play) == "web: hello"


def test_other_projects_in_the_backend_are_not_taken_for_a_renamed_one(play: Stage, tmp_path: Path) -> None:
    """A backend in a home directory has states of many projects, of local-lb and of others."""
    text = state(play).decode().replace(str(play.root), str(tmp_path))
    for name, terms in {
        "elsewhere": text,
        "empty": "",
        "other": '{"checkpoint": {"latest": {"resources": []}}}',
    }.items():
        path = play.root / ".state/.pulumi/stacks" / name / "dev.json"
        path.parent.mkdir()
        path.write_text(terms)
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    shutil.rmtree(play.root / ".state/.pulumi/stacks/elsewhere")


def test_a_project_that_is_gone_is_no_earlier_name_of_those_that_share_its_backend(tmp_path: Path) -> None:
    """Its directory was removed without `destroy`; only a backend in the directory itself moves and is renamed with it.

    All of them have a stack `dev`.
    """
    mine, removed = tmp_path / "mine", tmp_path / "gone"
    resource = {"type": ADDRESS, "inputs": {"owner": {"root": str(removed)}}, "outputs": {}}
    reported = json.dumps({"checkpoint": {"latest": {"resources": [resource]}}})
    for backend, earlier in ((tmp_path / "home", []), (mine / ".state", ["one"])):
        stacks = backend / ".pulumi/stacks"
        (stacks / "one").mkdir(parents=True)
        (stacks / "one/dev.json").write_text(reported)
        assert earlier_names(Home("two", "dev", str(mine)), stacks / "two/dev.json") == earlier
