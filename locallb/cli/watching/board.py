"""The present state of every Service while the loop runs: planned, observed, failed, changed when.

Made from events and observations, never more than the plan has Services. Events come by a queue from the loop's thread,
which never blocks the loop. It is bounded: where a reporter can't keep up (a paused terminal, a full pipe), the oldest
are dropped and counted. Plans are large, so only the latest is kept. Not here: how it is shown.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from itertools import chain
from operator import attrgetter
from threading import Condition

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.identities import ObjectKey
from locallb.model.memory import Memo
from locallb.planning.planned import Placement, Plan
from locallb.planning.service_rows import NOT_DEPLOYED, Observation, Row, State, rows
from locallb.watch.delays import Delay
from locallb.watch.events import Converged, Delayed, Failed, LoopEvent, Planned, Stopped, Updated
from locallb.watch.update_failures import Failures, UpdateFailure, after_plan, after_update

MAX = 1000
"""Events that may wait."""


class RelayedEvent(Struct, frozen=True):
    """An event, with only the sentences of its plan, and its time (seconds since the epoch)."""

    at: float
    event: LoopEvent


class EventBatch(Struct, frozen=True):
    """Events to report together."""

    entries: tuple[RelayedEvent, ...] = ()
    latest: Planned | None = None
    """The latest plan and what it was made from."""
    lost: int = 0
    """Events that went untold."""


class Relay:
    """One teller; `listen` and `poke` may be called from any thread."""

    def __init__(self, maximum: int = MAX) -> None:
        self._changed = Condition()
        self._waiting: deque[RelayedEvent] = deque()
        self._most = maximum
        self._latest: Planned | None = None
        self._lost = 0
        self._poked = False

    def listen(self, event: LoopEvent) -> None:
        entry = RelayedEvent(time.time(), event)
        if isinstance(event, Planned):
            slim = replace(event, plan=_sentences(event.plan), snapshot=None, settings=None)
            entry = RelayedEvent(entry.at, slim)
        with self._changed:
            if isinstance(event, Planned):
                self._latest = event
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(entry)
            self._changed.notify_all()

    def poke(self) -> None:
        """Wake the reporter without an event: other displayed content has changed."""
        with self._changed:
            self._poked = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for something to report."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._poked)

    def take(self, seconds: float | None = None) -> EventBatch:
        """Wait for something to report, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._poked, seconds)
            batch = EventBatch(tuple(self._waiting), self._latest, self._lost)
            self._waiting.clear()
            self._lost, self._poked = 0, False
        return batch


def _sentences(plan: Plan) -> Plan:
    """Return the sentences of a plan, without the objects that it is made of."""
    return Plan(notices=plan.notices, straight=plan.straight, left_out=plan.left_out)


_KEY = attrgetter("key")
_ORDER = attrgetter("key", "reason")
_UNASKED = Observation(is_outdated=True)
UPDATING, FAILED, NO_ANSWER = "Updating", "UpdateFailed", "NoAnswer"
"""Reasons that only a watch can have, in addition to those of the plan."""


class RowChange(Struct, frozen=True):
    """The last update of a Service."""

    at: float
    """When it ended, in seconds since the epoch."""
    seconds: float
    """From the first mark on."""


class View(Struct, frozen=True):
    """A Service, as it is now."""

    row: Row
    change: RowChange | None = None

    @property
    def is_troubled(self) -> bool:
        """Whether it may need attention."""
        return self.row.state is not State.SERVING


class Board(Struct):
    """For one thread."""

    planned: Planned | None = None
    observed: Mapping[str, Observation | None] = field(default_factory=dict)
    """What proxies answered, by name: None where one doesn't, absent where it wasn't asked yet."""
    converged: float = 0.0
    """When everything was as planned last, in seconds since the epoch; 0 if never."""
    waiting: int = 0
    """Load balancers that failed and are tried again."""
    delays: tuple[Delay, ...] = ()
    """Outside parties that don't answer."""
    failure: str = ""
    """Why reading, planning or an update as a whole failed last; empty once it succeeds."""
    failures: Failures = field(default_factory=dict)
    """Load balancers and proxies of the stack that can't be updated: why, since when, and when that is tried again."""
    stopped: bool = False
    stale: dict[str, float] = field(default_factory=dict)
    """Sources that count as last read, and since when."""
    _open: set[ObjectKey] = field(default_factory=set)
    _changes: dict[ObjectKey, RowChange] = field(default_factory=dict)
    _existing: tuple[ObjectKey, ...] = ()
    """Whom the last plan has, in its order."""
    _planned_keys: frozenset[ObjectKey] = frozenset()
    """The same, so that others are found at once."""
    _rows: Memo[tuple[Row, ...]] = field(default_factory=Memo)
    """What was found out last, and from what: most stays as it is."""
    _views: Memo[View] = field(default_factory=Memo)

    def take(self, batch: EventBatch) -> None:
        self.planned = batch.latest or self.planned
        for entry in batch.entries:
            match entry.event:
                case Planned() as planned:
                    self._plan(entry.at, planned)
                case Updated() as updated:
                    self._update(entry.at, updated)
                case Failed() as failed:
                    self.failure = failed.sentence
                case Converged() as converged:
                    self.converged, self.waiting = entry.at, converged.waiting
                case Delayed() as delayed:
                    self.delays = delayed.delays
                case Stopped():
                    self.stopped = True

    @property
    def open(self) -> int:
        """The number of load balancers that aren't as planned."""
        return len(self._open)

    def views(self) -> list[View]:
        """Return the state of every Service, in the plan's order."""
        if self.planned is None:
            return []
        plan = self.planned.plan
        of_each = self._rows.each(
            _rows_of,
            plan.placements,
            [self.observed.get(placement.proxy) for placement in plan.placements],
            [plan.refused.get(placement.key, ()) for placement in plan.placements],
        )
        rejected = rows(Plan(rejections=plan.rejections, refused=plan.refused), {}) if plan.rejections else ()
        all_rows = [*chain.from_iterable(of_each), *rejected]
        all_rows = sorted(all_rows, key=_ORDER) if rejected else all_rows
        keys = [*map(_KEY, all_rows)]
        failures, changes = map(self.failures.get, keys), map(self._changes.get, keys)
        unasked = self._open | {placement.key for placement in plan.placements if self._is_unasked(placement.proxy)}
        return list(self._views.each(_view, all_rows, failures, changes, map(unasked.__contains__, keys)))

    def _is_unasked(self, proxy: str) -> bool:
        answer = self.observed.get(proxy, _UNASKED)
        return answer is not None and answer.is_outdated

    def _plan(self, at: float, planned: Planned) -> None:
        self.failure = ""
        self.failures = after_plan(self.failures, planned)
        self._forget()
        self._open = set(planned.differing)
        self.stale = {name: self.stale.get(name, at) for name in planned.stale}

    def _update(self, at: float, updated: Updated) -> None:
        self.failures = after_update(self.failures, updated, at)
        for key in updated.services:
            if key not in updated.failed:
                self._open.discard(key)
                if key not in updated.untouched:
                    self._changes[key] = RowChange(at, updated.latency)

    def _forget(self) -> None:
        """Keep nothing of Services that are gone."""
        if self.planned is None:
            return
        plan = self.planned.plan
        keys = *map(_KEY, plan.placements), *map(_KEY, plan.rejections)
        if keys != self._existing:
            self._existing, self._planned_keys = keys, frozenset(keys)
        for key in self._changes.keys() - self._planned_keys:
            del self._changes[key]


def _rows_of(placement: Placement, observed: Observation | None, refused: tuple[str, ...]) -> tuple[Row, ...]:
    """Return the rows of one Service from its proxy's observation. An outdated one doesn't show what is missing."""
    plan = Plan(placements=(placement,), refused={placement.key: refused})
    found = rows(plan, {placement.proxy: observed} if observed else {})
    if observed and observed.is_outdated and any(port.reason == NOT_DEPLOYED for row in found for port in row.ports):
        return rows(plan, {})
    return found


def _view(row: Row, failure: UpdateFailure | None, change: RowChange | None, unasked: object) -> View:
    return View(_explained(row, failure, is_unasked=bool(unasked)), change)


def failed_row(row: Row, failure: UpdateFailure) -> Row:
    """Return a row with why it can't be updated: what serves may not be what is planned."""
    state = State.DEGRADED if row.state is State.SERVING else row.state
    return replace(row, state=state, reason=FAILED, message=f"{row.key}: {failure.sentence}")


def _explained(row: Row, failure: UpdateFailure | None, *, is_unasked: bool) -> Row:
    """Return why a Service isn't deployed: the loop knows more than a look at the proxies."""
    if failure:
        return failed_row(row, failure)
    if row.reason != NOT_DEPLOYED:
        return row
    if is_unasked:
        return replace(row, reason=UPDATING, message="")
    return replace(row, reason=NO_ANSWER, message=f"{row.key}: its proxy doesn't answer, or not for every port")


_URGENCY = {State.DEGRADED: 0, State.PENDING: 1, State.REJECTED: 2, State.SERVING: 5}
_MERELY_UPDATING, _SERVING_WITH_NOTICES = 3, 4


def urgency(view: View) -> tuple[int, float, ObjectKey]:
    """Return the place among others: failing Services first, then the most recently changed."""
    rank = _MERELY_UPDATING if view.row.reason == UPDATING else _URGENCY[view.row.state]
    if view.row.state is State.SERVING and view.row.notices:
        rank = _SERVING_WITH_NOTICES
    return rank, -view.change.at if view.change else 0.0, view.row.key


def by_urgency(views: list[View]) -> list[View]:
    return sorted(views, key=urgency)


def count_states(views: list[View]) -> Mapping[State, int]:
    return Counter(view.row.state for view in views)
