"""`locallb watch`: keeps the stack converged until it is stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from locallb import __version__
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, sentence
from locallb.cli.grammar import USUAL_PAGE
from locallb.cli.session import Session
from locallb.cli.watching import supervision
from locallb.cli.watching.board import Relay
from locallb.cli.watching.health import HealthWatch
from locallb.cli.watching.http_server import HttpServer, HttpServerError
from locallb.cli.watching.log import as_json, is_journal, journal, plain, started
from locallb.cli.watching.metrics import Metrics
from locallb.cli.watching.program_runs import ProgramRuns, command
from locallb.cli.watching.published import PublishedFile
from locallb.cli.watching.reporting import EventReporter, Lines
from locallb.cli.watching.supervision import Signals, Supervised, pages, refusal
from locallb.config.settings import Settings, SettingsError
from locallb.config.values import PAGE, loopback_place
from locallb.engine.state.errors import EngineError
from locallb.model.texts import counted
from locallb.observe import ask, observe
from locallb.planning.selection import is_internal, selected
from locallb.planning.service_rows import Row
from locallb.runtimes.single_instance import only_one
from locallb.sources import SourceError
from locallb.threads import THREADS, SupervisedThread, Task
from locallb.watch.events import Broken, Cause, Leading, LoopEvent, Mark, Planned
from locallb.watch.loop import Loop

if TYPE_CHECKING:
    from locallb.cli.commands.view import WatchView
    from locallb.cli.view.app import ViewApp
    from locallb.cli.watching.lanes import Ports
    from locallb.cli.watching.page import PageReporter

_GLANCE = 0.2
"""Seconds between two looks whether the loop has ended, once it is to end."""
BEAT = 3.0
"""Seconds after which the view shows what no event says, such as traffic."""
LAST_OUTPUT = 1.0
"""Seconds that the teller has for what it still has to tell."""


def watch(session: Session, args: Arguments, out: Out) -> int:
    """Watch until a signal ends it; SIGHUP reads everything again."""
    session.settle()
    with session.serving_all(requested=args.all_services):
        if session.settings.leader_election:
            return _watch_when_leading(session, args, out)
        with only_one(session.watch_lock, f"watch of stack {session.stack}"):
            return _Watch(session, args, out).run()


def _watch_when_leading(session: Session, args: Arguments, out: Out) -> int:
    """Watch, and change something only while this process is the leader; other instances may run concurrently."""
    from locallb.cli.leading import taking_part  # noqa: PLC0415 - loads a client of Kubernetes

    made: list[_Watch] = []
    with taking_part(session.settings, session.home, lambda leads: made[0].lead(leads) if made else None) as election:
        made.append(_Watch(session, args, out, election.leads if election else None))
        return made[0].run()


class _Watch:
    """The loop, and all that observes it: each in a thread of its own, the main one waits for signals."""

    def __init__(self, session: Session, args: Arguments, out: Out, leads: Callable[[], bool] | None = None) -> None:
        self._out = out
        self._stack = session.stack
        self._metrics_place = args.metrics or session.settings.metrics
        self._relay = Relay()
        self._health = HealthWatch(ask, self._observed)
        self._page = self._shown(args.page or session.settings.page)
        self._metrics = Metrics(self._health.observed)
        self._supervised = Supervised()
        self._published = PublishedFile(session.published_file)
        self._leads = leads or _alone
        self._loop = Loop(
            session.home,
            session.engine(lambda _event: None),
            session.load_settings,
            session.configuration_file,
            self._listen,
            leads=self._leads,
            observe=observe,
        )
        terms = (*command(session.project.root if args.named else None, session.stack), "up", "--yes", "--json")
        self._program = ProgramRuns(terms, session.project.main, self._listen, self._leads)
        self._view = _view(out, session, args)
        face = self._view or _lines(session.stack, as_documents=args.json)
        self._teller = EventReporter(self._relay, face, self._health.observed, self._is_unattended)
        self._served_meanwhile = ServedMeanwhile(session.written_settings) if args.all_services else None
        self._fault = ""
        self._over = False
        self._thread = SupervisedThread(Task.LOOP, "loop", self._follow)
        THREADS.listen(lambda escape: self._listen(Broken(escape.task, escape.sentence)))

    def _shown(self, place: str) -> PageReporter | None:
        """Listen where the live page is to be, if it is to be anywhere."""
        if not place:
            return None
        from locallb.cli.watching.page import PageReporter  # noqa: PLC0415 - only who wants the page loads it

        show = partial(
            PageReporter,
            stack=self._stack,
            observed=self._health.observed,
            pulse=lambda: self._loop.pulse,
            curl=curl_line,
        )
        if place != USUAL_PAGE:
            return show(place)
        try:
            return show(PAGE)
        except HttpServerError:  # another stack's page, for example
            return show("127.0.0.1:0")

    def run(self) -> int:
        """Run until stopped; give the exit code."""
        place = self._metrics_place
        served_pages = pages(self._metrics, lambda: self._loop.pulse)
        server = HttpServer(*loopback_place(place), served_pages, refusal) if place else None
        signals = Signals(self._stop, self._reload, on_terminal=self._view is not None)
        self._wake = signals.wake
        with signals.caught():
            if server:
                server.start()
            self._health.start()
            places = {"metrics": f"http://{server.place}/metrics"} if server else {}
            places |= {"page": self._page.url} if self._page else {}
            first = started(time.time(), self._stack, __version__, os.getpid(), places)
            self._teller.start(first)
            if self._page:
                self._page.start(first)
                self._published.show(self._page.url)
            self._thread.start()
            self._program.start()
            if not self._leads():
                self._supervised.stand_by()
            if self._view:
                self._show_view(self._view, signals)
            self._wait(signals)
            self._program.join()
        if not self._teller.join(LAST_OUTPUT):  # the reader of our output delays our end
            signals.leave(Exit.FAILED)
        if self._page:
            self._page.close()
        self._teller.close()
        if self._fault:
            self._out.error(self._fault)
        elif self._view:
            self._out.line(self._view.farewell)
        if self._served_meanwhile and (remaining := self._served_meanwhile.remaining()):
            self._out.warning(self._out.render(remaining))
        return Exit.FAILED if self._fault else Exit.OK

    def lead(self, leads: bool) -> None:  # noqa: FBT001 - as an election tells it
        """Begin to serve the stack with a fresh look at everything, or leave that to another process."""
        self._listen(Leading(leads))
        self._loop.mark(Mark(Cause.CONFIGURATION))

    def _listen(self, event: LoopEvent) -> None:
        self._health.listen(event)
        self._metrics.listen(event)
        self._supervised.listen(event)
        self._published.listen(event)
        self._relay.listen(event)
        if self._served_meanwhile:
            self._served_meanwhile.listen(event)
        if self._page:
            self._page.listen(event)

    def _observed(self) -> None:
        self._loop.set_observed(self._health.observed(), self._health.silent())
        self._relay.poke()
        if self._page:
            self._page.poke()

    def _follow(self) -> None:
        """Run the loop; restart it after an unexpected error, unless it was to stop."""
        try:
            self._loop.run()
        finally:
            if self._thread.stopped.is_set():
                self._over = True
                self._wake()

    def _show_view(self, view: WatchView, signals: Signals) -> None:
        """Show the view until it is closed, by its user or because the loop has ended; its user ends the watch by that.

        Signals wake the event loop of the view by the descriptor of which `wait` waits otherwise.
        """

        def woken() -> None:
            signals.clear()
            if self._over:
                signals.leave_lost_terminal()
                view.stop()

        def begun(app: ViewApp) -> None:
            asyncio.get_running_loop().add_reader(signals.news, woken)
            app.set_interval(BEAT, self._beat)
            if self._thread.stopped.is_set():
                app.stop()

        if broken := view.run(begun):
            self._out.error(f"`watch` goes on without its view, which was ended by {sentence(broken)}")
        else:
            signals.stop()

    def _beat(self) -> None:
        """Show what changes without an event, and report to the supervisor that it runs."""
        self._relay.poke()
        if supervision.watchdog_seconds():
            self._supervised.alive(self._loop.pulse)

    def _wait(self, signals: Signals) -> None:
        """Wait for the loop to end; report to the supervisor that it runs."""
        interval = supervision.watchdog_seconds()
        while not self._over and not self._thread.join(0):
            signals.wait(interval / 2 if interval else _GLANCE if self._thread.stopped.is_set() else None)
            if interval:
                self._supervised.alive(self._loop.pulse)

    def _stop(self) -> None:
        self._supervised.stopping()
        self._end()
        if self._view and os.isatty(0):
            self._view.stop()

    def _end(self) -> None:
        self._program.stop()
        self._thread.stop()
        self._loop.stop()

    def _reload(self) -> None:
        self._supervised.reload()
        self._loop.reload()

    def _is_unattended(self, error: OSError) -> None:
        self._fault = f"standard output was closed ({error.strerror}); what serves goes on serving"
        self._end()


class ServedMeanwhile:
    """What is served by `--all-services` only, and so goes with the next update by the configuration."""

    def __init__(self, configuration: Callable[[], Settings]) -> None:
        self._configuration = configuration
        self._last: Planned | None = None

    def listen(self, event: LoopEvent) -> None:
        if isinstance(event, Planned):
            self._last = event

    def remaining(self) -> str:
        """Return a sentence about what goes on being served; empty where that is nothing."""
        if self._last is None or self._last.snapshot is None:
            return ""
        placed = {placement.key for placement in self._last.plan.placements}
        others = [each for each in self._last.snapshot.services if is_internal(each) and each.key in placed]
        try:
            retained = selected(others, self._configuration().services)
        except (EngineError, SettingsError, SourceError):
            retained = ()
        if not (count := len(others) - len(retained)):
            return ""
        return (
            f"{counted(count, 'Service')} of --all-services {'goes' if count == 1 else 'go'} on being served;"
            " the next `locallb up` or `watch` without it takes the addresses away"
        )


def curl_line(row: Row, ports: Ports) -> str:
    """Return a command for a request there, as a shell reads it. Raises Refused."""
    from locallb.cli.commands.scripting import curl_terms  # noqa: PLC0415 - only the page shows it

    return shlex.join(curl_terms(row, ports, "", 0, ""))


def _alone() -> bool:
    return True


def _view(out: Out, session: Session, args: Arguments) -> WatchView | None:
    """Return the view where there is a terminal to see it on and lines aren't asked for; else None."""
    if args.plain or args.json or not (out.redraws and all(map(os.isatty, range(3)))):
        return None
    from locallb.cli.commands.view import StackActions, WatchView  # noqa: PLC0415 - loads the view

    begin = command(session.project.root if args.named else None, session.stack)
    return WatchView(session.stack, StackActions(begin, out.render), partial(_lines, session.stack))


def _lines(stack: str, *, as_documents: bool = False) -> Lines:
    """Make the output that has a line for each event."""
    descriptor = sys.stdout.fileno()
    form = partial(as_json, stack=stack) if as_documents else journal if is_journal(descriptor) else plain
    return Lines(open(descriptor, "wb", buffering=0, closefd=False), form)
