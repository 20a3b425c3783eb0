"""The commands around a stack: `stack list`, `init`, `completion`, `status SERVICE`, `--version`."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb import __version__
from locallb.cli.arguments import Arguments
from locallb.cli.commands import status
from locallb.cli.completion import answers
from locallb.cli.console import Out
from locallb.cli.failures import MEANINGS, Exit
from locallb.cli.grammar import COMMANDS, EPILOG, SHELLS, make_parser
from locallb.cli.session import Session
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.storage import paths
from tests.cli.commands.conftest import SCTP
from tests.support.manifests import service
from tests.support.stages import CHECKOUT, Stage

BIN = Path(sys.executable).parent


def deployed(play: Stage) -> None:
    """Write the state that a deployed load balancer leaves, without a proxy."""
    kind = "locallb:index:LoadBalancer"
    balancer = {"urn": f"urn:pulumi:dev::local-lb::{kind}::c/n/web", "type": kind}
    path = play.root / ".state/.pulumi/stacks/local-lb/dev.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": [balancer, {"urn": "urn:x"}]}}}))


def test_every_exit_code_has_a_meaning_that_help_tells() -> None:
    """One enumeration, told in one place."""
    assert set(MEANINGS) == set(Exit)
    assert all(f"{code.value}  {meaning}" in EPILOG for code, meaning in MEANINGS.items())


def test_the_version_is_reported(play: Stage) -> None:
    """Also where there is no project."""
    assert play.run("--version").out == f"local-lb {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_version_may_be_asked_behind_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As all options that every command has."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args([command, "--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"local-lb {__version__}\n")


@pytest.mark.parametrize("line", ["up --ye", "destroy --stop", "--stac dev up", "preview --expect", "host setup --app"])
def test_a_misspelt_option_is_taken_for_no_other(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody agrees to anything by half a word."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(line.split())
    assert ended.value.code == Exit.USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("terms", [["destroy", "--yes"], ["destroy"], ["gc"], ["gc", "--yes"], ["gc", "--json"]])
def test_a_stack_that_never_was_is_not_said_to_be_gone(play: Stage, terms: list[str]) -> None:
    """It has a misspelt name: what was meant goes on serving."""
    before = play.files()
    done = play.run("--stack", "prdo", *terms)
    assert done.code == Exit.FAILED
    assert (done.json["ok"] is False) if "--json" in terms else (done.out == "")
    assert "there is no stack 'prdo'" in done.err
    assert play.files() == before


@pytest.mark.parametrize("terms", [[], ["--yes"], ["--json"]])
def test_misspelt_stack_name_fails_beside_another_stacks_leftovers(play: Stage, terms: list[str]) -> None:
    """It was listed as another stack's, with the code of success."""
    removed = Owner(Home("other", "dev", "/nowhere/at/all"), ObjectKey(ClusterName("c"), "n", "web"))
    ledger = Ledger(paths.ledger_directory())
    ledger.claim(ip_address(play.at(30)), removed)
    done = play.run("--stack", "prdo", "gc", *terms)
    assert done.code == Exit.FAILED
    assert (done.json["ok"] is False) if "--json" in terms else (done.out == "")
    assert "there is no stack 'prdo'" in done.err
    assert [claim.owner for claim in ledger.claims()] == [removed]
    assert "not this stack's: left alone" in play.run("gc").out


@pytest.mark.parametrize(("terminal", "shown"), [("xterm", 3), ("dumb", 1)])
def test_a_dumb_terminal_gets_only_what_has_changed(
    play: Stage, monkeypatch: pytest.MonkeyPatch, terminal: str, shown: int
) -> None:
    """It can't be cleared: the same table would run through it every second."""
    monkeypatch.setenv("TERM", terminal)
    checks = []

    def pause(_seconds: float) -> None:
        checks.append(1)
        if len(checks) == 3:
            raise KeyboardInterrupt

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("locallb.cli.commands.status.time.sleep", pause)
    stream = Terminal()
    args = Arguments("status", play.root, "dev", json=False, yes=False, expect_no_changes=False, services=())
    with pytest.raises(KeyboardInterrupt):
        status._repeat(Session.open(play.root, "dev"), args, Out(stream, stream))
    assert stream.getvalue().count("SERVICE") == shown


def test_a_preview_does_not_complain_of_what_is_simply_new(play: Stage) -> None:
    """The tree says that it is created; what keeps the other one from its address is told."""
    reported = play.run("preview").out
    assert "has no proxy now" not in reported
    (complaint,) = [line for line in reported.splitlines() if line.startswith("! ")]
    assert complaint.startswith("! ProtocolNotSupported: c/n/odd port 80/SCTP: ")
    assert "c/n/web has no proxy now" in play.run("status").out


@pytest.mark.parametrize("stack", ["", "a b", "dev status", "mine"])
@pytest.mark.parametrize("target", ["up", "watch", "preview", "status", "doctor"])
def test_make_gives_the_stack_as_one_word(stack: str, target: str) -> None:
    """None stays a name that there can't be, and what has spaces isn't taken for a command."""
    terms = ["make", "-n", target, f"STACK={stack}"]
    done = subprocess.run(terms, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    given = next(line for line in done.stdout.splitlines() if "bin/locallb --stack" in line)
    assert shlex.split(given.removeprefix("exec "))[1:4] == ["--stack", stack, target]


def test_init_writes_a_stack_that_can_be_used_and_never_over_another(play: Stage) -> None:
    """Each kind of source; the comments are valid YAML as well."""
    terms = ["--manifests", "manifests", "--kubernetes", "shop", "--kind", "all"]
    assert play.run("--stack", "mine", "init", *terms).code == Exit.OK
    path = play.root / "stacks/Pulumi.mine.yaml"
    written = path.read_text()
    sources = yaml.safe_load(written)["config"]["local-lb:sources"]
    assert sources == [{"manifests": "manifests"}, {"kubernetes": {"name": "shop", "context": "shop"}}, {"kind": "all"}]
    bare = yaml.safe_load("\n".join(line.replace("  # ", "  ", 1) for line in written.splitlines()))
    assert set(bare["config"]) > {"local-lb:sources", "local-lb:pools", "local-lb:pins", "local-lb:proxies"}
    assert play.run("--stack", "mine", "init").code == Exit.FAILED
    assert path.read_text() == written
    assert play.run("--stack", "second", "init", str(play.root)).code == Exit.OK
    assert play.run("--stack", "second", "status").code == Exit.OK


@pytest.mark.parametrize(
    "terms",
    [["--stack", "../x", "init"], ["init", "/proc/nonexistent"], ["--stack", "n", "init", "--kubernetes", "No!"]],
)
def test_init_refuses_what_cannot_be_used(play: Stage, terms: list[str]) -> None:
    """Before anything is written."""
    before = play.files()
    done = play.run(*terms)
    assert done.code == Exit.FAILED
    assert done.err.startswith("error: ")
    assert play.files() == before


def test_stacks_are_listed_with_their_state_and_without(play: Stage) -> None:
    """One whose configuration is gone still has something to destroy; a damaged state stops no list."""
    play.run("--stack", "mine", "init")
    state = play.root / ".state/.pulumi/stacks/local-lb"
    state.mkdir(parents=True)
    (state / "broken.json").write_text("{")
    listed = play.run("stack", "list", "--json").json
    assert [(item["stack"], item["load_balancers"]) for item in listed] == [("broken", None), ("dev", 0), ("mine", 0)]
    assert listed[0]["configuration"] is None
    assert "its state can't be read" in play.run("stack", "list").out
    (state / "broken.json").unlink()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dest", ["destroy"]),
        ("--stack ", ["dev", "mine"]),
        ("-s m", ["mine"]),
        ("up --targ", ["--target"]),
        ("up --fail-on ", ["rejected", "pending", "degraded"]),
        ("up -t c", ["c/n/web"]),
        ("status ", ["c/n/web"]),
        ("open ", ["c/n/web"]),
        ("open --pr", ["--print"]),
        ("--stack mine status ", []),
        ("preview --format h", ["html"]),
        ("host t", ["teardown"]),
        ("host setup --per", ["--persist"]),
        ("state c", ["check"]),
        ("completion ", list(SHELLS)),
        ("preview --from-pulumi ", []),
        ("-C /nonexistent --stack ", []),
        ("nonsense --nonsense ", list(COMMANDS)),
    ],
)
def test_completion_offers_commands_options_values_and_services(play: Stage, line: str, expected: list[str]) -> None:
    """Commands, options, their values, stacks, and load balancers of the stack that is named."""
    play.run("--stack", "mine", "init")
    deployed(play)
    found = answers(line.split(" "), play.root)
    assert [word for word in found if word in expected] == expected
    assert bool(found) == bool(expected)
    if expected != list(COMMANDS):
        assert found == expected
    (play.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()


WORDS = st.text(st.characters(exclude_characters="\0"), max_size=6)


@given(st.lists(WORDS | st.sampled_from(["-s", "-C", "up", "--", "-", "host", "--json"]), max_size=5))
def test_no_line_is_too_odd_to_complete(terms: list[str]) -> None:
    """Whatever stands there: words that a shell takes as they are, or none."""
    for answer in answers(terms, Path("/")):
        assert answer.startswith(terms[-1] if terms else "")


def test_status_of_one_service_shows_ports_backends_and_proxy(play: Stage) -> None:
    """Its ports with where they go, its proxy, its reasons; as JSON what `status` has, and more."""
    (whole, _) = sorted(play.run("status", "--json").json, key=lambda row: str(row["name"]), reverse=True)
    (row,) = play.run("status", "web", "--json").json
    assert {key: row[key] for key in whole} == whole
    assert row["backends"] == [{"port": "8080/TCP", "addresses": ["127.0.0.1:30000"]}]
    assert (row["proxy"]["name"], row["proxy"]["pid"]) == ("c/n/web", None)
    text = play.run("status", "n/web").out
    assert all(word in text for word in (row["addresses"][0], "8080/TCP", "127.0.0.1:30000", row["proxy"]["id"]))
    rejected = play.run("status", "odd").out
    assert "rejected" in rejected
    assert "SCTP" in rejected
    assert play.run("status", "nobody").code == Exit.FAILED


def test_status_watch_prints_each_change_until_interrupted(play: Stage) -> None:
    """On a pipe a document for each change, also while the configuration is half written; the interrupt is the end."""
    command = [str(BIN / "locallb"), "-C", str(play.root), "status", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        first = json.loads(process.stdout.readline())
        play.write("s.yaml", service("odd", SCTP))
        second = json.loads(process.stdout.readline())
        configuration = play.root / "stacks/Pulumi.dev.yaml"
        whole = configuration.read_text()
        configuration.write_text("config: {")
        reported = process.stderr.readline()
        configuration.write_text(whole)
        assert json.loads(process.stdout.readline()) == second
        process.terminate()
        assert process.wait(60) == Exit.OK
        assert process.stderr.read() == ""
    assert ([row["name"] for row in first], [row["name"] for row in second]) == (["odd", "web"], ["odd"])
    assert "Pulumi.dev.yaml" in reported
