"""What `locallb watch` shows of a recorded story: plain lines, JSON lines, and the table at several widths."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import islice

import pytest
from msgspec.structs import replace
from rich.console import Console

from locallb.cli.watching.board import FAILED, NO_ANSWER, UPDATING, Board, EventBatch, Relay, RelayedEvent, by_urgency
from locallb.cli.watching.log import LogRecord, Narrator, as_json, journal, plain, started, where
from locallb.cli.watching.screen import Screen
from locallb.config.parsing import parse_settings
from locallb.model.identities import Protocol
from locallb.model.objects import ServicePort
from locallb.model.snapshot import HostFacts, Socket
from locallb.planning.plan import make_plan
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


def screens() -> Iterator[Screen]:
    """Yield the screen after each chapter, which the next one changes."""
    screen, narrator = Screen("dev"), Narrator()
    for batch, observed in story():
        screen.board.observed = observed
        screen.board.take(batch)
        screen.views = screen.board.views()
        reported = narrator.report_to(batch, screen.views), narrator.services(batch.entries[-1].at, screen.views)
        screen.records.extend(record for some in reported for record in some)
        yield screen


def printed(screen: Screen, width: int, height: int) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=False, color_system=None)
    console.print(screen, end="")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def drawn(chapter: int, width: int, height: int) -> str:
    """Draw the screen as it is after a chapter."""
    return printed(next(islice(screens(), chapter, None)), width, height)


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


def test_the_story_as_lines_and_tables(golden: Golden) -> None:
    """Every form of the same records; the table while something updates, fails, is stale, and at the end."""
    records = [record for record, _ in reported()]
    golden.check(
        "watch/story",
        {
            "plain.txt": "".join(f"{plain(record)}\n" for record in records),
            "journal.txt": "".join(f"{journal(record)}\n" for record in records),
            "records.jsonl": "".join(f"{as_json(record, 'dev')}\n" for record in records),
            "screen-updating-120.txt": drawn(2, 120, 24),
            "screen-failed-120.txt": drawn(3, 120, 24),
            "screen-stale-80.txt": drawn(4, 80, 24),
            "screen-failing-60.txt": drawn(5, 60, 16),
            "screen-end-40.txt": drawn(9, 40, 10),
        },
    )


def test_no_form_lets_a_cluster_break_a_line_or_drive_a_terminal() -> None:
    """The story has escape sequences, line ends and marks that turn text; each record stays one harmless line."""
    for record, _ in reported():
        for form in (plain(record), journal(record), as_json(record, "dev")):
            assert form.isprintable(), form
        assert json.loads(as_json(record, EVIL))["stack"] == EVIL
    for screen in screens():
        assert all(line.isprintable() for line in printed(screen, 100, 24).splitlines())


@pytest.mark.parametrize("width", [20, 33, 34, 50, 70, 90, 110, 200])
@pytest.mark.parametrize("height", [5, 9, 15, 16, 24, 60])
def test_the_view_never_exceeds_the_terminal(width: int, height: int) -> None:
    """No line is wider; from nine lines on none scrolls away."""
    for screen in screens():
        lines = printed(screen, width, height).splitlines()
        assert all(len(line) <= width for line in lines)
        assert len(lines) <= max(height, 9)


@pytest.mark.parametrize(
    ("width", "reported"),
    [
        (80, "next     curl http://127.77.0.2:8080/  Ctrl-C stops watching; Services go on"),
        (76, "next     curl http://127.77.0.2:8080/  Ctrl-C stops watching; Services go on"),
        (75, "next     curl http://127.77.0.2:8080/  Ctrl-C stops watching"),
        (60, "next     curl http://127.77.0.2:8080/  Ctrl-C stops watching"),
        (59, "next     curl http://127.77.0.2:8080/"),
        (40, "next     curl http://127.77.0.2:8080/"),
        (35, "next     Ctrl-C stops watching"),
        (29, ""),
        (20, ""),
    ],
)
def test_watch_view_never_truncates_a_suggested_command(width: int, reported: str) -> None:
    """Half a command can't be copied: what there is no room for is left out."""
    assert drawn(4, width, 24).splitlines()[4] == reported


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


def test_watch_view_shows_troubled_and_recent_services_first_and_counts_the_rest() -> None:
    """Of a thousand Services, those that may need attention come first."""
    names = [f"s{number:04d}" for number in range(1000)]
    screen = Screen("dev")
    event = planned_large(names)
    screen.board.observed = serving(event.plan, without={"s0500"})
    screen.board.take(EventBatch((RelayedEvent(NOON, event), RelayedEvent(NOON + 1, updated("s0700"))), event))
    screen.views = screen.board.views()
    stream = io.StringIO()
    Console(file=stream, width=120, height=24, color_system=None).print(screen)
    lines = stream.getvalue().splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("SERVICE"))) + 1 :]
    assert [line.split()[0] for line in table[:3]] == ["demo/shop/s0500", "demo/shop/s0700", "demo/shop/s0000"]
    assert any(line.startswith("988 more, all serving") for line in lines)


def test_watch_view_says_one_cause_of_many_services_in_one_line() -> None:
    """At 80 by 24 the Services that serve are in sight, and so is the remedy for forty others."""
    screen = Screen("dev")
    snapshot = snapshot_of(*(f"s{number:02d}" for number in range(44)))  # in a pool of four
    event = replace(
        planned(snapshot),
        plan=make_plan(
            snapshot,
            parse_settings(
                {
                    "sources": [{"manifests": "m", "name": "demo"}],
                    "pools": [{"name": "p", "addresses": ["127.80.0.0/30"]}],
                }
            ),
        ),
    )
    screen.board.observed = serving(event.plan)
    screen.board.take(EventBatch((RelayedEvent(NOON, event),), event))
    screen.views = screen.board.views()
    stream = io.StringIO()
    Console(file=stream, width=80, height=24, color_system=None).print(screen)
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if "PoolExhausted" in line] == [
        "40 Services: PoolExhausted, add addresses to local-lb:pools or delete a Service…"
    ]
    assert sum(line.startswith("demo/shop/s") and " serving " in line for line in lines) == 4


def test_a_mapped_port_is_shown_as_clients_find_it() -> None:
    """With both numbers, and what to try names the one that is served."""
    screen = Screen("dev")
    settings = parse_settings({"sources": [{"manifests": "m", "name": "demo"}], "portMapping": "loopback"})
    claimed = Socket(ip_address("127.0.0.1"), 8080, Protocol.TCP)
    host = HostFacts(watches=10_000, sockets=(claimed,))
    event = replace(planned(snapshot_of("web")), plan=make_plan(replace(snapshot_of("web"), host=host), settings))
    screen.board.observed = serving(event.plan)
    screen.board.take(EventBatch((RelayedEvent(NOON, event),), event))
    screen.views = screen.board.views()
    (row,) = screen.views
    (port,) = row.row.ports
    assert port.port.mapped not in {0, port.port.port}
    text = render(screen)
    assert f"8080/TCP={port.port.mapped}" in text
    assert f"curl http://127.0.0.1:{port.port.mapped}/" in text


def test_closing_message_counts_serving_services_and_names_next_commands() -> None:
    """Before the first plan nothing is reported as absent."""
    screen = Screen("dev")
    assert "Reading the sources." in render(screen)
    assert screen.farewell.startswith("Stopped watching. `locallb status`")
    event = planned(snapshot_of("web", "api"))
    screen.board.observed = serving(event.plan)
    screen.board.take(EventBatch((RelayedEvent(NOON, event),), event))
    screen.views = screen.board.views()
    assert screen.farewell.startswith("Stopped watching; 2 Services go on serving. `locallb status`")
    assert "`locallb destroy`" in screen.farewell
    nothing = planned(snapshot_of())
    screen.board.take(EventBatch((RelayedEvent(NOON, nothing),), nothing))
    screen.views = screen.board.views()
    assert "No Service of type LoadBalancer yet" in render(screen)


def render(screen: Screen) -> str:
    """Draw a screen of a usual size."""
    stream = io.StringIO()
    Console(file=stream, width=120, height=24, color_system=None).print(screen)
    return stream.getvalue()


def planned_large(names: list[str]) -> Planned:
    """Plan many Services in a pool that has room for all."""
    from msgspec.structs import replace  # noqa: PLC0415 - used here only

    from locallb.config.parsing import parse_settings  # noqa: PLC0415 - likewise
    from locallb.planning.plan import make_plan  # noqa: PLC0415 - likewise

    settings = parse_settings(
        {
            "sources": [{"manifests": "m", "name": "demo"}],
            "pools": [{"name": "p", "addresses": ["127.80.0.0/20"]}],
        }
    )
    snapshot = snapshot_of(*names)
    return replace(planned(snapshot_of()), plan=make_plan(snapshot, settings), snapshot=snapshot, settings=settings)


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
