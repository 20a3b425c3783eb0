"""A stack belongs to a directory, a state home and a user; who else is at work on it is told, refused or ended."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.runtimes.single_instance import only_one
from tests.e2e.owned_stacks import COMMANDS, play, record, served, state
from tests.support.backends import ask, refused
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually, watching

__all__ = ["play"]

pytestmark = [pytest.mark.envoy]


@pytest.fixture
def elsewhere(play: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Act from another state home, as after `sudo` or from cron; nothing may come into being there."""
    path = play.root / "other"
    path.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    yield path
    monkeypatch.setenv("XDG_STATE_HOME", str(play.root / "s"))


@pytest.mark.parametrize("written", [True, False], ids=["written down", "deployed by an earlier version"])
def test_from_another_state_home_every_command_is_refused_with_both_named(
    play: Stage, elsewhere: Path, *, written: bool
) -> None:
    """Nothing is started or changed, neither here nor there; the doctor tells the same."""
    if not written:
        record(play).unlink()
    before, pids = state(play), envoys(play.root)
    for command in COMMANDS:
        done = play.run(*command.split())
        assert done.code == 1, command
        for named in (str(play.state_home), str(elsewhere / "locallb"), "state adopt"):
            assert named in " ".join(done.err.split()), command
    doctor = play.run("doctor", "--json")
    assert doctor.code == 1
    assert any(
        "belongs to" in finding["text"] and str(play.state_home) in finding["text"]
        for finding in doctor.json["findings"]
    )
    assert (state(play), envoys(play.root), list(elsewhere.iterdir())) == (before, pids, [])
    assert served(play) == "web: hello"


def test_stack_of_another_user_is_refused(play: Stage) -> None:
    """Also where the state home is the same, as `sudo` may leave it."""
    document = json.loads(record(play).read_text())
    record(play).write_text(json.dumps({**document, "uid": 54321}))
    done = play.run("up", "--yes")
    assert done.code == 1
    assert "belongs to user 54321" in done.err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "state_home": 3, "uid": 0, "root": ""}']
)
def test_a_record_that_says_nothing_is_reported_with_its_path(play: Stage, text: str) -> None:
    """Whose the stack is can't be guessed then."""
    record(play).write_text(text)
    done = play.run("status")
    assert done.code == 1
    assert str(record(play)) in "".join(done.err.split("\n"))
    assert "Traceback" not in done.err


def test_stack_without_an_ownership_record_gets_one_without_changes(play: Stage) -> None:
    """As an earlier version left it; its Envoys keep running."""
    record(play).unlink()
    pids = envoys(play.root)
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    document = json.loads(record(play).read_text())
    assert (document["format"], document["state_home"]) == (1, str(play.state_home))
    assert envoys(play.root) == pids


def test_previews_write_nothing_down(play: Stage) -> None:
    """Only a deployment does."""
    record(play).unlink()
    for command in ("preview", "status"):
        assert play.run(command).code == 0
    assert not record(play).exists()


def test_a_stack_moves_by_command(play: Stage, elsewhere: Path) -> None:
    """Its proxies end there, the next `up` starts them here, at the same address."""
    pids = envoys(play.root)
    done = play.run("state", "adopt", "--yes")
    assert done.code == 0, done.err
    assert envoys(play.root) == []
    assert list((play.state_home / "proxies").iterdir()) == []
    play.up()
    assert served(play) == "web: hello"
    assert len(list((elsewhere / "locallb/proxies").iterdir())) == 1
    assert envoys(play.root) != pids
    assert play.run("destroy", "--yes").code == 0
    assert not record(play).exists()


def test_adopting_a_stack_already_here_changes_nothing(play: Stage) -> None:
    """Nor does it ask."""
    pids = envoys(play.root)
    assert play.run("state", "adopt").code == 0
    assert envoys(play.root) == pids


@pytest.fixture
def copy(play: Stage) -> Stage:
    """Copy the project with its state, as `cp -a` does."""
    root = play.root / "copy"
    shutil.copytree(play.root, root, symlinks=True, ignore=shutil.ignore_patterns("copy", "s", "*.sock"))
    return Stage(root)


@pytest.mark.parametrize("written", [True, False], ids=["written down", "deployed by an earlier version"])
def test_a_copied_project_is_refused_by_every_command(play: Stage, copy: Stage, *, written: bool) -> None:
    """Each names the original, which goes on serving; the copied state stays as it is."""
    if not written:
        record(copy).unlink()
    before = state(copy)
    for command in (*COMMANDS, "state adopt --yes"):
        done = copy.run(*command.split())
        assert done.code == 1, command
        assert f"is a copy of {play.root}" in " ".join(done.err.split()), command
    assert any("is a copy of" in finding["text"] for finding in copy.run("doctor", "--json").json["findings"])
    assert state(copy) == before
    assert served(play) == "web: hello"


def test_copied_project_becomes_independent_by_the_suggested_command(play: Stage, copy: Stage) -> None:
    """The command is in the sentence of the refusal."""
    reported = " ".join(copy.run("up", "--yes").err.split())
    command = reported[reported.index("`rm ") + 1 :].partition("`")[0]
    subprocess.run(shlex.split(command), check=True)
    (copy.root / ".state").mkdir(exist_ok=True)
    copy.up()
    assert copy.addresses()["n/web"] != play.addresses()["n/web"]
    assert copy.run("destroy", "--yes").code == 0
    assert served(play) == "web: hello"


def test_destroy_is_refused_while_a_watch_would_undo_it(play: Stage) -> None:
    """It names the process; `--stop-watch` ends that first, and then all is gone and stays so."""
    with watching(play, "--plain") as watch:
        eventually(lambda: "converged" in watch.reported(), watch)
        done = play.run("destroy", "--yes")
        assert done.code == 1
        assert f"(pid {watch.process.pid})" in done.err
        assert "--stop-watch" in done.err
        assert served(play) == "web: hello"
        assert watch.process.poll() is None
        assert "pid" in play.run("up", "--yes").err
        assert play.run("destroy", "--yes", "--stop-watch").code == 0
        assert watch.process.wait(60) == 0
    assert envoys(play.root) == []


def test_destroy_ends_no_other_process_with_the_pid_of_a_watch_in_a_container(play: Stage) -> None:
    """The lock has the watch's number among the container's processes; here another process has it."""
    lock = play.root / ".state/locallb/dev~watch"
    with subprocess.Popen(["sleep", "60"]) as stranger, only_one(lock, "watch"):
        lock.write_text(f"{stranger.pid}\n")
        done = play.run("destroy", "--yes", "--stop-watch")
        assert (done.code, stranger.poll()) == (1, None)
        assert "runs elsewhere, as in a container: end it there first" in done.err
        assert served(play) == "web: hello"
        stranger.kill()


def test_destroy_with_lost_state_fails_and_names_what_still_serves(play: Stage) -> None:
    """The state is gone: nothing was removed, and that is no success."""
    address = play.addresses()["n/web"]
    (play.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()
    done = play.run("destroy", "--yes")
    assert done.code == 1
    assert "gc --yes` removes them" in done.err
    assert ask(address, 8080) == "web: hello"
    assert play.run("gc", "--yes").code == 0
    assert refused(address, 8080)
    assert play.run("destroy", "--yes").code == 0


def test_gc_and_doctor_do_not_report_another_stack_of_the_project_as_lost(
    play: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the project's directory and outside of it."""
    play.configure("other", sources=[{"manifests": "none", "name": "c"}])
    (play.root / "none").mkdir()
    for directory in (play.root, Path("/")):
        monkeypatch.chdir(directory)
        listed = play.run("--stack", "other", "gc", "--json").json
        assert not [item for item in listed if str(play.root) in str(item["owner"])]
        findings = play.run("--stack", "other", "doctor", "--json").json["findings"]
        assert not [
            finding for finding in findings if "lost state" in finding["text"] and str(play.root) in finding["text"]
        ]


def test_proxies_that_were_left_under_another_state_home_are_found_and_removed(play: Stage, elsewhere: Path) -> None:
    """As by an earlier version that was run with another HOME, and another state."""
    resources = json.loads(state(play))["checkpoint"]["latest"]["resources"]
    place = next(resource["id"] for resource in resources if resource["type"] == "locallb:index:LoopbackAddress")
    shutil.rmtree(play.root / ".state")
    (play.root / ".state").mkdir()
    listed = play.run("gc", "--json").json
    assert ("process", True) in [(item["sort"], item["ours"]) for item in listed]
    assert play.run("gc", "--yes").code == 0
    assert refused(place, 8080)
    assert envoys(play.root) == []
    assert list((play.state_home / "proxies").iterdir()) == []
    assert not (elsewhere / "locallb/proxies").exists()
