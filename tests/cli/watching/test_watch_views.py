"""What `locallb watch` reports of a recorded story, in plain lines and JSON lines, and how it counts states."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.cli.watching.board import FAILED, NO_ANSWER, UPDATING, Board, EventBatch, Relay, RelayedEvent, by_urgency
from locallb.cli.watching.log import LogRecord, Narrator, as_json, journal, plain, started, where
from locallb.model.identities import Protocol
from locallb.model.objects import ServicePort
from locallb.planning.planned import Plan
from locallb.planning.service_rows import State
from locallb.watch.events import Cause, Converged, Failed, LoopEvent, Mark, Planned
from tests.support.goldens import Golden
from tests.support.watch_story import EVIL, NOON, key, planned, serving, snapshot_of, story, updated


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times as in UTC, wherever this runs."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reported() -> list[tuple[LogRecord, Board]]:
    board, narrator = Board(), Narrator()
    records = [(started(NOON, "dev", "1.2.3", 4711, {"metrics": "http://127.0.0.1:9477/metrics"}), board)]
    for batch, observed in story():
        board.observed = observed
        board.take(batch)
        views = board.views()
        at = batch.entries[-1].at
        records += [(record, board) for record in (*narrator.report_to(batch, views), *narrator.services(at, views))]
    return records


def test_a_board_that_remembers_says_what_a_newcomer_says() -> None:
    """At every moment of the story, and again where nothing happened."""
    board, so_far = Board(), []
    for batch, observed in story():
        so_far.append(batch)
        board.observed = observed
        board.take(batch)
        newcomer = Board()
        for earlier in so_far:
            newcomer.take(earlier)
        newcomer.observed = observed
        assert board.views() == newcomer.views() == board.views()


def test_the_story_as_lines(golden: Golden) -> None:
    """Every form of the same records."""
    records = [record for record, _ in reported()]
    golden.check(
        "watch/story",
        {
            "plain.txt": "".join(f"{plain(record)}\n" for record in records),
            "journal.txt": "".join(f"{journal(record)}\n" for record in records),
            "records.jsonl": "".join(f"{as_json(record, 'dev')}\n" for record in records),
        },
    )


def test_no_form_lets_a_cluster_break_a_line_or_drive_a_terminal() -> None:
    """The story has escape sequences, line ends and marks that turn text; each record stays one harmless line."""
    for record, _ in reported():
        for form in (plain(record), journal(record), as_json(record, "dev")):
            assert form.isprintable(), form
        assert json.loads(as_json(record, EVIL))["stack"] == EVIL


@pytest.mark.parametrize(
    ("ports", "stated"),
    [
        ([(80, "TCP", 0)], " at 127.77.0.1 ::1 (80/TCP)"),
        ([(80, "TCP", 18080)], " at 127.77.0.1 ::1 (80/TCP=18080)"),
        ([(port, "UDP", 0) for port in range(1, 6)], " at 127.77.0.1 ::1 (1/UDP, 2/UDP, 3/UDP and 2 more)"),
        ([], " at 127.77.0.1 ::1"),
    ],
)
def test_where_a_service_is_found(ports: list[tuple[int, str, int]], stated: str) -> None:
    """With the port at which clients find it, and a bounded number of them."""
    labels = [ServicePort(port, Protocol(protocol), mapped=mapped).label for port, protocol, mapped in ports]
    assert where([ip_address("127.77.0.1"), ip_address("::1")], labels) == stated
    assert where([], labels) == ""


def test_why_a_service_is_not_served_is_what_the_loop_knows() -> None:
    """Being updated, failed, silent, rejected: each has its own reason; a success ends a failure."""
    event = planned(snapshot_of("web", "api", "db", "ftp", "git"), "web", "api")
    board = Board(observed=serving(event.plan, without={"web", "db", "ftp"}))
    board.take(EventBatch((RelayedEvent(NOON, event), RelayedEvent(NOON, updated("api", failed={"api": "no"}))), event))
    reasons = {view.row.key.name: (view.row.state, view.row.reason) for view in board.views()}
    assert reasons == {
        "web": (State.PENDING, UPDATING),
        "api": (State.DEGRADED, FAILED),
        "db": (State.PENDING, NO_ANSWER),
        "ftp": (State.PENDING, NO_ANSWER),
        "git": (State.REJECTED, "PoolExhausted"),
    }
    assert by_urgency(board.views())[0].row.key == key("api")
    board.take(EventBatch((RelayedEvent(NOON + 5, updated("api", "web")),)))
    reasons = {view.row.key.name: (view.row.state, view.row.reason) for view in board.views()}
    assert reasons["api"] == (State.SERVING, "")
    assert board.open == 0


def test_an_object_that_the_plan_lacks_is_forgotten_while_the_services_stay() -> None:
    """Objects that come and go beside the same Services leave nothing; nor does the failure of a deleted Service."""
    event = planned(snapshot_of("web"))
    board = Board(observed=serving(event.plan))
    for failed in ({"gone": "its directory can't be removed"}, {}):
        entries = (event, updated("gone", "route", failed=failed), event)
        board.take(EventBatch(tuple(RelayedEvent(NOON, entry) for entry in entries), event))
    assert (board._changes, board.failures) == ({}, {})
    retry = planned(snapshot_of("gone", "web"))
    board.observed = serving(retry.plan)
    board.take(EventBatch((RelayedEvent(NOON + 5, retry),), retry))
    assert [view.row.reason for view in board.views()] == ["", ""]


def test_watch_view_prints_a_lasting_complaint_once() -> None:
    """Plans without work and complaints that stay are silent; a complaint's end is told."""
    snapshot = snapshot_of("web")
    sentence = "source demo: gone"
    board, narrator = Board(observed=serving(planned(snapshot).plan)), Narrator()

    def events(*chapter: Planned | Converged) -> list[str]:
        batch = EventBatch(tuple(RelayedEvent(NOON, event) for event in chapter), planned(snapshot))
        board.take(batch)
        return [record.event for record in narrator.report_to(batch, board.views())]

    assert events(planned(snapshot), Converged()) == ["converged"]
    assert events(planned(snapshot), Converged()) == []
    assert events(planned(snapshot, complaints=(sentence,)), Converged()) == ["complaint"]
    assert events(planned(snapshot, complaints=(sentence,)), Converged()) == []
    assert events(planned(snapshot), Converged()) == ["resolved"]


def test_services_are_shown_when_trouble_comes_and_goes() -> None:
    """A Service that is merely being updated isn't trouble; one that serves again is told by its addresses."""
    event = planned(snapshot_of("web"), "web")
    board, narrator = Board(), Narrator()
    batch = EventBatch((RelayedEvent(NOON, event),), event)

    def events() -> list[str]:
        return [f"{record.event} {record.fields['state']}" for record in narrator.services(NOON, board.views())]

    board.take(batch)
    assert events() == []
    board.take(EventBatch((RelayedEvent(NOON, updated("web")),)))
    board.observed = serving(event.plan, without={"web"})
    assert events() == ["service pending"]
    assert events() == []
    board.observed = serving(event.plan)
    assert events() == ["service serving"]
    assert events() == []


def narrated(*chapters: list[LoopEvent]) -> list[list[str]]:
    """Return the sentences of each chapter, with the table's state after it."""
    board, narrator, reported = Board(), Narrator(), []
    for chapter in chapters:
        latest = next((planned for planned in chapter if isinstance(planned, Planned)), None)
        batch = EventBatch(tuple(RelayedEvent(NOON, event) for event in chapter), latest)
        board.take(batch)
        reported.append([f"{record.event}: {record.sentence}" for record in narrator.report_to(batch, board.views())])
    return reported


def test_the_same_failure_of_everything_is_reported_once_and_its_end_too() -> None:
    """A broken stack file is tried again in vain: one line when it breaks, another one, one when it is repaired."""
    plan = planned(snapshot_of("web"), marks=[Mark(Cause.RETRY)])
    broken, locked = Failed("stacks/Pulumi.dev.yaml isn't YAML", "configuration"), Failed("it is locked", "engine")
    reported = narrated(
        [broken], [broken, broken], [plan, locked], [plan, locked], [plan, Converged()], [plan, Converged()]
    )
    assert reported == [
        ["failed: stacks/Pulumi.dev.yaml isn't YAML"],
        [],
        ["failed: it is locked"],
        [],
        ["resolved: no longer: it is locked", "converged: converged: 1 Service"],
        [],
    ]


def test_a_plan_is_reported_once_while_it_is_tried_in_vain() -> None:
    """Whoever holds the lock for an hour doesn't fill the log."""
    plan, locked = planned(snapshot_of("web"), "web"), Failed("it is locked", "engine")
    assert [len(lines) for lines in narrated([plan, locked], [plan, locked], [plan, locked])] == [2, 0, 0]


def test_a_load_balancer_that_fails_for_the_same_reason_again_is_reported_once() -> None:
    """Another reason is news, and so is its success and the same failure after it."""
    no, other = updated("web", failed={"web": "no"}), updated("web", failed={"web": "other"})
    reported = narrated([no], [no], [other], [updated("web")], [no])
    assert [len(lines) for lines in reported] == [1, 0, 1, 1, 1]


def test_plans_that_only_try_again_what_was_reported_to_fail_are_logged_once() -> None:
    """Of the tries of a proxy whose image is missing; those with anything else to do, or another cause, are logged."""
    snapshot, failed = snapshot_of("web", "api"), updated("web", failed={"web": "no such image"})
    retry = planned(snapshot, "web", marks=[Mark(Cause.RETRY)])
    both = planned(snapshot, "web", "api", marks=[Mark(Cause.RETRY)])
    changed = planned(snapshot, "web", marks=[Mark(Cause.RETRY), Mark(Cause.SOURCE, "demo")])
    chapters: list[list[LoopEvent]] = [
        [planned(snapshot, "web"), failed],
        [retry, failed],
        [retry, failed],
        [retry, failed],
        [both, failed],
        [changed, failed],
        [retry, updated("web")],
        [retry],
    ]
    reported = narrated(*chapters)
    assert [sum(line.startswith("planned: ") for line in lines) for lines in reported] == [1, 1, 0, 0, 1, 1, 1, 1]


def test_checked_but_unchanged_services_are_not_shown_as_updated() -> None:
    """Neither in lines nor in the table, when a watch starts on a stack that is as planned."""
    snapshot = snapshot_of("web", "api", "db")
    start = replace(planned(snapshot, marks=[Mark(Cause.START)]), unchecked=3)
    names = ("web", "api", "db")
    reported = narrated([start, updated(*names, untouched=names), Converged()])
    assert reported == [
        [
            "planned: planned in 2 ms because of start: 0 to do, 3 to check",
            "checked: 3 checked in 31 ms: as planned",
            "converged: converged: 3 Services",
        ]
    ]
    board = Board()
    entries = (start, updated(*names, untouched=("web", "api")))
    board.take(EventBatch(tuple(RelayedEvent(NOON, event) for event in entries), start))
    assert {view.row.key.name: view.change is not None for view in board.views()} == {
        "web": False,
        "api": False,
        "db": True,
    }


def test_watch_view_prints_left_out_services_when_they_change() -> None:
    """And again once it is something else."""
    narrator = Narrator()

    relay = Relay()

    def report_to(*left_out: str) -> list[str]:
        relay.listen(replace(planned(snapshot_of()), plan=Plan(left_out=left_out)))
        return [record.sentence for record in narrator.report_to(relay.take(0), ()) if record.event == "left-out"]

    assert [report_to("a"), report_to("a"), report_to("a", "b"), report_to(), report_to("a")] == [
        ["a"],
        [],
        ["b"],
        [],
        ["a"],
    ]
