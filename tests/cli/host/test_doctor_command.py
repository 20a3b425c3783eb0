"""The command `doctor` where things are missing or broken: it looks on, and every trouble is a finding."""

from __future__ import annotations

import contextlib
import io
import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.cli import main
from locallb.cli.session import Session
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.values import Properties
from locallb.ledger.ledger import Ledger
from locallb.model.desired import ADDRESS
from locallb.model.identities import ClusterName, ObjectKey, Owner
from locallb.model.texts import owner_fields
from locallb.storage import paths
from tests.support.stages import Stage


def doctor(directory: Path) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the texts of problems by topic."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["-C", str(directory), "doctor", "--json"])
    document: dict[str, Any] = json.loads(out.getvalue())
    problems: dict[str, list[str]] = {}
    for finding in document["findings"]:
        if finding["level"] == "problem":
            problems.setdefault(finding["topic"], []).append(finding["text"])
    assert document["healthy"] is (not problems)
    assert document["headroom"]["proxies"] >= 0
    return code, problems


def test_a_project_that_was_never_deployed_is_healthy(play: Stage) -> None:
    """Nothing is written by looking."""
    before = play.files()
    assert doctor(play.root) == (0, {})
    assert play.files() == before


def test_without_a_project_the_host_is_looked_at_all_the_same(tmp_path: Path, play: Stage) -> None:
    """The missing project is one finding."""
    del play
    code, problems = doctor(tmp_path)
    assert code == 1
    assert set(problems) == {"stack"}
    assert str(tmp_path) in problems["stack"][0]


def test_each_mistake_of_the_configuration_is_a_finding(play: Stage) -> None:
    """With the sentence that `up` would say."""
    play.configure(pools=[{"name": "p", "addresses": ["127.7"]}], runtime="magic")
    code, problems = doctor(play.root)
    assert code == 1
    assert any("127.7" in text for text in problems["stack"])
    assert any("magic" in text for text in problems["stack"])


def test_a_source_that_is_gone_is_a_finding(play: Stage) -> None:
    """It names the directory."""
    play.manifests.rmdir()
    code, problems = doctor(play.root)
    assert code == 1
    assert str(play.manifests) in problems["sources"][0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', "\x00"])
def test_a_damaged_state_is_a_finding(play: Stage, text: str) -> None:
    """It names the file; the rest is looked at."""
    path = play.root / ".state/.pulumi/stacks/local-lb/dev.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, problems = doctor(play.root)
    path.unlink()
    assert code == 1
    assert any(str(path) in text for text in problems["state"]), problems


def test_a_claim_that_another_stack_has_by_now_is_gone(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Service may have the same name, and its claim the same address."""
    session = Session.open(play.root, "dev")
    mine = Owner(session.home, ObjectKey(ClusterName("c"), "default", "web"))
    address, theirs = ip_address(play.at(5)), replace(mine, home=mine.home._replace(stack="prod"))
    inputs: Properties = {"address": str(address), "owner": dict(owner_fields(mine))}
    existing = (ResourceState("urn", ADDRESS, custom=True, id=str(address), inputs=inputs),)
    monkeypatch.setattr(Session, "resources_and_under_way", lambda _session: (existing, ()))
    Ledger(paths.ledger_directory()).claim(address, theirs)
    assert doctor(play.root)[1] == {
        "ledger": [f"the claim of {address} is gone: another stack may have it, or take it"]
    }
    Ledger(paths.ledger_directory()).reown(address, theirs, mine)
    assert doctor(play.root) == (0, {})


def test_locks_that_cannot_be_read_are_a_finding(play: Stage) -> None:
    """As where something else stands in their place; all else is looked at."""
    locks = Session.open(play.root, "dev").project.backend / ".pulumi/locks/organization/local-lb/dev"
    locks.parent.mkdir(parents=True)
    locks.touch()
    code, problems = doctor(play.root)
    assert code == 1
    assert list(problems) == ["state"]
    assert str(locks) in problems["state"][0]
