"""The live page beside a loop: drawn and asked for only while somebody looks, and told what happens."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest

from locallb.cli.watching import lanes
from locallb.cli.watching import page as live
from locallb.cli.watching.http_server import HttpServerError
from locallb.cli.watching.page import PageReporter
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation
from locallb.watch.events import Converged, Failed, Pulse, Stopped
from tests.support.waiting import TIMEOUT, becomes
from tests.support.watch_story import EVIL, planned, serving, snapshot_of, updated


class Reader:
    """Follows the page's stream as a browser does."""

    def __init__(self, page: PageReporter) -> None:
        connection = http.client.HTTPConnection(page.url.split("/")[2], timeout=TIMEOUT)
        connection.request("GET", "/events")
        self._answer = connection.getresponse()  # which has the connection from now on
        assert self._answer.headers["Content-Type"] == "text/event-stream"
        self.close = self._answer.close
        self.lanes: dict[str, Any] = {}
        self.head: dict[str, Any] = {}
        self.log: list[str] = []

    def until(self, fact: Callable[[], object]) -> Mapping[str, Any]:
        """Take messages until something is true; give the last one."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            line = self._answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                message: dict[str, Any] = json.loads(line[6:])
                self.lanes |= message.get("lanes", {})
                for name in message.get("gone", ()):
                    self.lanes.pop(name, None)
                self.head = message.get("head") or self.head
                self.log += [entry["text"] for entry in message.get("log", ())]
                if fact():
                    return message
            assert time.monotonic() < deadline, "it never became true"


@contextmanager
def shown(observed: dict[str, Observation | None]) -> Iterator[PageReporter]:
    page = PageReporter("127.0.0.1:0", "dev", lambda: observed, lambda: Pulse(time.monotonic()))
    page.start()
    try:
        yield page
    finally:
        page.listen(Stopped())
        page.close()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Return the plans whose proxies were asked for figures."""
    plans: list[Plan] = []

    def nothing_flows(plan: Plan) -> tuple[()]:
        plans.append(plan)
        return ()

    monkeypatch.setattr(live, "traffic", nothing_flows)
    return plans


def test_a_change_is_sent_to_open_pages(requested: list[Plan]) -> None:
    """What was there first, then each difference; names are as harmless as everywhere."""
    first, more = planned(snapshot_of("web"), "web"), planned(snapshot_of("web", "api"), "api")
    observed: dict[str, Observation | None] = {}
    with shown(observed) as page:
        page.listen(first)
        with closing(Reader(page)) as reader:
            reader.until(lambda: reader.lanes)
            assert reader.lanes["demo/shop/web"]["reason"] == "Updating"
            observed |= serving(more.plan)
            for event in (updated("web"), more, updated("api"), Converged()):
                page.listen(event)
            reader.until(lambda: [lane["state"] for lane in reader.lanes.values()] == ["serving"] * 2)
            page.listen(planned(snapshot_of("api")))
            reader.until(lambda: list(reader.lanes) == ["demo/shop/api"])
            page.listen(Failed(f"no reading of demo: {EVIL}", "source"))
            reader.until(lambda: reader.head["failure"])
            assert "\x1b" not in reader.head["failure"]
            assert any(line.startswith("updated demo/shop/api") for line in reader.log)
    assert requested


def test_an_open_page_shows_that_the_loop_ended(requested: list[Plan]) -> None:
    """Before the connection ends."""
    del requested
    with shown({}) as page:
        page.listen(planned(snapshot_of("web")))
        reader = Reader(page)
        reader.until(lambda: reader.lanes)
        page.listen(Stopped())
        page.close()
        assert reader.until(lambda: reader.head["ended"])


def test_page_without_readers_draws_and_queries_nothing(requested: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor after the last reader left; the next one sees what happened meanwhile."""
    drawn: list[object] = []
    draw = lanes.lane

    def counted(subject: lanes.LaneSubject, curl: lanes.Curl | None) -> lanes.Document:
        drawn.append(subject)
        return draw(subject, curl)

    monkeypatch.setattr(live, "lane", counted)
    monkeypatch.setattr(live, "IDLE", 0.01)
    with shown({}) as page:
        many, few = planned(snapshot_of("web", "api")), planned(snapshot_of("db"))
        page.listen(many)
        becomes(lambda: page._page._plan is many.plan)
        assert (drawn, requested) == ([], [])
        with closing(Reader(page)) as reader:
            reader.until(lambda: list(reader.lanes) == ["demo/shop/api", "demo/shop/web"])
        becomes(lambda: not page._page._feed.is_read)
        page.listen(few)
        becomes(lambda: page._page._plan is few.plan)
        assert len(drawn) == 2


def test_reopened_page_shows_changes_since_it_was_closed(requested: list[Plan]) -> None:
    """Also right after the last reader left, while its figures are still waited for."""
    with shown({}) as page:
        page.listen(planned(snapshot_of("web")))
        with closing(Reader(page)) as reader:
            reader.until(lambda: reader.lanes)
        becomes(lambda: requested and not page._page._feed.is_read)
        more = planned(snapshot_of("web", "api"))
        page.listen(more)
        becomes(lambda: page._page._plan is more.plan)
        with closing(Reader(page)) as retry:
            retry.until(lambda: len(retry.lanes) == 2)


def test_a_taken_port_is_reported_in_a_sentence() -> None:
    """Before anything begins."""
    with shown({}) as page, pytest.raises(HttpServerError, match=r"can't be listened on \(Address already in use\)"):
        PageReporter(page.url.split("/")[2], "dev", dict, lambda: Pulse(0.0))
