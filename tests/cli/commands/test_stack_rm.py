"""The command `stack rm`: what is kept of a stack goes, and nothing that is still needed to end what it serves."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.cli.commands.service import Unit
from locallb.cli.failures import Exit
from locallb.cli.session import Session
from locallb.engine.state.project import load_project
from locallb.engine.store import Store
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.runtimes.single_instance import only_one
from locallb.storage import paths
from tests.support.balancers import BOTH, ONE, declare
from tests.support.engine import Bench, World
from tests.support.stages import Stage

LOCALLB = Path(sys.executable).parent / "locallb"


@pytest.fixture
def bench(play: Stage) -> Bench:
    """Return the stack `dev` after two updates, with a backup, beside another stack."""
    assert play.run("--stack", "dev.delays", "init").code == Exit.OK
    bench = Bench(load_project(play.root), World())
    for specification in (ONE, BOTH):
        assert bench.engine().up(partial(declare, specification)).ok
    return bench


def test_a_destroyed_stack_goes_with_its_backups_and_nothing_else(play: Stage, bench: Bench) -> None:
    """Also files of the official command line. A stack stays that is called as a file of this one would be."""
    assert bench.engine().destroy().ok
    own, other = play.root / ".state/locallb/dev", play.root / ".state/locallb/dev.delays"
    for directory in (own, other):
        directory.mkdir(parents=True)
        (directory / "dns-owner").write_text("local-lb-0123456789ab\n")
    history = play.root / ".state/.pulumi/history/local-lb/dev"
    history.mkdir(parents=True)
    (history / "dev-1.history.json").write_text("{}")
    before = play.files()
    done = play.run("stack", "rm", "dev", "--yes", "--json")
    assert done.code == Exit.OK, done.err
    removed = set(before) - set(play.files())
    assert removed == {path for path in before if "dev" in path and "dev.delays" not in path}
    assert any("backups" in path for path in removed)
    assert {str(Path(path).relative_to(play.root)) for path in done.json["removed"]} > {"stacks/Pulumi.dev.yaml"}
    assert [one["stack"] for one in play.run("stack", "list", "--json").json] == ["dev.delays"]
    assert "there is no stack 'dev'" in play.run("stack", "rm", "dev", "--yes").err


def test_a_stack_with_load_balancers_stays(play: Stage, bench: Bench) -> None:
    """The sentence has the command that ends them, for this stack."""
    before = play.files()
    done = play.run("stack", "remove", "dev", "--yes")
    assert (done.code, play.files()) == (Exit.FAILED, before)
    assert "stack dev has 2 load balancers: `" in done.err
    assert "destroy` removes them" in done.err
    assert bench.engine().destroy().ok


def test_the_command_in_the_sentence_is_of_the_stack_that_was_named(play: Stage) -> None:
    """It is another one than that of a command without `--stack`."""
    claim = Owner(Home("local-lb", "mine", str(play.root)), ObjectKey(ClusterName("c"), "n", "web"))
    assert play.run("--stack", "mine", "init").code == Exit.OK
    ledger = Ledger(paths.ledger_directory())
    ledger.claim(ip_address(play.at(30)), claim)
    done = play.run("stack", "rm", "mine", "--yes")
    assert done.code == Exit.FAILED
    assert "1 thing of stack mine remained on this host" in done.err
    assert "--stack mine gc --yes` removes them" in done.err
    assert (play.root / "stacks/Pulumi.mine.yaml").exists()


@pytest.mark.parametrize("held", ["watch", "update", "state", "unit"])
def test_a_stack_in_use_stays(play: Stage, bench: Bench, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a `watch`, an update, or a service; or by nobody knows what, as its state can't be read."""
    assert bench.engine().destroy().ok
    monkeypatch.setenv("XDG_CONFIG_HOME", str(play.root / "config"))
    store = Store(bench.project.backend, "local-lb", "dev")
    if held == "watch":
        with only_one(play.root / ".state/locallb/dev~watch", "it"):
            done = play.run("stack", "rm", "dev", "--yes")
        assert f"`watch` of stack dev runs (pid {os.getpid()}): end it first" in done.err
    elif held == "update":
        with store.alone(print):
            done = play.run("stack", "rm", "dev", "--yes")
        assert "the stack is locked since" in done.err
    elif held == "state":
        bench.state_path.write_text("?")
        done = play.run("stack", "rm", "dev", "--yes")
        assert "state restore` to go back to the last good state" in done.err
    else:
        unit = Unit.of(Session.open(play.root, "dev")).file
        unit.parent.mkdir(parents=True)
        unit.write_text("")
        done = play.run("stack", "rm", "dev", "--yes")
        assert "service remove` first" in done.err
    assert done.code == Exit.FAILED
    assert (play.root / "stacks/Pulumi.dev.yaml").exists()
    assert bench.state_path.exists()
    bench.state_path.unlink()


@pytest.mark.parametrize("name", ["../dev", "..", "", "a/b", "dev\n", "prdo"])
def test_a_name_of_no_stack_removes_nothing(play: Stage, name: str) -> None:
    """No path leads out of the stack's places."""
    before = play.files()
    done = play.run("stack", "rm", name, "--yes")
    assert (done.code, play.files()) == (Exit.FAILED, before)
    assert done.err.startswith("error: ")


def test_two_names_are_a_contradiction(play: Stage) -> None:
    """Neither is removed."""
    before = play.files()
    done = play.run("--stack", "mine", "stack", "rm", "dev", "--yes")
    assert (done.code, play.files()) == (Exit.USAGE, before)
    assert "leave out --stack mine" in done.err


def test_nothing_goes_unasked(play: Stage) -> None:
    """Without a terminal it is refused, with --json as well."""
    before = play.files()
    assert "say --yes" in play.run("stack", "rm", "dev").err
    done = play.run("stack", "rm", "dev", "--json")
    assert (done.code, done.json["ok"]) == (Exit.FAILED, False)
    assert play.files() == before


@pytest.mark.parametrize(("answer", "stays"), [("n", True), ("y", False)])
def test_the_question_names_what_goes(play: Stage, answer: str, stays: bool) -> None:  # noqa: FBT001 - a table
    """On a terminal, before anything is removed."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [str(LOCALLB), "-C", str(play.root), "stack", "rm", "dev"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False, timeout=60)
    os.close(ours)
    os.close(theirs)
    path = play.root / "stacks/Pulumi.dev.yaml"
    assert f"{path}\n" in done.stdout, done.stderr
    assert (done.returncode, path.exists()) == ((Exit.FAILED, True) if stays else (Exit.OK, False))


def test_a_link_in_the_place_of_the_stacks_directory_is_not_followed(play: Stage, tmp_path: Path) -> None:
    """It goes, and what it leads to stays."""
    (tmp_path / "kept").write_text("")
    place = play.root / ".state/locallb/dev"
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path)
    assert play.run("stack", "rm", "dev", "--yes").code == Exit.OK
    assert (tmp_path / "kept").exists()
    assert not place.is_symlink()
