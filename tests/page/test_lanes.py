"""What is drawn of a Service: made by the planner's own words, harmless whatever a cluster writes."""

from __future__ import annotations

import json
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.cli.watching.board import Board, EventBatch, View
from locallb.cli.watching.lanes import LaneSubject, RowDifference, differences, lane, rates, subjects
from locallb.model.objects import ServicePort
from locallb.planning.notices import FAULT
from locallb.planning.service_rows import PortRow, Row, State
from locallb.traffic.figures import Bin, Counts, Details, Latencies, TrafficRow, UpstreamFigures
from tests.support.objects import node, parsed, service
from tests.support.page_scenes import planned as made_up
from tests.support.page_scenes import shop
from tests.support.watch_story import EVIL, key, planned, serving, snapshot_of, story


def test_a_lane_leads_from_addresses_to_backends() -> None:
    """As the preview draws it."""
    event = planned(snapshot_of("web"))
    board = Board(observed=serving(event.plan))
    board.take(EventBatch(latest=event))
    (drawn,) = [lane(subject) for subject in subjects(board.views(), event.plan).values()]
    address = str(event.plan.placements[0].addresses[0])
    assert drawn == {
        "name": "web",
        "place": "demo/shop",
        "cluster": "demo",
        "state": "serving",
        "reason": "",
        "message": "",
        "remedy": "",
        "addresses": [address],
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
        "links": {"8080/TCP": f"http://{address}:8080/", address: f"http://{address}:8080/"},
        "curl": "",
        "changes": [],
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


def test_a_difference_says_before_and_after() -> None:
    """Of what clients meet; another state or reason is none."""
    before = Row(key("web"), State.SERVING, (ip_address("127.77.0.1"),), (PortRow(ServicePort(80), State.SERVING),))
    ports = (*before.ports, PortRow(ServicePort(443), State.PENDING))
    assert differences(before, replace(before, state=State.DEGRADED, reason="X"), 1.0) == ()
    assert differences(before, replace(before, ports=ports, names=("web.test",)), 1.0) == (
        RowDifference(1.0, "Ports", ("80/TCP",), ("80/TCP", "443/TCP")),
        RowDifference(1.0, "Names", (), ("web.test",)),
    )


def links_of(routes: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the links of a Gateway with a listener of HTTP, with other routes and names."""
    event = made_up(shop(8080))
    (placement,) = (each for each in event.plan.placements if each.key.name == "front")
    row = Row(placement.key, State.SERVING, placement.addresses, names=names)
    drawn = lane(LaneSubject(View(row), replace(placement, routes=routes or placement.routes)))
    links: dict[str, str] = drawn["links"]  # type: ignore[assignment]  # of a document
    return links


def test_routes_and_names_lead_where_a_browser_finds_them() -> None:
    """With the listener's port; a wildcard leads nowhere."""
    links = links_of(names=("front.test", "*.front.test"))
    assert links["front.test"] == "http://front.test:8080/"
    assert {text.partition(" → ")[0]: url for text, url in links.items() if " → " in text} == {
        "8080: www.shop.test/cart/*": "http://www.shop.test:8080/cart/",
        "8080: www.shop.test/*": "http://www.shop.test:8080/",
    }
    assert not [text for text in links if text.startswith("*.")]


@pytest.mark.parametrize(
    "host", ["javascript:alert(1)", "www.shop.test@evil.test", "*.shop.test", "evil.test:1", "a b", "é.test", ""]
)
def test_a_route_of_an_odd_host_or_path_is_no_link(host: str) -> None:
    """Nothing of a cluster but a hostname and a plain path gets into a URL."""
    route = f"8080: {host}/x → shop/web:8080"
    assert route not in links_of(routes=(route, '8080: www.shop.test/x"onclick=1 → shop/web:8080'))
    assert not [url for url in links_of(routes=(route,)).values() if "evil" in url or "javascript" in url]
