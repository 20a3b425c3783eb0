"""The live page: static files, a stream of updates for each reader, access control, and what is drawn.

A lane leads from the addresses of a Service, Gateway or Ingress through the proxy to backends. It is made from the plan
and observations, as plain values, and the page's script draws it as text. Rates are the difference of two readings.

The server runs in threads of its own, takes the events of the watch loop, and queries traffic figures only while there
are readers. It has its own event reporter with its own relay, so that a blocked terminal doesn't block the page.

Not here: the readings (`traffic.reading`), and HTTP itself (`cli.watching.http_server`).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from threading import Condition, Lock

from msgspec import Struct

from locallb.cli.watching.board import Board, Relay, View
from locallb.cli.watching.http_server import Host, HttpRequest, HttpServer, Page, Pages, host_of
from locallb.cli.watching.log import LogRecord
from locallb.cli.watching.reporting import EventReporter
from locallb.cli.watching.supervision import stuck
from locallb.config.values import loopback_place
from locallb.model.http_serving import ANY, HttpListener, HttpRoutes
from locallb.model.serving import Upstream
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, Plan, PlannedPort
from locallb.planning.service_rows import Observation, PortRow, Row
from locallb.report.wording import LONGEST_NAME, html_text, visible
from locallb.threads import SupervisedThread, Task
from locallb.traffic.figures import Counts, Details, TrafficRow, since, upstreams_of
from locallb.traffic.reading import traffic
from locallb.watch.events import LoopEvent, Pulse

Rates = Mapping[str, object]


def rates(rows: Iterable[TrafficRow], seconds: float) -> dict[str, list[Rates]]:
    """Return what flowed in so many seconds, by the key of the Service; nothing of those where nothing did."""
    by_service: dict[str, list[Rates]] = {}
    for row in rows:
        if row.answers and _is_alive(row.figures.total, row.figures.details):
            by_service.setdefault(str(row.key), []).append(_rates(row, seconds))
    return by_service


def _is_alive(total: Counts, details: Details | None) -> bool:
    return total != Counts() or (details is not None and bool(details.received or details.sent))


def _rates(row: TrafficRow, seconds: float) -> Rates:
    total, details = row.figures.total, row.figures.details
    counts = {"connections": total.connections, "refused": total.failed_connections}
    if row.is_http:
        counts |= {"requests": total.requests, "failed": total.failed_requests}
    if details:
        counts |= {"in": details.received, "out": details.sent}
    each_second = {name: round(count / seconds, 1) for name, count in counts.items()}
    latencies = _latencies(details) if details else {}
    return {"ports": list(row.ports), "open": total.active, **each_second, **latencies}


def _latencies(details: Details) -> Mapping[str, float]:
    times = {f"p{percent}": details.latencies.percentile(percent) for percent in (50, 99)}
    return {name: round(time, 2) for name, time in times.items() if time is not None}


BACKENDS, HOSTS, ROUTES, NOTICES = 50, 50, 100, 50
"""How many of each a lane has at most; the rest is counted."""
Document = Mapping[str, object]


class LaneSubject(Struct, frozen=True):
    """All that a lane is made of."""

    view: View
    placement: Placement | None = None
    """None for what gets no addresses."""
    upstreams: Sequence[Upstream] = ()
    """Where the ports of the placement lead."""


def subjects(views: Iterable[View], plan: Plan) -> dict[str, LaneSubject]:
    """Return what lanes are made of, by a name for each. Of objects with the same key each has a lane."""
    placed = {
        placement.key: (placement, behind)
        for placement, behind in zip(plan.placements, upstreams_of(plan), strict=True)
    }
    by_name: dict[str, LaneSubject] = {}
    for view in views:
        name = str(view.row.key)
        subject = LaneSubject(view, *placed.get(view.row.key, (None, ())))
        by_name[name if name not in by_name else f"{name} {view.row.reason}"] = subject
    return by_name


def lane(subject: LaneSubject) -> Document:
    view, placement = subject.view, subject.placement
    row, where = view.row, str(view.row.key).rpartition("/")[0]
    return {
        "name": visible(row.key.name, LONGEST_NAME),
        "place": visible(where, LONGEST_NAME),
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        "addresses": [str(address) for address in row.addresses],
        "hosts": [visible(host, LONGEST_NAME) for host in _hosts(row, placement)],
        "ports": _ports(row.ports, placement, subject.upstreams),
        "proxy": visible(placement.proxy, LONGEST_NAME) if placement else "",
        "routes": [visible(route) for route in placement.routes[:ROUTES]] if placement else [],
        "notices": [[visible(notice.reason), visible(notice.message)] for notice in _notices(row, placement)],
        "changed": round(view.change.at, 3) if view.change else 0,
        "took": round(view.change.seconds, 3) if view.change else 0,
    }


def _notices(row: Row, placement: Placement | None) -> list[Notice]:
    """Return the notices of a Service in addition to its state, each once."""
    return list(dict.fromkeys((*(placement.notices if placement else ()), *row.notices)))[:NOTICES]


def _hosts(row: Row, placement: Placement | None) -> list[str]:
    """Return its host names: those below `localhost` first, with a port, then the stack's, then its listeners'."""
    served = (name for port in placement.ports for name in _hostnames(port)) if placement else ()
    return list(dict.fromkeys((*row.local_hosts, *row.names, *served)))[:HOSTS]


def _hostnames(port: PlannedPort) -> Iterator[str]:
    chains = [chain for listener in port.listeners if isinstance(listener, HttpListener) for chain in listener.chains]
    for chain in chains:
        yield from chain.names
        if isinstance(chain.serves, HttpRoutes):
            yield from (name for host in chain.serves.hosts for name in host.domains if name != ANY)


def _ports(rows: Sequence[PortRow], placement: Placement | None, upstreams: Sequence[Upstream]) -> list[Document]:
    planned = {str(port.port): port for port in placement.ports} if placement else {}
    by_name = {upstream.name: upstream for upstream in upstreams}
    placed = ((row, planned.get(str(row.port))) for row in rows)
    return [_port(row, port.backends(by_name) if port else ()) for row, port in placed]


def _port(row: PortRow, backends: Sequence[str]) -> Document:
    return {
        "label": row.port.label,
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        "via": str(row.via or ""),
        "backends": list(backends[:BACKENDS]),
        "more": max(0, len(backends) - BACKENDS),
    }


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
        sentence, allowed = b"the page is only read: there is GET, HEAD\n", {**HEADERS, "Allow": "GET, HEAD"}
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
}
_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#0b5cb8"/>
<path d="M6 16h7c4 0 4-7 8-7h5M13 16h13M13 16c4 0 4 7 8 7h5" fill="none" stroke="#fff" stroke-width="2.5"
stroke-linecap="round"/></svg>"""


def pages_document(stack: str) -> Pages:
    """Return the static pages, without the stream, and so without any data of clusters."""
    page = Page(_shell(stack).encode(), "text/html; charset=utf-8", headers=HEADERS)
    icon = Page(_ICON.encode(), "image/svg+xml", headers=HEADERS)
    assets = {f"/{name}": _page(_asset(name, kind)) for name, kind in _KINDS.items()}
    return {"/": _page(page), **assets, "/icon.svg": _page(icon)}


def _page(page: Page) -> Callable[[str], Page]:
    return lambda _accept: page


def _asset(name: str, kind: str) -> Page:
    return Page(files("locallb.cli.watching").joinpath(name).read_bytes(), kind, headers=HEADERS)


def _shell(stack: str) -> str:
    return (
        files("locallb.cli.watching")
        .joinpath("page.html")
        .read_text(encoding="utf-8")
        .replace("STACK", html_text(stack))
    )


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
        self._feed = PageFeed(lambda: json.dumps({"at": round(time.time(), 3), "stuck": visible(stuck())}))
        pages = {**pages_document(stack), "/events": lambda _accept: self._events()}
        self._server = HttpServer(*loopback_place(place), pages, refusal, "page")
        self._lock = Lock()
        self._scene: tuple[Board, Sequence[View]] = Board(), ()
        self._plan = _EMPTY
        self._is_drawn = False
        """Whether the current scene was drawn."""
        self._drawn: dict[str, tuple[LaneSubject, str]] = {}
        """What was drawn last, and of what: most stays as it is."""
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
        return QUICK if self._feed.is_read else IDLE

    def open(self) -> None:
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

    def _follow(self) -> PageReader:
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


def _text(subject: LaneSubject) -> str:
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


_LAST_OUTPUT = 0.5
"""Seconds in which the page can receive the final event."""


class PageReporter:
    """Listens from the beginning. Raises HttpServerError. `listen` and `poke` may be called from any thread."""

    def __init__(
        self,
        place: str,
        stack: str,
        observed: Callable[[], Mapping[str, Observation | None]],
        pulse: Callable[[], Pulse],
    ) -> None:
        self._page = LivePage(place, stack, lambda: stuck(pulse(), time.monotonic()))
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
        self._teller.join(_LAST_OUTPUT if self._page.is_read else 0.0)
        self._teller.close()
