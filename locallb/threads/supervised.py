"""Supervised threads: an exception that escapes is reported and counted, and the work begins again with back-off.

Every thread that `watch` keeps is one of these; nothing else of local-lb starts threads, except pools with awaited
results. While a thread waits to begin again it has failed: everything that depends on it is out of date.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

from msgspec import Struct

from locallb.model.pacing import Backoff, Pace
from locallb.model.system_errors import of_host
from locallb.threads.jitter import jitter
from locallb.threads.tally import Tally

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
    PLUGIN = "plugin"
    """A credential that is renewed while the old one is good."""
    RESOLVER = "resolver"
    """This host's resolver, as the doctor asks it."""
    ROUTES = "routes"
    """Routes of this host."""
    SIGNALS = "signals"
    """The end of patience after a signal."""
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
        """Begin."""
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


def _described(error: BaseException) -> str:
    """Describe an error in a few words, with the last place of ours that it passed."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "locallb" in frame.filename]
    place = f" at {ours[-1].filename.rpartition('/')[2]}:{ours[-1].lineno}" if ours else ""
    try:
        text = " ".join(str(error).split())[:200]
    except Exception:  # noqa: BLE001 - an error that can't say what it is
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
