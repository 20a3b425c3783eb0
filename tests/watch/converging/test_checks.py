"""Checks after a start: where this code brought all about a look is enough, and finds what an update would find."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from locallb import envoy
from locallb.cli.session import Session
from locallb.components import stack as declaration
from locallb.engine.core.desired_index import Groups
from locallb.engine.core.updates import Updates
from locallb.engine.state.project import load_config
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.observe import observe
from locallb.planning import plan
from locallb.provider import proxy_config
from locallb.runtimes.processes import Process, is_alive
from locallb.sources.configuration import stack_settings
from locallb.watch import converge as module
from locallb.watch.converge import MAX_UNVERIFIED, NAME, Checks
from locallb.watch.events import Cause, Converged, Failed, LoopEvent, Mark, Updated
from locallb.watch.loop import Loop
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage
from tests.support.waiting import becomes

KEYS = [ObjectKey(ClusterName("c"), "n", name) for name in "abc"]


def begun(home: Home, stamp: object) -> Checks:
    checks = Checks()
    checks.begin(home, KEYS, stamp)
    return checks


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a stack of which all was brought about, and written as 1."""
    made = Home("p", "s", str(tmp_path))
    (tmp_path / ".state" / "locallb" / "s").mkdir(parents=True)
    begun(made, None).ended(KEYS, (), 1)
    return made


def test_state_written_by_the_same_code_is_only_refreshed(home: Home) -> None:
    """Once: what was looked at isn't looked at again."""
    checks = begun(home, 1)
    assert checks.check_only
    assert checks.needs_check_only(KEYS)
    checks.ended(KEYS[:1], (), 1)
    assert not checks.needs_check_only(KEYS)
    assert checks.needs_check_only(KEYS[1:])
    assert begun(home, 1).needs_check_only(KEYS)


@pytest.mark.parametrize("stamp", [2, None])
def test_a_state_that_was_written_meanwhile_is_read_again(home: Home, stamp: object) -> None:
    """Also one of which nobody knows who wrote it."""
    assert not begun(home, stamp).check_only
    assert not any(begun(home, stamp).needs_check_only([key]) for key in KEYS)


def test_state_written_by_other_code_is_declared_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may declare something else of the same plan."""
    monkeypatch.setattr(module, "_code", lambda: "another")
    assert not begun(home, 1).check_only


def test_files_that_were_replaced_under_a_process_are_not_its_code(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood by with the old ones in memory, led later, and doesn't say that the new ones did its work."""
    monkeypatch.setattr(module, "_code", lambda: "old")
    standing_by = Checks()
    monkeypatch.setattr(module, "_code", lambda: "new")
    standing_by.begin(home, KEYS, None)
    standing_by.ended(KEYS, (), 3)
    assert not begun(home, 3).check_only


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"code": 1}', "[" * 60_000])
def test_unreadable_note_is_ignored_and_written_again(home: Home, text: str) -> None:
    """Everything is checked then."""
    note = Path(home.root) / ".state" / "locallb" / "s" / NAME
    note.write_text(text)
    checks = begun(home, 1)
    assert not checks.check_only
    checks.ended(KEYS, (), 1)
    assert begun(home, 1).check_only


def test_failed_load_balancers_are_declared_again_by_the_next_loop(home: Home) -> None:
    """And the others are looked at."""
    begun(home, 1).ended(KEYS, KEYS[:1], 2)
    checks = begun(home, 2)
    assert [checks.needs_check_only([key]) for key in KEYS] == [False, True, True]
    assert not checks.needs_check_only(KEYS)


def test_checks_are_not_noted_while_too_many_are_doubtful(home: Home) -> None:
    """An earlier note then belongs to an earlier state."""
    many = [ObjectKey(ClusterName("c"), "n", str(number)) for number in range(MAX_UNVERIFIED + 1)]
    begun(home, 1).ended((), many, 2)
    assert not begun(home, 2).check_only
    assert begun(home, 1).check_only


def test_all_that_decides_what_is_declared_is_this_code() -> None:
    """Wherever this module is: another version that plans otherwise is other code, whose note nobody may trust."""
    existing = {path.resolve() for path in module._PACKAGE.rglob("*.py")}
    deciding = plan, declaration, proxy_config, envoy, module
    assert {Path(str(one.__file__)).resolve() for one in deciding} <= existing


def test_code_digest_changes_with_content_and_place_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But not with their times."""
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("1")
    named = [module._code.__wrapped__()]
    os.utime(tmp_path / "a.py", (0, 0))
    assert module._code.__wrapped__() == named[0]
    for change in (
        lambda: (tmp_path / "a.py").write_text("2"),
        lambda: (tmp_path / "a.py").rename(tmp_path / "b.py"),
        lambda: (tmp_path / "a.py").write_text("2"),
    ):
        change()
        named.append(module._code.__wrapped__())
    assert len(set(named)) == len(named)


@pytest.fixture(scope="module")
def play() -> Iterator[Stage]:
    """Set the stage: three Services behind a proxy of the stack, all brought about."""
    with stage() as made:
        made.configure(proxies="shared")
        made.write("nodes.yaml", node())
        for name in "abc":
            made.write(f"{name}.yaml", service(name, port(8080, 30080)))
        inspect(made)
        yield made


def inspect(play: Stage) -> list[LoopEvent]:
    """Have a loop start and look, again where something happens meanwhile, until all is as it should be."""
    session, reported = Session.open(play.root, "dev"), list[LoopEvent]()
    load = lambda: stack_settings(load_config(session.project, "dev"))  # noqa: E731 - the loop's, each time
    engine, path = session.engine(lambda _event: None), session.project.stack_file("dev")
    loop = Loop(session.home, engine, load, path, reported.append, observe=observe)
    try:
        loop._take(Mark(Cause.START))
        loop._inspect()
        while not isinstance(reported[-1], Converged | Failed):
            loop._take(*loop._inbox.take(0))
            loop._go_on()
            loop._inspect()
    finally:
        loop._end()
    assert isinstance(reported[-1], Converged), reported[-1]
    assert not any(isinstance(event, Failed) for event in reported)
    return reported


def contents(play: Stage) -> dict[str, object]:
    """Read what a start must leave as it was: claims, proxies' files, and the state but for times and processes."""
    proxies = {
        path.name: path.read_text()
        for path in (play.state_home / "proxies").glob("*/*.json")
        if path.name in {"lds.json", "cds.json", "bootstrap.json", "owner.json"}
    }
    claims = {path.name: path.read_text() for path in (play.state_home / "ledger").iterdir()}
    state = json.loads((play.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text())
    stated = {
        item["urn"]: {name: text for name, text in item.get("inputs", {}).items() if name != "process"}
        for item in state["checkpoint"]["latest"]["resources"]
    }
    return {"proxies": proxies, "claims": claims, "state": stated}


def _kill(play: Stage) -> None:
    record = json.loads(next((play.state_home / "proxies").glob("*/process.json")).read_text())
    os.kill(record["pid"], signal.SIGKILL)
    becomes(lambda: not is_alive(Process(record["pid"], record["started"])))


def _spoil(play: Stage) -> None:
    path = next((play.state_home / "proxies").glob("*/lds.json"))
    path.write_text('{"resources":[],"version_info":"x"}\n')


def _release(play: Stage) -> None:
    next((play.state_home / "ledger").iterdir()).unlink()


def _nothing(_play: Stage) -> None:
    pass


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    updates, begin = list[object](), Updates.begin

    def noted(self: Updates, groups: Groups, parts: Mapping[Hashable, frozenset[str]], **how: Any) -> None:  # noqa: ANN401 - as it is given
        updates.append(parts)
        begin(self, groups, parts, **how)

    monkeypatch.setattr(Updates, "begin", noted)
    return updates


@pytest.mark.parametrize(
    ("happened", "is_updated"), [(_nothing, False), (_kill, True), (_spoil, True), (_release, True)]
)
def test_a_look_leads_to_the_updates_that_are_needed_and_to_no_other(
    play: Stage, monkeypatch: pytest.MonkeyPatch, happened: Callable[[Stage], None], *, is_updated: bool
) -> None:
    """Whatever happened while no loop ran: afterwards all is as it was, and the next start finds it so."""
    before, updates = contents(play), counted(monkeypatch)
    happened(play)
    reported = inspect(play)
    assert bool(updates) == is_updated
    assert any(isinstance(event, Updated) for event in reported)
    assert contents(play) == before
    updates.clear()
    inspect(play)
    assert not updates


def test_by_another_version_all_are_declared_again(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing changed: what differs is known by declaring it, as without any note."""
    before, updates = contents(play), counted(monkeypatch)
    monkeypatch.setattr(module, "_code", lambda: "another")
    inspect(play)
    assert updates
    assert contents(play) == before
