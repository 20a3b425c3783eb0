"""The live page: static files, the documentation, a stream of updates for each reader, and access control.

The server runs in threads of its own, takes the events of the watch loop, and queries traffic figures only while there
are readers. It has its own event reporter with its own relay, so that a blocked terminal doesn't block the page.

Not here: what is drawn of a load balancer (`lanes`), its log (`page_logs`), the readings (`traffic.reading`), and HTTP
itself (`http_server`).
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from threading import Condition, Lock
from urllib.parse import parse_qs

from msgspec import Struct

from locallb import __version__
from locallb.cli.service_output import help_of
from locallb.cli.watching.board import Board, Relay, View
from locallb.cli.watching.http_server import Host, HttpRequest, HttpServer, Page, Pages, host_of
from locallb.cli.watching.lanes import (
    CHANGES,
    Curl,
    Document,
    LaneSubject,
    RowDifference,
    differences,
    lane,
    lane_names,
    rates,
    subjects,
)
from locallb.cli.watching.log import LogRecord
from locallb.cli.watching.page_logs import PageLogs
from locallb.cli.watching.reporting import EventReporter
from locallb.cli.watching.supervision import stuck
from locallb.config.values import loopback_place
from locallb.patterns import pattern
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation
from locallb.report.changes import PoolRoom, rooms_of
from locallb.report.wording import LONGEST_NAME, html_text, visible
from locallb.storage.paths import shipped
from locallb.threads import SupervisedThread, Task
from locallb.traffic.figures import TrafficRow, since
from locallb.traffic.reading import traffic
from locallb.watch.events import LoopEvent, Planned, Pulse

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response: no content of other origins, no framing, no caching."""


def refusal(request: HttpRequest) -> Page | None:
    """Return why a request isn't answered; None where it is.

    Only this host's own browser and programs may read the page. Any site that a user visits can make the browser send
    requests to the loopback: a name that leads here (DNS rebinding) shows in Host, another origin in Origin or
    Sec-Fetch-Site; both are refused.
    """
    if request.method not in {"GET", "HEAD"}:
        sentence, allowed = b"this page can only be read: use GET or HEAD\n", {**HEADERS, "Allow": "GET, HEAD"}
        return Page(sentence, status=HTTPStatus.METHOD_NOT_ALLOWED, headers=allowed)
    host = host_of(request)
    if host is None or not _is_of_loopback(host):
        return _forbidden("the page is there under a loopback address or localhost only, not under another name")
    if any([f"http://{name}" for name in request.values("host")] != [origin] for origin in request.values("origin")):
        return _forbidden("the page is for itself only, not for pages of another origin")
    if any(site not in {"same-origin", "none"} for site in request.values("sec-fetch-site")):
        return _forbidden("another page asked for this one: type its address into the browser instead")
    return None


def _is_of_loopback(host: Host) -> bool:
    """Return whether it is this host's loopback; which port doesn't matter, it may be a forwarded one."""
    return host.address.is_loopback if host.address else host.name == "localhost"


def _forbidden(sentence: str) -> Page:
    return Page(f"{sentence}\n".encode(), status=HTTPStatus.FORBIDDEN, headers=HEADERS)


_KINDS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "lane.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
}
_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#0b5cb8"/>
<path d="M6 16h7c4 0 4-7 8-7h5M13 16h13M13 16c4 0 4 7 8 7h5" fill="none" stroke="#fff" stroke-width="2.5"
stroke-linecap="round"/></svg>"""


def pages_document(stack: str) -> Pages:
    """Return the static pages, without the streams, and so without any data of clusters."""
    page = Page(_shell(stack).encode(), "text/html; charset=utf-8", headers=HEADERS)
    icon = Page(_ICON.encode(), "image/svg+xml", headers=HEADERS)
    assets = {f"/{name}": _page(_asset(name, kind)) for name, kind in _KINDS.items()}
    root = shipped("docs")
    about = {f"/docs/{path.relative_to(root)}": partial(_documentation, path) for path in sorted(root.rglob("*.md"))}
    return {"/": _page(page), **assets, "/icon.svg": _page(icon), **about}


def _page(page: Page) -> Callable[[HttpRequest], Page]:
    return lambda _request: page


def _documentation(path: Path, _request: HttpRequest) -> Page:
    """Render a page of the documentation, with an anchor for each heading."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only who reads it

    parser = MarkdownIt("commonmark").enable("table")
    tokens = [token for token in parser.parse(path.read_text(encoding="utf-8")) if token.type != "html_block"]
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _UNLINKED.sub("", inside.content.lower()).replace(" ", "-"))
        inside.children = [child for child in inside.children or () if child.type not in {"image", "html_inline"}]
    body = parser.renderer.render(tokens, parser.options, {})
    title = next((inside.content for token, inside in pairwise(tokens) if token.type == "heading_open"), path.stem)
    shell = _text_of("page_docs.html").replace("TITLE", html_text(title)).replace("BODY", body)
    return Page(shell.encode(), "text/html; charset=utf-8", headers=HEADERS)


_UNLINKED = pattern(r"[^\w\- ]")


def _asset(name: str, kind: str) -> Page:
    return Page(files("locallb.cli.watching").joinpath(name).read_bytes(), kind, headers=HEADERS)


def _shell(stack: str) -> str:
    return _text_of("page.html").replace("STACK", html_text(stack))


def _text_of(name: str) -> str:
    return files("locallb.cli.watching").joinpath(name).read_text(encoding="utf-8")


SILENCE = 4.0
"""Seconds after which a reader gets a sign of life."""
NOTHING = "[]"
"""The rates of a lane where nothing flows."""
LOG = 100
"""Lines of what happened that are kept."""
REMOVED = 2000
"""Maximum removed lanes that are remembered; a reader with an older state gets all lanes instead."""


class PagePart(Struct, frozen=True):
    """A JSON text, and which change brought it."""

    number: int
    text: str


class PageFeed:
    """The current content of the page, and the pending updates of each reader. Methods may be called from any thread.

    Texts are JSON in ASCII. Every part has the number of its last change; a reader that has everything up to a number
    gets the later parts, however slow it is. So nothing waits for a slow reader, and each has at most one message
    pending.
    """

    def __init__(self, pulse: Callable[[], str]) -> None:
        self._pulse = pulse
        """Gives the JSON text of how the loop is at the moment."""
        self._changed = Condition()
        self._number = 0
        self._head = PagePart(0, "{}")
        self._lanes: dict[str, PagePart] = {}
        self._rates: dict[str, PagePart] = {}
        self._log: deque[PagePart] = deque(maxlen=LOG)
        self._removed: dict[str, int] = {}
        self._forgotten = 0
        """Number up to which removed lanes are forgotten."""
        self._readers = 0
        self._drawn = False
        self._ended = False

    @property
    def is_read(self) -> bool:
        """Whether the page has readers."""
        return self._readers > 0

    def wait_for_readers(self) -> bool:
        """Wait for a reader or the end; return False after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_read or self._ended)
            return not self._ended

    def end(self) -> None:
        """Mark the end, and wake the thread that waits for readers."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def draw(self, head: str, lanes: Mapping[str, str]) -> None:
        """Set the current content of every lane."""
        with self._changed:
            self._number += 1
            self._drawn = True
            if head != self._head.text:
                self._head = PagePart(self._number, head)
            self._put(self._lanes, lanes)
            for name in self._lanes.keys() - lanes.keys():
                del self._lanes[name]
                self._removed[name] = self._number
            self._put(self._rates, dict.fromkeys(self._rates.keys() - lanes.keys(), NOTHING))
            self._forget(lanes)

    def flow(self, rates: Mapping[str, str]) -> None:
        """Take what flows now, of every lane where something does."""
        with self._changed:
            self._number += 1
            flowing = {name: text for name, text in rates.items() if name in self._lanes}
            self._put(self._rates, {**dict.fromkeys(self._rates, NOTHING), **flowing})

    def log(self, lines: Iterable[str]) -> None:
        with self._changed:
            self._number += 1
            self._log.extend(PagePart(self._number, line) for line in lines)

    def open(self) -> PageReader:
        with self._changed:
            self._readers += 1
            self._changed.notify_all()
            return PageReader(self)

    def close(self) -> None:
        """Note that one looks no more."""
        with self._changed:
            self._readers -= 1

    def since(self, number: int) -> tuple[int, str]:
        """Return the news as text, empty if there are none, and the number of the latest change in it."""
        with self._changed:
            if not self._drawn or number == self._number:
                return number, ""
            whole = number < self._forgotten or not number
            existing = 0 if whole else number
            parts = {
                "whole": "true" if whole else "false",
                "head": self._head.text if self._head.number > existing else "null",
                "lanes": _object(self._lanes, existing),
                "gone": _list(json.dumps(name) for name, at in self._removed.items() if at > existing and not whole),
                "rates": _object(self._rates, existing),
                "log": _list(part.text for part in self._log if part.number > existing),
                "pulse": self._pulse(),
            }
            return self._number, _json(parts)

    def beat(self) -> str:
        """Return a message that only keeps the connection alive."""
        return _json({"pulse": self._pulse()})

    def _put(self, parts: dict[str, PagePart], texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if name not in parts or parts[name].text != text:
                parts[name] = PagePart(self._number, text)

    def _forget(self, lanes: Mapping[str, str]) -> None:
        for name in [name for name in self._removed if name in lanes]:
            del self._removed[name]
        while len(self._removed) > REMOVED:
            name = next(iter(self._removed))
            self._forgotten = self._removed.pop(name)
            self._rates.pop(name, None)


class PageReader:
    """One reader of the page: a stream of server-sent events."""

    def __init__(self, feed: PageFeed) -> None:
        self._feed = feed
        self._number = 0
        self._reported = 0.0

    def read(self) -> bytes:
        """Return what is new; after a while without news, a keep-alive message."""
        now = time.monotonic()
        self._number, text = self._feed.since(self._number)
        if not text and now - self._reported >= SILENCE:
            text = self._feed.beat()
        if not text:
            return b""
        self._reported = now
        return f"data: {text}\n\n".encode("ascii")

    def close(self) -> None:
        self._feed.close()


def _json(parts: Mapping[str, str]) -> str:
    members = ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items())
    return f"{{{members}}}"


def _object(parts: Mapping[str, PagePart], existing: int) -> str:
    return _json({name: part.text for name, part in parts.items() if part.number > existing})


def _list(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


QUICK, IDLE, SLOWEST = 0.2, 1.0, 2.0
"""Seconds between two drawings at least: while a page is open, while none is, and of a page that takes long to draw."""
INSPECT = 1.0
"""Seconds between two looks at figures at least."""
SHARE = 4
"""A drawing, or a look, that took long is followed by so many times as long without one."""
_EMPTY = Plan()


class LivePage:
    """Listens from the beginning, answers once opened, until closed. Raises HttpServerError."""

    def __init__(self, place: str, stack: str, stuck: Callable[[], str], curl: Curl | None = None) -> None:
        self._stack = stack
        self._curl = curl
        self._feed = PageFeed(lambda: json.dumps({"at": round(time.time(), 3), "stuck": visible(stuck())}))
        pages = {**pages_document(stack), "/events": lambda _request: self._events(), "/logs": self._log_of}
        self._server = HttpServer(*loopback_place(place), pages, refusal, "page")
        self._logs = PageLogs(lambda: self._plan, self._has_logs, self._server.wake)
        self._lock = Lock()
        self._scene: tuple[Board, Sequence[View]] = Board(), ()
        self._plan = _EMPTY
        self._is_drawn = False
        """Whether the current scene was drawn."""
        self._drawn: dict[str, tuple[LaneSubject, str]] = {}
        """What was drawn last, and of what: most stays as it is."""
        self._took = 0.0
        """Seconds that the last drawing took."""
        self._by_lane: dict[str, View] = {}
        self._changes: dict[str, tuple[RowDifference, ...]] = {}
        """What changed of each that is there, the last few."""
        self._rooms: tuple[Planned | None, tuple[PoolRoom, ...]] = None, ()
        """The use of pools, and of which plan."""
        self._thread = SupervisedThread(Task.PAGE, "page's figures", self._reread)

    @property
    def url(self) -> str:
        return f"http://{self._server.place}/"

    @property
    def is_read(self) -> bool:
        """Whether the page has readers."""
        return self._feed.is_read

    @property
    def pace(self) -> float:
        """Seconds between two updates of the page."""
        return min(SLOWEST, max(QUICK, SHARE * self._took)) if self._feed.is_read else IDLE

    def open(self) -> None:
        self._server.start()
        self._thread.start()
        self._logs.start()

    def show(self, records: Sequence[LogRecord], board: Board, views: Sequence[View]) -> None:
        """Take what is new; draw it if there are readers."""
        with self._lock:
            self._scene = board, views
            self._plan = board.planned.plan if board.planned else _EMPTY
            self._feed.log(map(_line, records))
            self._note_changes(views)
            self._is_drawn = False
            if self._feed.is_read:
                self._draw()
        self._server.wake()

    def close(self) -> None:
        """Stop answering, after readers got the remaining news."""
        self._thread.stop()
        self._feed.end()
        self._logs.stop()
        self._server.stop()

    def _events(self) -> Page:
        return Page(b"retry: 1000\n\n", "text/event-stream", headers=HEADERS, opens=self._follow)

    def _log_of(self, request: HttpRequest) -> Page:
        service = next(iter(parse_qs(request.query).get("service", [])), "")
        opens = partial(self._logs.open, service)
        return Page(b"retry: 3000\n\n", "text/event-stream", headers=HEADERS, opens=opens, is_private=True)

    def _has_logs(self) -> bool:
        planned = self._scene[0].planned
        return bool(planned and planned.settings and planned.settings.access_logs)

    def _note_changes(self, views: Sequence[View]) -> None:
        """Remember what became another one of each load balancer."""
        by_lane, at = lane_names(views), time.time()
        for name, view in by_lane.items():
            before = self._by_lane.get(name)
            if before is not None and before is not view and (new := differences(before.row, view.row, at)):
                self._changes[name] = (*self._changes.get(name, ()), *new)[-CHANGES:]
        for name in self._changes.keys() - by_lane.keys():
            del self._changes[name]
        self._by_lane = by_lane

    def _follow(self) -> PageReader:
        """Add a reader, and send it the current content."""
        with self._lock:
            if not self._is_drawn:
                self._draw()
            return self._feed.open()

    def _draw(self) -> None:
        """Draw all lanes; unchanged ones are reused."""
        board, views = self._scene
        began = time.monotonic()
        self._drawn = {
            name: before
            if (before := self._drawn.get(name)) and before[0] == subject
            else (subject, self._text(subject))
            for name, subject in subjects(views, self._plan, self._changes).items()
        }
        head = json.dumps({**_head(board, self._stack), "pools": self._pools(board)})
        self._feed.draw(head, {name: text for name, (_, text) in self._drawn.items()})
        self._is_drawn = True
        self._took = time.monotonic() - began

    def _text(self, subject: LaneSubject) -> str:
        return json.dumps(lane(subject, self._curl))

    def _pools(self, board: Board) -> list[Document]:
        planned = board.planned
        if planned and planned.snapshot and planned.settings and self._rooms[0] is not planned:
            self._rooms = planned, rooms_of(planned.plan, planned.snapshot, planned.settings)
        return [
            {
                "pool": visible(room.pool, LONGEST_NAME),
                "family": str(room.family),
                "used": room.used,
                "size": room.size,
                "free": room.free,
            }
            for room in self._rooms[1][:PARTS]
        ]

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


def _line(record: LogRecord) -> str:
    fields = record.fields
    about = {"service": visible(str(fields["service"]))} if "service" in fields else {}
    more = {**about, **help_of(str(fields.get("reason", "")))}
    line = {"at": round(record.at, 3), "level": str(record.level), "text": visible(record.sentence)}
    return json.dumps({**line, **more})


PARTS = 20
"""Sources and pools that the page names."""


def _head(board: Board, stack: str) -> Mapping[str, object]:
    """Return how the stack as a whole is."""
    planned = board.planned
    settings = planned.settings if planned else None
    names = [visible(source.cluster, LONGEST_NAME) for source in settings.sources] if settings else []
    return {
        "stack": visible(stack),
        "version": __version__,
        "pid": os.getpid(),
        "sources": names[:PARTS],
        "moreSources": len(names[PARTS:]),
        "proxies": [len(planned.plan.proxies) if planned else 0, sum(map(bool, board.observed.values()))],
        "planned": round(planned.seconds, 4) if planned else 0,
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
        "notices": [visible(notice) for notice in planned.plan.left_out[:3]] if planned else [],
        "begun": planned is not None,
        "ended": board.stopped,
    }


_LAST_OUTPUT = 0.5
"""Seconds in which the page can draw the final event, once it is its time to draw."""


class PageReporter:
    """Listens from the beginning. Raises HttpServerError. `listen` and `poke` may be called from any thread."""

    def __init__(
        self,
        place: str,
        stack: str,
        observed: Callable[[], Mapping[str, Observation | None]],
        pulse: Callable[[], Pulse],
        curl: Curl | None = None,
    ) -> None:
        self._page = LivePage(place, stack, lambda: stuck(pulse(), time.monotonic()), curl)
        self._relay = Relay()
        self._teller = EventReporter(self._relay, self._page, observed, lambda _error: None)
        self.url = self._page.url
        """Where it is."""
        self.listen: Callable[[LoopEvent], None] = self._relay.listen
        self.poke = self._relay.poke

    def start(self, *first: LogRecord) -> None:
        self._teller.start(*first)

    def close(self) -> None:
        """Tell readers that it ends, and end."""
        self._teller.join(self._page.pace + _LAST_OUTPUT if self._page.is_read else 0.0)
        self._teller.close()
