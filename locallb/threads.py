"""Tools for threads: supervised threads, coalesced calls, counters, random delays, and a resolver with a deadline.

Every thread that `watch` keeps is a `SupervisedThread`: an exception that escapes is reported and counted, and the work
begins again with back-off (`model.pacing`). While a thread waits to begin again it has failed: everything that depends
on it is out of date. Other threads end with the work that waits for them: pools, operations of the engine
(`engine.core.executor`), a running program, and the reader of signals.
"""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from queue import Empty, SimpleQueue
from random import SystemRandom
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import Struct

from locallb.model.errors import of_host
from locallb.model.pacing import Backoff, Pace

if TYPE_CHECKING:
    from concurrent.futures import Future

_SYSTEM = SystemRandom()


def jitter() -> float:
    """Return a number from 0 to 1, 1 excluded, so that many waits don't end at once.

    Independent of Python's global generator.
    """
    return _SYSTEM.random()


class Tally:
    """How often each of a few kinds of thing was done since the process began, counted from any thread.

    For tests and metrics: nothing depends on it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}

    def add(self, kind: str) -> None:
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + 1

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


def addresses_of(name: str, seconds: float) -> list[str]:
    """Return the addresses that the system's resolver finds for a name; none if it doesn't answer in time.

    By itself the resolver waits for unavailable servers as long as it likes.
    """
    found: SimpleQueue[list[str]] = SimpleQueue()
    # Not in an executor, whose threads are waited for at the end of the process.
    do_once(Task.RESOLVER, f"resolver {name}", lambda: found.put(_resolved(name)))
    try:
        return found.get(timeout=seconds)
    except Empty:
        return []


def _resolved(name: str) -> list[str]:
    with suppress(OSError, UnicodeError):
        return [str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return []


Question = TypeVar("Question")
Answer = TypeVar("Answer")
QUIET = 0.1
"""Seconds without another request after which expected callers are no longer waited for."""
LONGEST = 0.5
"""Maximum seconds that a call waits for expected callers."""


class _Ticket(Struct, Generic[Question, Answer], eq=False):
    """A question that waits, and how that ended."""

    question: Question
    answer: Answer | None = None
    error: Exception | None = None
    done: bool = False


class Joined(Generic[Question, Answer]):
    """Coalesces simultaneous questions of several threads: `serve` gets all of them and returns an answer for each.

    Answers are in the order of the questions. If `serve` fails, all of them fail. A call that has begun doesn't answer
    later questions, so an answer is never older than its question.
    """

    def __init__(self, serve: Callable[[Sequence[Question]], Sequence[Answer]]) -> None:
        self._serve = serve
        self._entrance = Lock()
        self._waiting: list[_Ticket[Question, Answer]] = []
        self._expected = 0
        self._complete = Event()
        """Set while no caller is expected that isn't waiting."""
        self._complete.set()
        self.turn = Lock()
        """Held while a call is under way."""

    def ask(self, question: Question) -> Answer:
        """Return the answer of a call that begins from now on. Raises what `serve` raises."""
        ticket = _Ticket[Question, Answer](question)
        with self._entrance:
            self._waiting.append(ticket)
            self._count()
        with self.turn:
            if not ticket.done:
                self._gather()
                self._answer(ticket)
        if ticket.error:
            raise ticket.error
        return cast("Answer", ticket.answer)

    def expect(self, number: int) -> None:
        """Make the next calls wait for that many callers, or until no more arrive; 0 and 1 don't wait."""
        with self._entrance:
            self._expected = number
            self._count()

    def _count(self) -> None:
        if len(self._waiting) >= self._expected or self._expected == 1:
            self._complete.set()
        else:
            self._complete.clear()

    def _gather(self) -> None:
        """Wait for expected callers as long as some arrive; missing ones are no longer expected afterwards."""
        waiting, until = 0, time.monotonic() + LONGEST
        while waiting < len(self._waiting) and time.monotonic() < until:
            waiting = len(self._waiting)
            if self._complete.wait(QUIET):
                return
        self.expect(0)

    def _answer(self, own: _Ticket[Question, Answer]) -> None:
        with self._entrance:
            claimed, self._waiting = self._waiting, []
            self._expected = max(0, self._expected - len(claimed))
            self._count()
        try:
            answers = self._serve([ticket.question for ticket in claimed])
            for ticket, answer in zip(claimed, answers, strict=True):
                ticket.answer, ticket.done = answer, True
        except Exception as error:  # noqa: BLE001 - it is everybody's who asked
            for ticket in claimed:
                ticket.error, ticket.done = error, True
        finally:
            remaining = [ticket for ticket in claimed if not ticket.done and ticket is not own]
            if remaining:  # this thread is told to end; the others ask again
                with self._entrance:
                    self._waiting = [*remaining, *self._waiting]


RETRY_DELAY = Pace(first=0.05, longest=5.0, idle=10.0)
"""When work begins again. Never long: what made it fail may be over, and others wait for it."""


class Task(StrEnum):
    """What a thread is for."""

    CONTAINERS = "containers"
    """Docker's events."""
    ELECTION = "election"
    EVENT = "event"
    """An event that waits for its turn at a cluster."""
    EXITS = "exits"
    """Processes that end."""
    FILES = "files"
    """The configuration and kubeconfigs."""
    FOLDER = "folder"
    """A directory of manifests."""
    FOLLOWER = "follower"
    """One kind of a cluster's objects."""
    HANGS = "hangs"
    """Proxies that don't answer."""
    HEALTH = "health"
    """Asking proxies."""
    HTTP = "http"
    """Metrics and health."""
    LOOP = "loop"
    PAGE = "page"
    """Figures of traffic for the live page."""
    OPENING = "opening"
    """The first read of a cluster."""
    PLUGIN = "plugin"
    """A credential that is renewed while the old one is good."""
    PROGRAM = "program"
    """A program that says more than `serve()`."""
    RESOLVER = "resolver"
    """This host's resolver, as the doctor asks it."""
    ROUTES = "routes"
    """Routes of this host."""
    SIGNALS = "signals"
    """The end of patience after a signal."""
    STAMP = "stamp"
    """The question to an outside party whether anything of ours changed there."""
    TELLER = "teller"


class Escape(Struct, frozen=True):
    """An unexpected exception ended the work of a thread, or a part of it."""

    task: Task
    thread: str
    sentence: str


class EndedError(Exception):
    """Work returned although it was not stopped."""


class Threads:
    """What escaped from threads, and which of them are in trouble now. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._counts = Tally()
        self._failures: dict[object, tuple[str, str]] = {}
        self._listen: Callable[[Escape], None] | None = None

    def listen(self, listener: Callable[[Escape], None] | None) -> None:
        """Call `listener` with everything that escapes from now on; None: call nothing."""
        self._listen = listener

    def counts(self) -> dict[str, int]:
        """Return how often something escaped, for every task."""
        return {**dict.fromkeys(Task, 0), **self._counts.counts()}

    def failure(self, subject: str | None = None) -> str:
        """Return why a thread is in trouble; one that works for `subject`, if that is named. Empty if none is."""
        failures = tuple(self._failures.copy().values())
        return next((sentence for about, sentence in failures if subject in {None, about}), "")

    def escaped(self, task: Task, thread: str, error: BaseException) -> str:
        """Count and tell what escaped; return the sentence."""
        self._counts.add(task)
        host = of_host(error)
        why = f": {host}" if host else f" by a mistake in local-lb ({_described(error)}); please report it"
        sentence = f"the thread {thread} broke off{why}"
        if self._listen:
            with suppress(Exception):  # whoever tells may be what is broken
                self._listen(Escape(task, thread, sentence))
        return sentence

    def troubled(self, party: object, subject: str, sentence: str) -> None:
        """Note that a thread waits to begin again."""
        self._failures[party] = subject, sentence

    def healthy(self, party: object) -> None:
        """Record that it works again, or is not needed any more."""
        self._failures.pop(party, None)


THREADS = Threads()
"""Those of this process."""


class SupervisedThread:
    """Does `work` from `start` until `stop`, again and again if something escapes from it.

    `work` returns only after `stopped` was set; anything else counts as escaped. `failed` is called with a sentence
    when something escaped, `subject` names the source that depends on this thread, if it is one.
    """

    def __init__(  # noqa: PLR0913 - what a thread consists of
        self,
        task: Task,
        name: str,
        work: Callable[[], None],
        *,
        subject: str = "",
        failed: Callable[[str], None] = lambda _sentence: None,
        stopped: threading.Event | None = None,
        pace: Pace = RETRY_DELAY,
    ) -> None:
        self.task = task
        self.name = name
        self.stopped = stopped or threading.Event()
        self._work = work
        self._subject = subject
        self._failed = failed
        self._backoff = Backoff(pace)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do it no more: `work` sees that it is stopped, and doesn't begin again."""
        self.stopped.set()
        THREADS.healthy(self)

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end; return whether it has ended. One that never began has."""
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                THREADS.healthy(self)
                self._backoff = self._backoff.succeeded(time.monotonic())
                self._work()
                if not self.stopped.is_set():
                    raise EndedError("it ended by itself")  # noqa: TRY301 - told like everything else
            except BaseException as error:  # noqa: BLE001 - also what libraries in other languages raise
                with suppress(BaseException):  # no memory left to tell it, for instance
                    self._wait(error)
        THREADS.healthy(self)  # it may have been stopped just before it noted its trouble

    def _wait(self, error: BaseException) -> None:
        """Report it, and wait until it is time to begin again; whatever breaks off because it is stopped is fine."""
        if self.stopped.is_set():
            return
        now = time.monotonic()
        self._backoff = self._backoff.failed(now, jitter())
        try:
            sentence = THREADS.escaped(self.task, self.name, error)
            THREADS.troubled(self, self._subject, sentence)
            self._failed(sentence)
        finally:  # also where it can't be told
            self.stopped.wait(self._backoff.wait(now))


def do_once(task: Task, name: str, work: Callable[[], None]) -> None:
    """Run `work` once in its own thread: an escaping exception is reported and counted; the caller may run it again."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - as above
            THREADS.escaped(task, name, error)

    threading.Thread(target=run, name=name, daemon=True).start()


def in_background(task: Task, name: str, work: Callable[[], Answer]) -> Future[Answer]:
    """Run `work` once in its own thread; return what gives its result, or raises what it raised."""
    from concurrent.futures import Future  # noqa: PLC0415 - as in `in_parallel`

    ending: Future[Answer] = Future()

    def run() -> None:
        try:
            ending.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            ending.set_exception(error)

    do_once(task, name, run)
    return ending


def in_parallel(work: Callable[[Question], Answer], questions: Iterable[Question], at_once: int) -> list[Answer]:
    """Call `work` for each of these, so many at a time; return the results in order. Raises what the first one raised.

    For commands that have to start quickly: Python's own pools take as long to load as a plan to be made.
    """
    tickets = [_Ticket[Question, Answer](question) for question in questions]
    waiting = SimpleQueue[_Ticket[Question, Answer]]()
    for ticket in tickets:
        waiting.put(ticket)

    def run() -> None:
        with suppress(Empty):
            while True:
                ticket = waiting.get_nowait()
                try:
                    ticket.answer = work(ticket.question)
                except Exception as error:  # noqa: BLE001 - raised again by the caller's thread
                    ticket.error = error

    crew = [threading.Thread(target=run, daemon=True) for _ in tickets[1:at_once]]
    for thread in crew:
        thread.start()
    run()
    for thread in crew:
        thread.join()
    for ticket in tickets:
        if ticket.error:
            raise ticket.error
    return [cast("Answer", ticket.answer) for ticket in tickets]


def _described(error: BaseException) -> str:
    """Describe an error in a few words, with the last place of ours that it passed."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "locallb" in frame.filename]
    place = f" at {ours[-1].filename.rpartition('/')[2]}:{ours[-1].lineno}" if ours else ""
    try:
        text = " ".join(str(error).split())[:200]
    except Exception:  # noqa: BLE001 - an error that can't say what it is
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
