"""Asks every proxy whether it answers, in one thread that waits for none, and says which of them hang.

What is asked, what is silent and who hangs is known here alone; others are called when that changes, and look. An Envoy
that ended is no hang: its runtime tells that. Times of silence are seconds of one clock, which stands still while this
process does: an answer that couldn't be read in time is no silence. Not here: what follows (`failures`).
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy.admin import AdminQuestion, AdminReply, QueueFullError, size_of_files
from locallb.envoy.document import reading_time
from locallb.model.identities import RunIdentity
from locallb.model.pacing import Backoff, Pace
from locallb.runtimes import processes
from locallb.runtimes.processes import Activity, ProcessError
from locallb.threads import SupervisedThread, Task

TIMEOUT = 5.0
"""Seconds that an answer may take of a process that does nothing; a tenth of a millisecond is usual."""
BUSY_TIMEOUT = 30.0
"""The same of one that computes, waits for a disk, or can't be seen, besides the time for reading its files."""
REPLACEMENTS = Pace(first=TIMEOUT, longest=300.0, idle=60.0, spread=0.0)
"""Of an Envoy that hangs again within a minute: the second one is replaced after twice the time."""


class Sighting(Enum):
    """What the thread of a process that answers is doing."""

    IDLE = "idle"
    AT_WORK = "at work"
    """It computes, waits for a processor, or for a disk."""
    UNSEEN = "unseen"


class Silence(Struct, frozen=True):
    """A question without an answer."""

    since: float
    stirred: float
    """Time of the queried process's last observed activity or absence."""

    @classmethod
    def begun(cls, now: float) -> Silence:
        """Return that of a question that was just put."""
        return cls(now, now)

    def observed(self, now: float, sighting: Sighting) -> Silence:
        """Note what the process does now."""
        return self if sighting is Sighting.IDLE else replace(self, stirred=now)

    def is_hang(self, now: float, size: Callable[[], int]) -> bool:
        """Return whether the wait for an answer is over; `size` returns the size of the proxy's files in bytes."""
        if now - self.stirred >= TIMEOUT:
            return True
        beyond = now - self.since - BUSY_TIMEOUT
        return beyond >= 0 and beyond >= reading_time(size())


def replaced_after(hangs: Backoff) -> float:
    """Return how many seconds after it was found to hang a proxy is replaced: at once for the first time."""
    return hangs.pace.delay(hangs.failures) - hangs.pace.first


EVERY, EACH = 2.0, 0.02
"""Seconds between two questions to a proxy; for each proxy so many at least, as all of them share this host."""
GLANCE = 0.25
"""Seconds between two looks at proxies that are silent."""
_LATE = 0.5
"""Seconds that a turn may be late; what is more, this process stood still, and so may all others."""


class Hang(Struct, frozen=True):
    """A proxy with a hanging Envoy. Times are of the monotonic clock, except `requested`."""

    since: float
    replace_at: float
    """When it is to be ended and started again."""
    requested: float
    """When it was asked (Unix)."""
    process: RunIdentity | None = None
    """The process that was asked, if it can be seen."""


class _Proxy(Struct):
    """What is known of one, by the thread that asks."""

    directory: Path
    due: float = 0.0
    """When to ask next."""
    question: AdminQuestion | None = None
    silence: Silence | None = None
    activity: Activity | None = None
    """As it was seen last in this silence."""
    requested_at: float = 0.0
    """When it was asked last (Unix)."""
    hangs: Backoff = field(default_factory=lambda: Backoff(REPLACEMENTS))


class HangWatch:
    """Calls `changed` with the name of a proxy that hangs, or hangs no longer, from its own thread until `stop`."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._wanted: Mapping[str, Path] | None = None
        """What is to be asked from now on, until the thread has it."""
        self._hanging: Mapping[str, Hang] = {}
        self._proxies: dict[str, _Proxy] = {}
        self._selector = selectors.DefaultSelector()
        self._bell: tuple[int, int] | None = None
        """Both ends of what wakes the thread."""
        self._now, self._woke = 0.0, 0.0
        """For how long this process was awake, and when that was read."""
        self._thread = SupervisedThread(Task.HANGS, "hangs", self._run)

    @property
    def hanging(self) -> Mapping[str, Hang]:
        """Proxies that hang now, by name."""
        return self._hanging

    def follow(self, proxies: Mapping[str, Path]) -> None:
        """Ask these and no others."""
        with self._lock:
            if self._thread.stopped.is_set() or not (proxies or self._bell):
                return
            self._wanted = proxies
            if self._bell is None:
                self._bell = os.pipe()
                self._selector.register(self._bell[0], selectors.EVENT_READ)
                self._thread.start()
            self._ring()

    def stop(self) -> None:
        self._thread.stop()
        with self._lock:
            self._ring()
        self._thread.join(2)

    def _ring(self) -> None:
        if self._bell:
            os.write(self._bell[1], b"!")

    def _run(self) -> None:
        self._woke = time.monotonic()
        while not self._thread.stopped.is_set():
            self._adopt()
            self._wait(self._turn())
        with self._lock:
            self._take({})
            self._selector.close()
            for descriptor in self._bell or ():
                os.close(descriptor)
            self._bell = None

    def _adopt(self) -> None:
        """Take over what is to be asked."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._take(wanted)

    def _take(self, wanted: Mapping[str, Path]) -> None:
        removed = [name for name, proxy in self._proxies.items() if wanted.get(name) != proxy.directory]
        for name in removed:
            self._drop_question(self._proxies.pop(name))
        self._hanging = {name: hang for name, hang in self._hanging.items() if name not in removed}
        for name, directory in wanted.items():
            if name not in self._proxies:
                self._proxies[name] = _Proxy(directory, due=self._now)

    def _wait(self, pause: float | None) -> None:
        """Wait for an answer, for so many seconds at most, and take what came."""
        ready = self._selector.select(pause)
        now = time.monotonic()
        awake = now - self._woke
        self._now += awake if pause is None else min(awake, pause + _LATE)
        self._woke = now
        for key, _event in ready:
            if key.data is None:
                os.read(key.fd, 4096)
            else:
                self._hear(key.data)

    def _hear(self, name: str) -> None:
        proxy = self._proxies[name]
        reply = proxy.question.reply() if proxy.question else AdminReply.NONE
        if reply is AdminReply.NONE:
            return
        if reply is AdminReply.ANSWERED:
            proxy.hangs = proxy.hangs.succeeded(self._now)
        self._end_silence(name, proxy)

    def _turn(self) -> float | None:
        """Query the proxies that are due, and check the silent ones; return the seconds to wait."""
        pause: float | None = None
        for name, proxy in self._proxies.items():
            if proxy.question is None and proxy.due <= self._now:
                self._ask(name, proxy)
            elif proxy.question is not None:
                self._inspect(name, proxy, self._sighting(proxy))
            wait = GLANCE if proxy.question else max(0.0, proxy.due - self._now)
            pause = wait if pause is None else min(pause, wait)
        return pause

    def _ask(self, name: str, proxy: _Proxy) -> None:
        """Ask one; where its queue is full, again soon, which may last for as long as if it couldn't be seen."""
        proxy.requested_at = time.time()
        try:
            question = AdminQuestion(proxy.directory)
        except QueueFullError:
            proxy.due = self._now + GLANCE
            proxy.silence = proxy.silence or Silence.begun(self._now)
            self._inspect(name, proxy, Sighting.UNSEEN)
        except OSError:  # it isn't there, or we can't ask anybody
            self._end_silence(name, proxy)
        else:
            proxy.question, proxy.activity = question, None
            proxy.silence = Silence.begun(self._now)
            self._selector.register(question, selectors.EVENT_READ, name)

    def _sighting(self, proxy: _Proxy) -> Sighting:
        """Find out what the process does that was asked."""
        before, proxy.activity = proxy.activity, None
        if proxy.question and proxy.question.pid:
            with suppress(ProcessError):
                proxy.activity = processes.activity(proxy.question.pid)
        if proxy.activity is None:
            return Sighting.UNSEEN
        return Sighting.AT_WORK if proxy.activity.is_at_work(before) else Sighting.IDLE

    def _inspect(self, name: str, proxy: _Proxy, sighting: Sighting) -> None:
        """Note what is seen in a silence; once it has lasted too long, the proxy hangs."""
        if proxy.silence is None:
            return
        proxy.silence = proxy.silence.observed(self._now, sighting)
        if name not in self._hanging and proxy.silence.is_hang(self._now, partial(size_of_files, proxy.directory)):
            proxy.hangs = proxy.hangs.failed(self._now, 0.0)
            found = time.monotonic()
            since = found - (self._now - proxy.silence.since)
            observed = proxy.activity.process if proxy.activity else None
            process = RunIdentity.of_process(observed.pid, observed.started) if observed else None
            hang = Hang(since, found + replaced_after(proxy.hangs), proxy.requested_at, process)
            self._hanging = {**self._hanging, name: hang}
            self._changed(name)

    def _end_silence(self, name: str, proxy: _Proxy) -> None:
        """Record that it answered, or has no process; schedule the next query."""
        self._drop_question(proxy)
        proxy.silence = proxy.activity = None
        proxy.due = self._now + max(EVERY, EACH * len(self._proxies))
        if name in self._hanging:
            self._hanging = {other: hang for other, hang in self._hanging.items() if other != name}
            self._changed(name)

    def _drop_question(self, proxy: _Proxy) -> None:
        if proxy.question:
            self._selector.unregister(proxy.question)
            proxy.question.close()
            proxy.question = None
