"""`locallb view`: the terminal view of a stack, whatever keeps it in sync.

It reads what `status` reads, again and again: the plan of the sources as they were read last, what proxies answer and
count, and what a running `watch` publishes. It changes nothing by itself, and needs no `watch`.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.commands.scripting import curl_terms, planned_ports
from locallb.cli.commands.status import published, show_in_browser, why_none
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused, sentence
from locallb.cli.service_output import Parts, PortLink, details, links
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.traffic import LatestLines, Plans
from locallb.cli.view.listing import Card, Rate, Scene, cards, detail_parts, rates
from locallb.cli.view.overview import NOTHING_YET, pool_line, source_line, watched
from locallb.cli.watching.board import Board, View
from locallb.cli.watching.log import LogRecord, Narrator, clock
from locallb.cli.watching.program_runs import command
from locallb.cli.watching.reporting import EventSink, Lines
from locallb.model.identities import ObjectKey
from locallb.model.texts import counted, printable
from locallb.observe import inspect
from locallb.planning.planned import Plan
from locallb.planning.service_rows import State
from locallb.programs import in_foreground
from locallb.report.changes import PoolRoom, rooms_of
from locallb.runtimes.single_instance import holder
from locallb.sources.snapshot import SnapshotResult
from locallb.threads import SupervisedThread, Task
from locallb.traffic.figures import TrafficRow, since
from locallb.traffic.reading import traffic

if TYPE_CHECKING:
    from locallb.cli.view.app import ViewApp

PACE, SHARE = 1.0, 4
"""Seconds between two readings at least; one that took long is followed by so many times as long without one."""
STALE = 5.0
"""Seconds with one plan while the state is unchanged."""
RETAINED = 200
"""Records of what happened that are kept."""
WATCH_PACE = 0.5
"""Seconds between two scenes of the `watch` in this process, which has better things to do."""
WATCH_BEAT, WATCH_ANSWER, WATCH_SHARE = 3.0, 0.5, 19
"""Seconds between two readings of its traffic at least, those that a proxy has to answer, and the share as above."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def view(session: Session, args: Arguments, out: Out) -> int:
    """Show the view until it is closed."""
    if args.json or not (out.redraws and os.isatty(0) and os.isatty(2)):  # Textual draws on standard error
        raise Refused("the view needs a terminal; `locallb status --watch` prints what changes, also as --json")
    from locallb.cli.view.app import ViewApp, handlers_restored  # noqa: PLC0415 - loads Textual

    session.load_settings()  # a mistake in them is reported before anything is drawn
    begin = command(session.project.root if args.named else None, session.stack)
    app = ViewApp(Scene(session.stack), StackActions(begin, out.render))
    readings = Readings(session)
    thread = SupervisedThread(
        Task.TELLER,
        "view",
        lambda: _follow(readings, app, thread),
        failed=lambda sentence: app.offer(replace(app.scene, warnings=(sentence,))),
    )
    with _closed_by_signals(app.stop), handlers_restored():
        thread.start()
        app.run()
    thread.stop()
    if app.fault:
        raise app.fault
    out.line(f"{farewell(app.scene, 'Closed the view')}.")
    return Exit.OK


def _follow(readings: Readings, app: ViewApp, thread: SupervisedThread) -> None:
    while not thread.stopped.is_set():
        began = time.monotonic()
        app.offer(readings.scene())
        thread.stopped.wait(max(PACE, SHARE * (time.monotonic() - began)))


@contextmanager
def _closed_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Close the view where the process is to end, so that the terminal is left as it was; at once if that is gone."""

    def close(_number: int, _frame: FrameType | None) -> None:
        if not os.isatty(0):
            os._exit(Exit.OK)
        stop()

    before = {number: signal.signal(number, close) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _await_enter() -> None:
    """Ask for Enter, and wait for it or Ctrl-C; a signal that closes the view ends the wait as well."""
    closing = {number: signal.getsignal(number) for number in _ENDINGS}

    def end(number: int, frame: FrameType | None) -> None:
        close = closing[signal.Signals(number)]
        if number != signal.SIGINT and callable(close):
            close(number, frame)
        raise KeyboardInterrupt

    try:
        for number in _ENDINGS:
            signal.signal(number, end)
        sys.stdout.write("\nEnter goes back to the view. ")
        sys.stdout.flush()
        sys.stdin.readline()
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in closing.items():
            signal.signal(number, handler)


def farewell(scene: Scene, done: str) -> str:
    """Return what was done, and what goes on afterwards."""
    serving = sum(card.view.row.state is State.SERVING for card in scene.cards)
    going_on = f"; {counted(serving, 'Service')} {'goes' if serving == 1 else 'go'} on serving" if serving else ""
    return f"{done}{going_on}. `locallb status` shows what is there"


class WatchView:
    """The view of the `watch` in this process: its reporter gives the news, and `run` shows them on the main thread.

    Where the view breaks off by a mistake of ours, the watch goes on, and reports `lines` instead.
    """

    def __init__(self, stack: str, actions: StackActions, lines: Callable[[], EventSink]) -> None:
        self._scene = Scene(stack)
        self._actions = actions
        self._lines = lines
        self._instead: EventSink | None = None
        self._app: ViewApp | None = None
        self._records: deque[LogRecord] = deque(maxlen=RETAINED)
        self._traffic: tuple[TrafficRow, ...] = ()
        self._rates: Mapping[ObjectKey, Rate] = {}
        self._counted = -math.inf
        self._next_count = -math.inf

    @property
    def pace(self) -> float:
        """Seconds between two scenes at least; the end of the watch doesn't wait for them once it is closed."""
        return WATCH_PACE if self._app else Lines.pace

    def open(self) -> None:
        """Begin: `run` does."""

    def show(self, records: Sequence[LogRecord], board: Board, views: Sequence[View]) -> None:
        if self._instead:
            self._instead.show(records, board, views)
            return
        self._records.extend(records)
        if self._app:
            self._count(board.planned.plan if board.planned else Plan())
        self._scene = watched(self._scene, board, views, self._records, self._rates)
        if app := self._app:
            app.offer(self._scene)

    def close(self) -> None:
        """End: `run` has."""

    def run(self, begun: Callable[[ViewApp], object]) -> BaseException | None:
        """Show the view until it is closed; return what broke it off."""
        from locallb.cli.view.app import ViewApp, handlers_restored  # noqa: PLC0415 - loads Textual

        self._app = app = ViewApp(self._scene, self._actions, begun)
        app.offer(self._scene)
        try:
            with handlers_restored():
                app.run()
        except Exception as error:  # noqa: BLE001 - the loop goes on whatever becomes of the view
            app.fault = app.fault or error
        self._app = None
        self._actions.release()
        if app.fault:
            self._instead = self._lines()
        return app.fault

    def stop(self) -> None:
        """Close the view, from any thread."""
        if app := self._app:
            app.stop()

    @property
    def farewell(self) -> str:
        """The text that is printed once the terminal is restored, for the user who stopped the watch."""
        return (
            f"{farewell(self._scene, 'Stopped watching')}, `locallb watch` goes on, `locallb destroy` removes it all."
        )

    def _count(self, plan: Plan) -> None:
        """Count what flows, now and then."""
        now = time.monotonic()
        if now < self._next_count:
            return
        rows = traffic(plan, WATCH_ANSWER)
        self._rates = rates(since(rows, self._traffic), max(PACE, now - self._counted)) if self._traffic else {}
        self._traffic, self._counted = rows, now
        self._next_count = now + max(WATCH_BEAT, WATCH_SHARE * (time.monotonic() - now))


class Readings:
    """What the view shows, read again each time; for one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plans = Plans(session, STALE)
        self._narrator = Narrator()
        self._records: deque[LogRecord] = deque(maxlen=RETAINED)
        self._traffic: tuple[TrafficRow, ...] = ()
        self._counted = 0.0
        self._settings = session.settings
        self._rooms: tuple[PoolRoom, ...] = ()
        self._last = Scene(session.stack)

    def scene(self) -> Scene:
        """Read everything. What can't be read now stays as it was, and a warning names it."""
        session = Session(self._session.project, self._session.stack)
        try:
            reading, plan = self._plans.now()
            self._last = self._read(session, reading, plan)
        except UNPLANNED as error:
            return replace(self._last, rates={}, warnings=(f"can't be read now: {sentence(error)}",))
        return self._last

    def _read(self, session: Session, reading: SnapshotResult, plan: Plan) -> Scene:
        found, table = published(session), inspect(plan)
        views = [View(row) for row in (found.rows(table) if found else table)]
        before, since_when = self._traffic, self._counted
        self._traffic, self._counted = traffic(plan, PACE), time.monotonic()
        news = list(self._narrator.services(time.time(), views))
        if before or self._last.cards:  # at first everything would be news
            self._records.extend(news)
        keys = {row.key for row in table}
        failures = found.sentences(lambda since: f"since {clock(since)[:-4]}", keys) if found else ()
        if plan is not self._last.plan:
            self._settings = session.settings
            self._rooms = rooms_of(plan, reading.snapshot, self._settings)
        overview = (
            source_line(self._settings, None if reading.complaints else {}),
            pool_line(self._rooms, len(plan.proxies), None),
        )
        return Scene(
            session.stack,
            cards(views, self._last.cards),
            plan,
            rates(since(self._traffic, before), max(PACE, self._counted - since_when)),
            _state(session),
            (*reading.complaints, *failures),
            plan.left_out or (NOTHING_YET,),
            tuple(self._records),
            {each.key: each for each in found.failures} if found else {},
            self._rooms,
            overview,
        )


def _state(session: Session) -> str:
    """Return what keeps the stack in sync, and when it was checked."""
    checked = f"checked {clock(time.time())[:-4]}"
    if session.election():
        return checked
    process = holder(session.watch_lock)
    return f"{checked}, in sync by `watch` (pid {process.pid})" if process else f"{checked}, no `watch` runs"


class StackActions(Struct, frozen=True):
    """What keys do: the same as commands, by their functions or by running them."""

    begin: tuple[str, ...]
    """The beginning of a command for the stack."""
    render: Callable[[str], str] = str
    """Completes commands in sentences."""
    execute: Callable[[Sequence[str]], int] = in_foreground
    requests: LatestLines = field(default_factory=LatestLines)

    def detail(self, scene: Scene, card: Card) -> Iterable[Parts]:
        """Return all about it, a line for each thing."""
        row = card.view.row
        (detail,) = details([row], scene.plan)
        found = [("url", link.url) for link in _links(scene, card)]
        with suppress(Refused):  # it serves no HTTP, or not yet
            found += [("curl", text) for text in self.curls(scene, card)]
        return detail_parts(detail, scene, card.view, found, self.requests.of(row.key, scene.plan))

    def release(self) -> None:
        """Let other programs read access logs."""
        self.requests.end()

    def urls(self, scene: Scene, card: Card) -> Sequence[str]:
        """Return where it is found."""
        return [link.url for link in self._links(scene, card)]

    def curls(self, scene: Scene, card: Card) -> Sequence[str]:
        """Return a command for a request to each port, as a shell reads it."""
        row, made, why = card.view.row, dict[str, None](), Refused("")
        for link in self._links(scene, card):
            try:
                terms = curl_terms(row, planned_ports(scene.plan, row), "", link.port.port, "")
            except Refused as error:
                why = error
            else:
                made[shlex.join(terms)] = None
        if not made:
            raise why
        return [*made]

    def open(self, scene: Scene, card: Card) -> str:
        """Open it in the user's browser; return what to say of that."""
        (link, *_) = self._links(scene, card)
        return show_in_browser(link) or f"opened {link.url}"

    def _links(self, scene: Scene, card: Card) -> Sequence[PortLink]:
        if found := _links(scene, card):
            return found
        raise Refused(why_none([card.view.row], 0))

    def run(self, terms: Sequence[str]) -> None:
        """Run a command in this terminal, and wait until the user has read its output."""
        sys.stdout.write(f"\n$ locallb {printable(shlex.join(terms))}\n")
        sys.stdout.flush()
        self.execute((*self.begin, *terms))
        _await_enter()


def _links(scene: Scene, card: Card) -> Sequence[PortLink]:
    row = card.view.row
    return links(row, tuple(planned_ports(scene.plan, row).values()))
