"""What a running `watch` knows and no plan shows, in a file for commands in other processes; it ends with its watch.

These are parties that don't answer, updates that fail, why reading or planning as a whole fails, and where its page is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from locallb.cli.watching.board import failed_row
from locallb.cli.watching.log import clock
from locallb.model.errors import ClientError
from locallb.model.identities import ObjectKey
from locallb.planning.service_rows import Row
from locallb.runtimes import processes
from locallb.storage import files
from locallb.watch.delays import Delay
from locallb.watch.events import Converged, Delayed, Failed, LoopEvent, Planned, Stopped, Updated
from locallb.watch.update_failures import Failures, UpdateFailure, after_plan, after_update

PACE = 1.0
"""Seconds between two writes at least where only the time of the next attempt is another one."""


class StackFailure(Struct, frozen=True):
    """Why the stack can't be read, planned or updated as a whole."""

    sentence: str
    since: float
    """In seconds since the epoch."""


class Published(Struct, frozen=True):
    """What a `watch` publishes."""

    process: str = ""
    """Of which process it is: what one that was killed left counts for nothing."""
    delays: tuple[Delay, ...] = ()
    failures: tuple[UpdateFailure, ...] = ()
    failure: StackFailure | None = None
    page: str = ""
    """The address of its live page; empty where it has none."""

    def rows(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        """Return rows with why they can't be updated."""
        failures = {each.key: each for each in self.failures}
        return tuple(failed_row(row, failures[row.key]) if row.key in failures else row for row in rows)

    def times(self, key: ObjectKey) -> str:
        """Write since when an update fails, and when it is tried again; empty where it doesn't fail."""
        return next((times(each) for each in self.failures if each.key == key), "")

    def fields(self) -> Mapping[ObjectKey, Mapping[str, object]]:
        """Return what JSON documents have of each load balancer in trouble (docs/schemas/status.schema.json)."""
        made: dict[ObjectKey, dict[str, Any]] = {}
        for delay in self.delays:
            wait = {"party": delay.party, "since": round(delay.since, 3)}
            for key in delay.waiting:
                before = made.setdefault(key, {}).get("waits", [])
                made[key]["waits"] = [*before, wait]
        for each in self.failures:
            failing = {"since": round(each.since, 3), "retry": round(each.retry, 3)}
            made[each.key] = {**made.get(each.key, {}), "failing": failing}
        return made

    def sentences(self, past: Callable[[float], str], shown: Container[ObjectKey] = ()) -> list[str]:
        """Return a sentence for each trouble; `past` writes since when a party doesn't answer.

        Failed updates that are `shown` otherwise have none.
        """
        found = [delay.sentence(past(delay.since)) for delay in self.delays]
        if self.failure:
            found.append(f"`watch` has been failing since {clock(self.failure.since)[:-4]}: {self.failure.sentence}")
        return [*found, *summary(each for each in self.failures if each.key not in shown)]


def times(failure: UpdateFailure) -> str:
    """Write since when an update fails, and when it is tried again."""
    following = f", next attempt at {clock(failure.retry)[:-4]}" if failure.retry else ""
    return f"since {clock(failure.since)[:-4]}{following}"


def summary(failures: Iterable[UpdateFailure]) -> list[str]:
    """Write in a sentence which updates fail, the one that does for longest with its reason; nothing without any."""
    ordered = sorted(failures, key=lambda each: (each.since, each.key))
    more = f" and {len(ordered) - 1} more" if ordered[1:] else ""
    return [f"`watch` has failed to update {each.key}{more} {times(each)}: {each.sentence}" for each in ordered[:1]]


class PublishedFile:
    """Written by the thread of the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = str(processes.identify(os.getpid()))
        self._delays: tuple[Delay, ...] = ()
        self._failures: Failures = {}
        self._failure: StackFailure | None = None
        self._page = ""
        self._is_failing = False
        """Whether nothing was planned since the stack failed as a whole."""
        self._written = Published()
        self._written_at = 0.0

    def listen(self, event: LoopEvent) -> None:
        """Take over the news; a full disk is no reason to end."""
        match event:
            case Delayed():
                self._delays = event.delays
            case Updated():
                self._failures = after_update(self._failures, event, time.time())
            case Planned():
                self._failures, self._is_failing = after_plan(self._failures, event), False
            case Failed():
                is_same = self._failure is not None and self._failure.sentence == event.sentence
                self._failure = self._failure if is_same else StackFailure(event.sentence, time.time())
                self._is_failing = True
            case Converged():
                self._failure = None
            case Stopped():
                self._delays, self._failures, self._is_failing, self._page = (), {}, False, ""
            case _:
                return
        self._publish()

    def show(self, page: str) -> None:
        """Take over the address of the live page; before the thread of the loop begins."""
        self._page = page
        self._publish()

    def _publish(self) -> None:
        failures = tuple(self._failures.values())
        failure = self._failure if self._is_failing else None
        news = Published(self._process, self._delays, failures, failure, self._page)
        if news == self._written:
            return
        is_soon = time.monotonic() < self._written_at + PACE
        if is_soon and _without_retries(news) == _without_retries(self._written):
            return
        self._written, self._written_at = news, time.monotonic()
        if news == Published(self._process):
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return
        with suppress(ClientError, UnicodeError):
            files.write(self._path, msgspec.json.encode(news).decode())


def _without_retries(published: Published) -> Published:
    return replace(published, failures=tuple(replace(each, retry=0.0) for each in published.failures))


def read_published(path: Path) -> Published:
    """Return what the `watch` that runs now publishes."""
    try:
        published = msgspec.json.decode(files.read(path) or "", type=Published)
        running = processes.identify(int(published.process.partition("@")[0]))
    except (ClientError, msgspec.DecodeError, ValueError):
        return Published()
    return published if running and str(running) == published.process else Published()
