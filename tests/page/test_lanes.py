"""What is drawn of a Service: made by the planner's own words, harmless whatever a cluster writes."""

from __future__ import annotations

import json

from msgspec.structs import replace

from locallb.cli.watching.board import Board, EventBatch, View
from locallb.cli.watching.page import LaneSubject, lane, rates, subjects
from locallb.planning.notices import FAULT
from locallb.planning.service_rows import Row, State
from locallb.traffic.figures import Bin, Counts, Details, Latencies, TrafficRow, UpstreamFigures
from tests.support.objects import node, parsed, service
from tests.support.watch_story import EVIL, key, planned, serving, snapshot_of, story


def test_a_lane_leads_from_addresses_to_backends() -> None:
    """As the preview draws it."""
    event = planned(snapshot_of("web"))
    board = Board(observed=serving(event.plan))
    board.take(EventBatch(latest=event))
    (drawn,) = [lane(subject) for subject in subjects(board.views(), event.plan).values()]
    assert drawn == {
        "name": "web",
        "place": "demo/shop",
        "state": "serving",
        "reason": "",
        "message": "",
        "addresses": [str(event.plan.placements[0].addresses[0])],
        "hosts": [],
        "ports": [
            {
                "label": "8080/TCP",
                "state": "serving",
                "reason": "",
                "message": "",
                "via": "nodePorts",
                "backends": ["127.0.0.1:30080"],
                "more": 0,
            }
        ],
        "proxy": "demo/shop/web",
        "routes": [],
        "notices": [],
        "changed": 0,
        "took": 0,
    }


def test_backends_that_change_make_another_lane() -> None:
    """Also where the placement is the same: they are its proxy's."""
    event = planned(snapshot_of("web"))
    board = Board(observed=serving(event.plan))
    board.take(EventBatch(latest=event))
    (subject,) = subjects(board.views(), event.plan).values()
    assert subject == subjects(board.views(), event.plan)["demo/shop/web"]
    assert subject != LaneSubject(subject.view, subject.placement, ())


def test_every_moment_of_a_story_can_be_drawn() -> None:
    """What can't be served is there as well, with the sentence; nothing in it can be seen as anything else."""
    board, reasons = Board(), set()
    for batch, observed in story():
        board.observed = observed
        board.take(batch)
        assert board.planned
        for drawn in map(lane, subjects(board.views(), board.planned.plan).values()):
            text = json.dumps(drawn)
            assert text.isascii()
            assert not {"\x1b", "\u202e", "\x00", "\r", "\n"} & set(str(drawn["message"]))
            reasons.add(drawn["reason"])
    assert {"", "Updating", "UpdateFailed", "PoolExhausted"} <= reasons


def test_served_and_rejected_object_of_one_name_are_both_drawn() -> None:
    """A second object of a name is rejected beside the first."""
    event = planned(snapshot_of("web"))
    views = [View(Row(key("web"), State.SERVING)), View(Row(key("web"), State.REJECTED, reason="Twice", message=EVIL))]
    assert list(subjects(views, event.plan)) == ["demo/shop/web", "demo/shop/web Twice"]


def test_rates_are_what_flowed_in_a_second() -> None:
    """Requests only of HTTP, bytes and latencies only where they are counted, nothing where nothing flows."""
    counts = Counts(20, 2, 3, 200, 10)
    details = Details(1000, 4000, Latencies({Bin(1, 1): 100}))
    rows = [
        TrafficRow(key("web"), ("80/TCP",), True, True, UpstreamFigures({"a": counts}, details)),
        TrafficRow(key("db"), ("5432/TCP",), False, True, UpstreamFigures({"a": counts})),
        TrafficRow(key("idle"), ("80/TCP",), True, True, UpstreamFigures({"a": Counts()}, Details())),
        TrafficRow(key("off"), ("80/TCP",), True, False, UpstreamFigures({"a": counts})),
    ]
    assert rates(rows, 2.0) == {
        "demo/shop/web": [
            {
                "ports": ["80/TCP"],
                "open": 3,
                "connections": 10.0,
                "refused": 1.0,
                "requests": 100.0,
                "failed": 5.0,
                "in": 500.0,
                "out": 2000.0,
                "p50": 1.5,
                "p99": 1.99,
            }
        ],
        "demo/shop/db": [{"ports": ["5432/TCP"], "open": 3, "connections": 10.0, "refused": 1.0}],
    }


def test_an_ordered_fault_is_there_with_its_sentence() -> None:
    """Nobody hunts a fault that was ordered."""
    order = {"local-lb.dev/fault": "refuse=10%,until=2126-11-22T18:00:00Z"}
    read = parsed(service("web", meta={"annotations": order}), node())
    event = planned(replace(snapshot_of("web"), services=read.services))
    board = Board(observed=serving(event.plan))
    board.take(EventBatch(latest=event))
    (drawn,) = [lane(subject) for subject in subjects(board.views(), event.plan).values()]
    assert FAULT in str(drawn["notices"])
    assert "10% are refused" in str(drawn["notices"])
