"""The log of `watch`: turns events into records, and records into lines for people, systemd's journal or programs.

One record is one line, in any format; nothing from a cluster can break a line.

Not here: the terminal view (`cli.view`), and the current state (`board`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice

from msgspec import Struct, field

from locallb.cli.service_output import help_of
from locallb.cli.watching.board import UPDATING, EventBatch, View, count_states
from locallb.model.identities import IPAddress, ObjectKey, ObjectKind
from locallb.model.texts import counted, few
from locallb.planning.planned import Plan, placements_of
from locallb.planning.service_rows import State
from locallb.report.wording import visible
from locallb.watch.events import (
    Broken,
    Cause,
    Converged,
    Failed,
    Leading,
    LoopEvent,
    Planned,
    ProgramRan,
    Stopped,
    Updated,
)


class LogLevel(StrEnum):
    """How much a record matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogRecord(Struct, frozen=True):
    """One record of the log; `fields` are JSON's, with stable names (docs/watch.md)."""

    at: float
    """Seconds since the epoch."""
    level: LogLevel
    event: str
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


LONGEST = 2000
"""Characters of a plain line."""
_PRIORITIES = {LogLevel.ERROR: 3, LogLevel.WARNING: 4, LogLevel.INFO: 6}


def plain(record: LogRecord) -> str:
    """Write a record for people: the local time, and one sentence."""
    level = "" if record.level is LogLevel.INFO else f"{record.level}: "
    return f"{clock(record.at)} {level}{visible(record.sentence.replace(chr(10), ' | '), LONGEST)}"


def journal(record: LogRecord) -> str:
    """Write a record for systemd's journal, which has the time and takes the level from the prefix (sd-daemon(3))."""
    return f"<{_PRIORITIES[record.level]}>{visible(record.sentence.replace(chr(10), ' | '), LONGEST)}"


def is_journal(descriptor: int) -> bool:
    """Return whether a stream leads to systemd's journal."""
    try:
        observed = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{observed.st_dev}:{observed.st_ino}"


def as_json(record: LogRecord, stack: str) -> str:
    """Write a record for programs: one JSON object in ASCII. The time is RFC 3339 in UTC."""
    time = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": time, "level": str(record.level), "event": record.event, "stack": stack}
    return json.dumps({**head, **record.fields}, ensure_ascii=True)


def clock(at: float) -> str:
    """Write a time of day, local, with milliseconds."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S.%f")[:-3]


_MAX = 3
"""Ports that a sentence names."""


def where(addresses: Sequence[IPAddress], ports: Collection[str]) -> str:
    """Write addresses and ports behind a name, served or not; empty where it has none, as a route."""
    if not addresses:
        return ""
    return f" at {' '.join(map(str, addresses))}" + (f" ({few(ports, _MAX)})" if ports else "")


def planned_places(plan: Plan, keys: Collection[ObjectKey]) -> Mapping[ObjectKey, str]:
    """Return where some Services are, as far as this plan gives them addresses: for ports that can be served."""
    return {
        placement.key: where(placement.addresses, [port.port.label for port in placement.ports if not port.problem])
        for placement in placements_of(plan, keys)
    }


_NAMED = 3
"""Services that a sentence names."""
_MAX_TEXTS = 50
"""Complaints, or notices, that one plan may add to the log."""
_ALWAYS_REPORTED = {Cause.START, Cause.CONFIGURATION}


class Narrator(Struct):
    """Turns events into records and remembers what it reported; for one thread.

    Repeated events (a plan without work, the same complaint at each plan, the same failure at each try, or of each
    object that isn't a Service) are reported once, and when they end.
    """

    _complaints: tuple[str, ...] = ()
    _notices: tuple[str, ...] = ()
    _left_out: tuple[str, ...] = ()
    _straight: tuple[str, ...] = ()
    _reported: dict[ObjectKey, tuple[State, str]] = field(default_factory=dict)
    """Reported state and reason of Services with problems."""
    _failure: str = ""
    """Reported reason why reading, planning or an update as a whole fails."""
    _planned_for: tuple[object, ...] = ()
    """Reported summary of the last plan: its triggers, and the amount of work."""
    _failing: dict[ObjectKey, str] = field(default_factory=dict)
    """Reported reasons of failed load balancers."""
    _plan: Plan | None = None
    _idle: bool = False
    """Whether nothing happened since the report that everything is as planned."""

    def report_to(self, batch: EventBatch, views: Sequence[View]) -> Iterator[LogRecord]:
        """Return a batch; `views` are the Services as they are after it."""
        if batch.lost:
            at = batch.entries[0].at if batch.entries else 0.0
            sentence = f"{counted(batch.lost, 'event')} went untold: the output didn't take them in time"
            yield LogRecord(at, LogLevel.WARNING, "lost", sentence, {"count": batch.lost})
        plans = [number for number, entry in enumerate(batch.entries) if isinstance(entry.event, Planned)]
        for number, entry in enumerate(batch.entries):
            yield from self._of_event(entry.at, entry.event, None if number < max(plans, default=0) else views)

    def services(self, at: float, views: Sequence[View]) -> Iterator[LogRecord]:
        """Yield a record for each Service with a changed state."""
        failures = {view.row.key: view for view in views if view.is_troubled and view.row.reason != UPDATING}
        for key, view in failures.items():
            current = view.row.state, view.row.reason
            if self._reported.get(key) != current:
                self._reported[key] = current
                yield _service(at, view)
        serving = {view.row.key: view for view in views if not view.is_troubled}
        for key in [key for key in self._reported if key not in failures]:
            if key in serving:
                yield _service(at, serving[key])
        present = {view.row.key for view in views}
        self._reported = {key: state for key, state in self._reported.items() if key in present and key not in serving}
        self._failing = {key: why for key, why in self._failing.items() if key in present or not key.cluster}

    def _of_event(self, at: float, event: LoopEvent, views: Sequence[View] | None) -> Iterator[LogRecord]:
        """Return the records of an event; there are no views of it if a newer plan has replaced its plan."""
        match event:
            case Planned():
                yield from self._planned(at, event)
            case Updated():
                yield from self._updated(at, event)
            case Failed():
                yield from self._failed(at, event)
            case Converged():
                yield from self._converged(at, event, views)
            case Leading():
                sentence = "this process leads now" if event.leads else "another process may lead: standing by"
                yield LogRecord(at, LogLevel.INFO, "leader", sentence, {"leads": event.leads})
            case Broken():
                yield LogRecord(
                    at, LogLevel.ERROR, "thread", event.sentence, {"thread": event.task, "message": event.sentence}
                )
            case ProgramRan():
                yield _program(at, event)
            case Stopped():
                yield LogRecord(at, LogLevel.INFO, "stopped", "stopped; what serves goes on serving")

    def _planned(self, at: float, planned: Planned) -> Iterator[LogRecord]:
        summary = planned.marks, len(planned.differing), planned.unchecked
        retry = summary == self._planned_for and (bool(self._failure) or self._only_retries(planned))
        if not retry and (planned.differing or any(mark.cause in _ALWAYS_REPORTED for mark in planned.marks)):
            yield _plan(at, planned)
        self._planned_for, self._plan = summary, planned.plan
        yield from _differences(at, self._complaints, planned.complaints, "complaint", LogLevel.ERROR)
        notices = (*planned.notices, *planned.plan.notices)
        yield from _differences(at, self._notices, notices, "notice", LogLevel.WARNING)
        self._complaints, self._notices = planned.complaints, notices
        for event, texts, reported in (
            ("way", planned.plan.straight, self._straight),
            ("left-out", planned.plan.left_out, self._left_out),
        ):
            for text in texts:
                if text not in reported:
                    yield LogRecord(at, LogLevel.INFO, event, text, {"message": text})
        self._straight, self._left_out = planned.plan.straight, planned.plan.left_out

    def _only_retries(self, planned: Planned) -> bool:
        """Return whether a plan is there to try again what was reported to have failed, and nothing else."""
        retries = bool(planned.marks) and all(mark.cause is Cause.RETRY for mark in planned.marks)
        return retries and bool(planned.differing) and self._failing.keys() >= set(planned.differing)

    def _updated(self, at: float, updated: Updated) -> Iterator[LogRecord]:
        """Return what was changed, what failed for another reason than reported, and what only was checked."""
        before = set(self._failing.values())
        existing = {
            key
            for key, why in updated.failed.items()
            if self._failing.get(key) == why or (key.kind is not ObjectKind.SERVICE and why in before)
        }
        for key in updated.services:
            self._failing.pop(key, None)
        self._failing |= updated.failed
        if changed := [key for key in updated.services if key not in updated.untouched | existing]:
            self._idle = False
            served = [key for key in changed[:_NAMED] if key not in updated.failed]
            yield _update(at, updated, changed, planned_places(self._plan, served) if self._plan else {})
        if updated.untouched:
            yield _check(at, updated)

    def _failed(self, at: float, failed: Failed) -> Iterator[LogRecord]:
        self._idle = False
        if failed.sentence != self._failure:
            self._failure = failed.sentence
            yield LogRecord(
                at, LogLevel.ERROR, "failed", failed.sentence, {"kind": failed.kind, "message": failed.sentence}
            )

    def _converged(self, at: float, converged: Converged, views: Sequence[View] | None) -> Iterator[LogRecord]:
        if self._failure:
            text, self._failure = self._failure, ""
            yield LogRecord(at, LogLevel.INFO, "resolved", f"no longer: {text}", {"message": text})
        if self._idle or views is None:
            return
        self._idle = True
        states = {str(state): count for state, count in sorted(count_states(list(views)).items())}
        sentence = f"converged: {counted(len(views), 'Service')}"
        if converged.waiting:
            sentence = f"{sentence}; {converged.waiting} failed and will be tried again"
        yield LogRecord(at, LogLevel.INFO, "converged", sentence, {"services": states, "waiting": converged.waiting})


def started(at: float, stack: str, version: str, pid: int, places: Mapping[str, str]) -> LogRecord:
    """Return the record of the loop's start; `places` are URLs of its views, by name."""
    sentence = f"watching stack {stack} (local-lb {version}, pid {pid})"
    fields: dict[str, object] = {"version": version, "pid": pid, **places}
    for what, place in places.items():
        sentence = f"{sentence}; {what} at {place}"
    return LogRecord(at, LogLevel.INFO, "started", sentence, fields)


def _differences(
    at: float, before: Sequence[str], after: Sequence[str], event: str, level: LogLevel
) -> Iterator[LogRecord]:
    """Return a record for each text that is new, then one for each that is no longer true; of many the first."""
    for text in _first(_without(after, frozenset(before))):
        yield LogRecord(at, level, event, text, {"message": text})
    for text in _first(_without(before, frozenset(after))):
        yield LogRecord(at, LogLevel.INFO, "resolved", f"no longer: {text}", {"message": text})


def _without(texts: Iterable[str], others: Collection[str]) -> Collection[str]:
    return dict.fromkeys(text for text in texts if text not in others)


def _first(texts: Collection[str]) -> list[str]:
    """Return the first of these texts, and how many more there are."""
    more = len(texts) - _MAX_TEXTS
    return [*islice(texts, _MAX_TEXTS), *([f"{more} more; `locallb status` lists all"] if more > 0 else [])]


def _service(at: float, view: View) -> LogRecord:
    row = view.row
    level = LogLevel.INFO if row.state is State.SERVING else LogLevel.WARNING
    addresses = [str(address) for address in row.addresses]
    subject = row.message if str(row.key) in row.message else f"{row.key}: {row.message}"
    place = where(row.addresses, [port.port.label for port in row.ports if port.state is State.SERVING])
    sentence = f"{row.state} {row.reason}: {subject}" if row.reason else f"serving: {row.key}{place}"
    fields = {
        "service": str(row.key),
        "state": str(row.state),
        "addresses": addresses,
        "reason": row.reason,
        "message": row.message,
        **help_of(row.reason),
    }
    return LogRecord(at, level, "service", sentence, fields)


def _plan(at: float, planned: Planned) -> LogRecord:
    marks = [str(mark) for mark in planned.marks]
    because = f" because of {few(marks, _NAMED)}" if marks else ""
    checks = f", {planned.unchecked} to check" if planned.unchecked else ""
    sentence = f"planned in {_ms(planned.seconds)}{because}: {len(planned.differing)} to do{checks}"
    fields = {
        "marks": marks,
        "seconds": _seconds(planned.seconds),
        "latency": _seconds(planned.latency),
        "open": len(planned.differing),
        "unchecked": planned.unchecked,
    }
    return LogRecord(at, LogLevel.INFO, "planned", sentence, fields)


def _update(at: float, updated: Updated, services: Sequence[ObjectKey], places: Mapping[ObjectKey, str]) -> LogRecord:
    names = [str(key) for key in services]
    named = few([f"{key}{places.get(key, '')}" for key in services], _NAMED)
    sentence = f"updated {named} in {_ms(updated.seconds)} ({_ms(updated.latency)} after the change)"
    failed = [{"service": str(key), "message": why} for key, why in updated.failed.items() if key in services]
    if failed:
        sentence = f"{sentence}; {len(failed)} failed: {few(_by_reason(failed), _NAMED, '; ')}"
    fields = {
        "services": names,
        "seconds": _seconds(updated.seconds),
        "latency": _seconds(updated.latency),
        "changes": dict(updated.changes),
        "failed": failed,
    }
    return LogRecord(at, LogLevel.ERROR if failed else LogLevel.INFO, "updated", sentence, fields)


def _program(at: float, ran: ProgramRan) -> LogRecord:
    sentence = f"ran the program {ran.program} in {_ms(ran.seconds)}"
    if ran.fault:
        sentence = f"{sentence}, and not all was done, so what was declared before stays: {ran.fault}"
    fields = {"seconds": _seconds(ran.seconds), "changes": dict(ran.changes), "message": ran.fault}
    return LogRecord(at, LogLevel.ERROR if ran.fault else LogLevel.INFO, "program", sentence, fields)


def _check(at: float, updated: Updated) -> LogRecord:
    names = [str(key) for key in updated.services if key in updated.untouched]
    sentence = f"{len(names)} checked in {_ms(updated.seconds)}: as planned"
    return LogRecord(at, LogLevel.INFO, "checked", sentence, {"services": names, "seconds": _seconds(updated.seconds)})


def _by_reason(failed: Iterable[Mapping[str, str]]) -> list[str]:
    """Return each reason once, with its Services."""
    names: dict[str, list[str]] = {}
    for failure in failed:
        names.setdefault(failure["message"], []).append(failure["service"])
    return [f"{few(services, _NAMED)}: {why}" for why, services in names.items()]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _seconds(seconds: float) -> float:
    return round(seconds, 6)
