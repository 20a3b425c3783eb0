"""What `locallb view` reads again and again: the plan, what proxies answer, and who keeps the stack in sync."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import StringIO
from signal import SIGHUP, SIGINT, SIGTERM, Signals, getsignal, raise_signal, signal

import pytest
from msgspec.structs import replace

from locallb.cli.commands import view
from locallb.cli.commands.view import Readings, StackActions, farewell
from locallb.cli.session import Session
from locallb.engine.state.project import load_project
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Row, State
from locallb.programs import ProgramError, in_foreground
from locallb.runtimes.single_instance import only_one
from tests.cli.view.scenes import calm, scene_of
from tests.support.manifests import node, port, service
from tests.support.stages import Stage


@pytest.fixture
def session(play: Stage) -> Session:
    """Return a stack of two Services, of which nothing is up."""
    play.write("s.yaml", node(), service("web", port(8080, 30_000)), service("api", port(8081, 30_001)))
    return Session(load_project(play.root), "dev")


def names(readings: Readings) -> list[str]:
    return [card.view.row.key.name for card in readings.scene().cards]


def test_everything_of_the_stack_is_read_again(play: Stage, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the plan is old; rows that are as before are the same objects, which costs nothing to show."""
    monkeypatch.setattr(view, "STALE", 0.0)
    readings = Readings(session)
    before = readings.scene()
    assert [card.view.row.key.name for card in before.cards] == ["api", "web"]
    assert [one is other for one, other in zip(readings.scene().cards, before.cards, strict=True)] == [True, True]
    play.write("t.yaml", service("more", port(8082, 30_002)))
    assert names(readings) == ["api", "more", "web"]


def test_what_cannot_be_read_now_stays_as_it_was_and_is_named(
    play: Stage, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "STALE", 0.0)
    readings = Readings(session)
    path = play.root / "stacks/Pulumi.dev.yaml"
    whole = path.read_text()
    assert readings.scene().warnings == ()
    path.write_text("config: {")
    broken = readings.scene()
    assert [card.view.row.key.name for card in broken.cards] == ["api", "web"]
    (warning,) = broken.warnings
    assert warning.startswith("can't be read now: ")
    assert str(path) in warning
    path.write_text(whole)
    assert readings.scene().warnings == ()


def test_it_says_whether_a_watch_keeps_the_stack_in_sync(session: Session) -> None:
    readings = Readings(session)
    assert readings.scene().state.endswith(", no `watch` runs")
    with only_one(session.watch_lock, "watch"):
        assert readings.scene().state.endswith(f", in sync by `watch` (pid {os.getpid()})")


def test_changes_of_states_are_news_and_the_first_reading_is_none(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = Readings(session)
    assert readings.scene().records == ()

    def serving(plan: Plan) -> tuple[Row, ...]:
        return tuple(Row(placement.key, State.SERVING) for placement in plan.placements)

    monkeypatch.setattr(view, "inspect", serving)
    assert [record.fields["service"] for record in readings.scene().records] == ["c/n/api", "c/n/web"]


@pytest.mark.parametrize(
    ("serving", "stated"), [(0, "Closed the view. "), (1, "1 Service goes on"), (4, "4 Services go on serving. ")]
)
def test_the_last_line_says_what_goes_on(serving: int, stated: str) -> None:
    assert stated in farewell(replace(calm(), cards=calm().cards[:serving]), "Closed the view")


def test_a_command_is_run_for_the_same_stack_and_read_before_the_view_returns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words reach it as they are, and the terminal without what would drive it."""
    ran: list[Sequence[str]] = []

    def execute(terms: Sequence[str]) -> int:
        ran.append(terms)
        return 0

    monkeypatch.setattr("sys.stdin", StringIO("\n"))
    StackActions(("python", "-m", "locallb", "--stack", "dev"), execute=execute).run(["logs", "\x1b[2J a"])
    assert ran == [("python", "-m", "locallb", "--stack", "dev", "logs", "\x1b[2J a")]
    printed = capsys.readouterr().out
    assert "$ locallb logs '\\x1b[2J a'" in printed
    assert "Enter goes back to the view." in printed


@pytest.mark.parametrize(("number", "closes"), [(SIGINT, False), (SIGTERM, True), (SIGHUP, True)])
def test_a_signal_ends_the_wait_for_enter(monkeypatch: pytest.MonkeyPatch, number: Signals, *, closes: bool) -> None:
    """Ctrl-C leads back to the view as Enter does; what ends the process closes the view at once."""
    asked: list[int] = []

    class Keyboard:
        """A terminal where nobody types; the signal comes instead."""

        def readline(self) -> str:
            raise_signal(number)
            raise AssertionError(number)

    before = signal(number, lambda got, _frame: asked.append(got))
    try:
        ours = getsignal(number)
        monkeypatch.setattr("sys.stdin", Keyboard())
        StackActions(("locallb",), execute=lambda _terms: 0).run(["top"])
        assert getsignal(number) is ours
    finally:
        signal(number, before)
    assert bool(asked) is closes


def test_an_interrupt_that_ends_a_command_does_not_end_the_view() -> None:
    """The command has the terminal, and so its interrupts, which this process gets as well."""
    before = getsignal(SIGINT)
    assert in_foreground(("sh", "-c", "trap 'exit 3' INT; kill -INT $PPID; kill -INT $$; sleep 600")) == 3
    assert getsignal(SIGINT) is before
    with pytest.raises(ProgramError, match="can't be run"):
        in_foreground(("/nowhere/locallb",))


def test_of_two_objects_of_one_key_each_has_its_own_detail() -> None:
    """One that serves, and another that is refused beside it."""
    key = ObjectKey(calm().cards[0].view.row.key.cluster, "shop", "web")
    scene = scene_of([Row(key, State.SERVING), Row(key, State.REJECTED, reason="Twice", message="a second one")])
    texts = ["".join(text for line in StackActions(()).detail(scene, card) for text, _ in line) for card in scene.cards]
    assert ["Twice" in text for text in texts] == [False, True]
