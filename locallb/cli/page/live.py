"""The live page's server, in threads of its own: takes events, queries figures while there are readers, serves both.

It has an event reporter of its own, so a blocked terminal doesn't block the page. Not here: the content (`lanes`,
`rates`) and the page itself (`document`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from locallb.cli.page import document
from locallb.cli.page.feed import Feed, Reader
from locallb.cli.page.guard import HEADERS, refusal
from locallb.cli.page.lanes import Subject, lane, subjects
from locallb.cli.page.rates import rates
from locallb.cli.watching.board import Board, View
from locallb.cli.watching.http.http_messages import Page
from locallb.cli.watching.http.http_server import HttpServer
from locallb.cli.watching.log.log_record import LogRecord
from locallb.config.loopback_socket import loopback_place
from locallb.planning.planned import Plan
from locallb.report.safe import visible
from locallb.threads.supervised import SupervisedThread, Task
from locallb.traffic.ask import traffic
from locallb.traffic.table import TrafficRow, since

QUICK, IDLE = 0.2, 1.0
"""Seconds between two drawings at least, while a page is open and while none is."""
INSPECT = 1.0
"""Seconds between two looks at figures at least."""
SHARE = 4
"""A look that took long is followed by so many times as long without one."""
_EMPTY = Plan()


class LivePage:
    """Listens from the beginning, answers once opened, until closed. Raises HttpServerError."""

    def __init__(self, place: str, stack: str, stuck: Callable[[], str]) -> None:
        self._stack = stack
        self._feed = Feed(lambda: json.dumps({"at": round(time.time(), 3), "stuck": visible(stuck())}))
        pages = {**document.pages(stack), "/events": lambda _accept: self._events()}
        self._server = HttpServer(*loopback_place(place), pages, refusal, "page")
        self._lock = Lock()
        self._scene: tuple[Board, Sequence[View]] = Board(), ()
        self._plan = _EMPTY
        self._is_drawn = False
        """Whether the current scene was drawn."""
        self._drawn: dict[str, tuple[Subject, str]] = {}
        """What was drawn last, and of what: most stays as it is."""
        self._thread = SupervisedThread(Task.PAGE, "page's figures", self._reread)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self._server.place}/"

    @property
    def is_read(self) -> bool:
        """Whether the page has readers."""
        return self._feed.is_read

    @property
    def pace(self) -> float:
        """Seconds between two updates of the page."""
        return QUICK if self._feed.is_read else IDLE

    def open(self) -> None:
        """Begin to answer."""
        self._server.start()
        self._thread.start()

    def show(self, records: Sequence[LogRecord], board: Board, views: Sequence[View]) -> None:
        """Take what is new; draw it if there are readers."""
        with self._lock:
            self._scene = board, views
            self._plan = board.planned.plan if board.planned else _EMPTY
            self._feed.log(map(_line, records))
            self._is_drawn = False
            if self._feed.is_read:
                self._draw()
        self._server.wake()

    def close(self) -> None:
        """Stop answering, after readers got the remaining news."""
        self._thread.stop()
        self._feed.end()
        self._server.stop()

    def _events(self) -> Page:
        return Page(b"retry: 1000\n\n", "text/event-stream", headers=HEADERS, opens=self._follow)

    def _follow(self) -> Reader:
        """Add a reader, and send it the current content."""
        with self._lock:
            if not self._is_drawn:
                self._draw()
            return self._feed.open()

    def _draw(self) -> None:
        """Draw all lanes; unchanged ones are reused."""
        board, views = self._scene
        self._drawn = {
            name: before if (before := self._drawn.get(name)) and before[0] == subject else (subject, _text(subject))
            for name, subject in subjects(views, self._plan).items()
        }
        head = json.dumps(_head(board, self._stack))
        self._feed.draw(head, {name: text for name, (_, text) in self._drawn.items()})
        self._is_drawn = True

    def _reread(self) -> None:
        """Query figures periodically while there are readers."""
        before: Sequence[TrafficRow] = ()
        requested = 0.0
        while not self._thread.stopped.is_set():
            if not self._feed.is_read:
                before = ()
                if not self._feed.wait_for_readers():
                    break
            began = time.monotonic()
            rows = traffic(self._plan)
            self._report_rates(rates(since(rows, before), max(began - requested, INSPECT)))
            before, requested = rows, began
            self._thread.stopped.wait(max(INSPECT, SHARE * (time.monotonic() - began)))

    def _report_rates(self, flowing: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
        self._feed.flow({name: json.dumps(rows) for name, rows in flowing.items()})
        self._server.wake()


def _text(subject: Subject) -> str:
    return json.dumps(lane(subject))


def _line(record: LogRecord) -> str:
    return json.dumps({"at": round(record.at, 3), "level": str(record.level), "text": visible(record.sentence)})


def _head(board: Board, stack: str) -> Mapping[str, object]:
    """Return how the stack as a whole is."""
    return {
        "stack": visible(stack),
        "converged": round(board.converged, 3),
        "waiting": board.waiting,
        "open": board.open,
        "failure": visible(board.failure),
        "delays": [
            {
                "party": visible(delay.party),
                "since": round(delay.since, 3),
                "waiting": [str(key) for key in delay.waiting],
            }
            for delay in board.delays
        ],
        "stale": {visible(name): round(at, 3) for name, at in sorted(board.stale.items())},
        "notices": [visible(notice) for notice in board.planned.plan.left_out[:3]] if board.planned else [],
        "begun": board.planned is not None,
        "ended": board.stopped,
    }
