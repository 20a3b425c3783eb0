"""The commands `state check` and `state restore`: states and journals that can't be used, and the way back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.cli import main
from locallb.engine.state.errors import StateBroken
from locallb.sources import SourceError
from locallb.sources.held import read_resources
from tests.support.balancers import BOTH, ONE, declare
from tests.support.engine import Bench, World, make_project

WAY_OUT = "run `locallb state restore` to go back to the last good state"


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


BROKEN: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(os.urandom(99)),
    "empty": lambda path: path.write_text(""),
    "cut short": lambda path: path.write_text(path.read_text()[:500]),
    "a directory": _directory,
    "another document": lambda path: path.write_text('["a"]'),
    "an older format": lambda path: path.write_text(path.read_text().replace('"version":3', '"version":1', 1)),
    "edited": lambda path: path.write_text(path.read_text().replace('"magic":"', '"magic":"0')),
    "too deep": lambda path: path.write_text("[" * 100_000),
    "a huge number": lambda path: path.write_text('{"version":' + "9" * 5000 + "}"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a stack with two updates, so that there is a backup."""
    bench = Bench(make_project(tmp_path / "p"), World())
    assert bench.engine().up(lambda: declare(ONE)).ok
    assert bench.engine().up(lambda: declare(BOTH)).ok
    return bench


def state(bench: Bench, *terms: str) -> int:
    return main(["-C", str(bench.project.root), "state", *terms])


@pytest.mark.parametrize("name", BROKEN)
def test_a_state_that_cannot_be_used_is_reported_in_one_wording_and_restored(
    name: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads it says the same, with a command of ours; afterwards the next update adopts what was made since."""
    path = bench.state_path
    BROKEN[name](path)
    with pytest.raises(StateBroken) as caught:
        bench.engine().resources()
    assert str(caught.value).startswith(f"{path} can't be used: ")
    assert str(caught.value).endswith(WAY_OUT)
    assert "\n" not in str(caught.value)
    assert state(bench, "check") == 1
    assert "Traceback" not in capsys.readouterr().err
    assert state(bench, "restore", "--yes") == 0
    reported = capsys.readouterr().out
    assert "brought back" in reported
    assert " up`: it adopts what was made since" in reported
    assert len(list((bench.project.backend / ".pulumi/backups").rglob("*.broken"))) == 1
    assert state(bench, "check") == 0
    assert bench.engine().up(lambda: declare(BOTH)).ok
    assert len(bench.world.things) == 10
    assert bench.engine().up(lambda: declare(BOTH)).unchanged


@pytest.mark.parametrize("name", ["garbage", "empty", "cut short", "another document"])
def test_unusable_state_is_reported_alike_without_the_engine(name: str, bench: Bench) -> None:
    """The planner's side has no engine to ask."""
    BROKEN[name](bench.state_path)
    with pytest.raises(SourceError) as caught:
        read_resources(bench.state_path)
    assert str(caught.value).startswith(f"{bench.state_path} can't be used: ")
    assert str(caught.value).endswith(WAY_OUT)


def test_state_restore_refuses_without_confirmation(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and without --yes nothing happens but telling why."""
    bench.state_path.write_text("?")
    assert state(bench, "restore") == 1
    assert bench.state_path.read_text() == "?"
    assert f"{bench.state_path} can't be used" in capsys.readouterr().err


def test_a_state_that_can_be_used_is_left_alone(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Without being asked."""
    before = bench.state_path.read_bytes()
    assert state(bench, "restore") == 0
    assert "nothing to restore" in capsys.readouterr().out
    assert bench.state_path.read_bytes() == before


def test_a_state_of_a_newer_local_lb_is_not_restored(bench: Bench) -> None:
    """It is sound: another program can use it."""
    newer = bench.state_path.read_text().replace('"version":3', '"version":4', 1)
    bench.state_path.write_text(newer)
    assert state(bench, "restore", "--yes") == 1
    assert bench.state_path.read_text() == newer


def test_the_newest_backup_that_is_good_is_taken(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """And where none is, nothing is moved."""
    good = sorted((bench.project.backend / ".pulumi/backups/local-lb/dev").glob("*.json"))
    (good[0].parent / "dev.9000000000000000000.json").write_text("?")
    bench.state_path.write_text("?")
    assert state(bench, "restore", "--yes", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert str(good[-1]) in document["done"][0]
    assert len(document["problems"]) == 1
    for path in good[0].parent.glob("*.json"):
        path.write_text("?")
    bench.state_path.unlink()
    bench.state_path.write_text("?")
    assert state(bench, "restore", "--yes") == 1
    assert "which adopts what is there" in capsys.readouterr().err
    assert bench.state_path.read_text() == "?"


def test_a_broken_state_and_a_broken_journal_are_restored_at_once(bench: Bench) -> None:
    """One command, whatever is broken."""
    journal = bench.project.backend / ".pulumi/journals/local-lb/dev.jsonl"
    journal.write_text("?")
    bench.state_path.write_text("?")
    assert state(bench, "restore", "--yes") == 0
    assert state(bench, "check") == 0
    assert bench.engine().up(lambda: declare(BOTH)).ok
    assert len(bench.world.things) == 10
