"""The loop: waits for marks, plans, updates load balancers that differ, and reports the results; until it is stopped.

One thread decides; triggers only mark. One pass of the loop reads, plans and updates for the marks that were set.

Not here: reading and planning (`planner`), when a pass begins (`schedule`), differences and how they are applied
(`converge`), and failures that no plan shows (`failures`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from msgspec import Struct

from locallb.config.settings import Settings, SettingsError
from locallb.engine.core.lanes import DEADLINE
from locallb.engine.engine import Engine
from locallb.engine.state.errors import EngineError
from locallb.envoy import binary
from locallb.model.desired import ELSEWHERE, REACHABLE
from locallb.model.errors import ClientError
from locallb.model.identities import Home, ObjectKey
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan, PlannedProxy
from locallb.planning.service_rows import Observation
from locallb.planning.statuses import SilentPort
from locallb.runtimes.runtime import runtime
from locallb.sources import SourceError
from locallb.sources.snapshot import SnapshotResult
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies
from locallb.threads import jitter
from locallb.watch.converge import Converger
from locallb.watch.delays import Delay, delays
from locallb.watch.events import Cause, Converged, Delayed, Failed, Listener, Mark, Planned, Pulse, Stopped, Updated
from locallb.watch.failures import Failures, proxies_of
from locallb.watch.hangs import HangWatch
from locallb.watch.planner import Planner, next_check
from locallb.watch.schedule import Inbox, Schedule
from locallb.watch.triggers import Triggers
from locallb.watch.updates import FEW, Outcome, Work

_SELDOM = 20_000
"""Objects that come before the collector looks at what is new. With Python's own 700 it does so twice for each event,
and goes through all tables that the event made: with 5,000 Services 5 ms."""


@contextmanager
def filling() -> Iterator[None]:
    """Collect nothing while memory is filled with long-lived objects; afterwards freeze them.

    The collector would check the state, the plan and the sources of a thousand Services again and again, for a fifth of
    a second each time, and find that they stay. From then on it checks only new objects, once they are many. Garbage
    among the frozen objects is found at the next full pass.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()
    gc.set_threshold(_SELDOM, *gc.get_threshold()[1:])


def set_aside() -> None:
    """Collect what is garbage, and look at all that stays no more."""
    gc.collect()
    gc.freeze()


def collect_all() -> None:
    """Collect all that is garbage, also among what was set aside, and set aside what stays."""
    gc.unfreeze()
    set_aside()


class Pass(Struct, frozen=True):
    """What a pass is for. Times are monotonic seconds."""

    marks: frozenset[Mark]
    began: float
    first: float
    """When the first of the marks was set, or the pass began if there is none."""

    @classmethod
    def at(cls, now: float, schedule: Schedule) -> Pass:
        """Begin to look at what is marked."""
        return cls(schedule.marks, now, schedule.first if schedule.marks else now)

    @property
    def causes(self) -> frozenset[Cause]:
        return frozenset(mark.cause for mark in self.marks)


def planned_event(  # noqa: PLR0913 - what observers are told
    current: Pass, reading: SnapshotResult, plan: Plan, work: Work, *, planner: Planner, notices: Iterable[str]
) -> Planned:
    """Return the event that says what was read and planned, and what differs from it."""
    now = time.monotonic()
    return Planned(
        plan,
        tuple(sorted(current.marks)),
        now - current.began,
        work.differing,
        now - current.first,
        reading.snapshot,
        planner.settings,
        planner.stale(),
        reading.complaints,
        (*reading.notices, *notices),
        len(work.unchecked),
    )


FULL_PASS = 60.0
"""Seconds after which every source is read and everything planned again, whatever the triggers said."""
TICK = 5.0
"""Seconds after which an idle loop shows that it is alive."""
RETRY_DELAY = 1.0
"""Seconds between two looks at a cluster that is in the making."""
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 0.1
"""Seconds that an update may take although something new has come, in between as long as the look before it took, so
that at most half of the time goes into looks; what takes longer stays under way."""
_KINDS = {ClientError: "host", EngineError: "engine", SettingsError: "configuration", SourceError: "source"}
_WHOLE = frozenset({Cause.FULL, Cause.CONFIGURATION})
"""Causes for which everything is looked at, also what no event reports."""
_ERRORS = (ClientError, EngineError, SettingsError, SourceError)


class Loop:
    """Keeps one stack converged. `run` returns after `stop`; both that and `reload` may be called from any thread."""

    def __init__(  # noqa: PLR0913 - what a loop consists of
        self,
        home: Home,
        engine: Engine,
        load: Callable[[], Settings],
        configuration: Path,
        listen: Listener,
        *,
        leads: Callable[[], bool] = lambda: True,
        observe: Callable[[Iterable[Proxy]], Mapping[str, Observation]],
    ) -> None:
        self.home = home
        self._engine = engine
        self._listen = listen
        self._leads = leads
        """Whether it is this process that serves the stack now; a mark wakes the loop when that changes."""
        self._inbox = Inbox()
        self._stopped = Event()
        self._schedule = Schedule()
        triggers = Triggers(home, configuration, self.mark)
        self._planner = Planner(home, engine, load, self.mark, triggers, lambda: self._observed)
        self._converger = Converger(home, engine, self._end_hanging, bell=self._inbox.wake)
        self._last: tuple[Plan, Mapping[ObjectKey, str]] | None = None
        """What was planned last, and the digests of that."""
        self._failures = Failures(observe)
        self._hangs = HangWatch(lambda name: self.mark(Mark(Cause.HANG, name)))
        self._delays: tuple[Delay, ...] = ()
        self._epoch = time.time() - time.monotonic()
        """What a time of the monotonic clock lacks to one since the epoch."""
        self._observed: Mapping[str, Observation | None] = {}
        """What proxies reported last, by their names."""
        self._silent: frozenset[SilentPort] = frozenset()
        """Ports with backends that take no connections, by that."""
        self._wait = SHORTEST_WAIT
        """Seconds for which an update is waited for although something new has come."""
        self._requested: Sequence[PlannedProxy] = ()
        """Proxies that are asked whether they hang."""
        self.pulse = Pulse(time.monotonic())
        """Shows other threads whether the thread of `run` goes on."""

    def mark(self, mark: Mark) -> None:
        """Note that something may have changed."""
        self._inbox.put(mark)
        self._converger.wake()

    def set_observed(self, observed: Mapping[str, Observation | None], silent: frozenset[SilentPort]) -> None:
        """Take over what proxies report, and which ports are silent by that; from one thread, which may be any."""
        is_news = silent != self._silent or (self._failures.uncertain and observed != self._observed)
        self._observed, self._silent = observed, silent
        if is_news:
            self.mark(Mark(Cause.HEALTH))

    def reload(self) -> None:
        """Read the configuration and every source again."""
        self.mark(Mark(Cause.CONFIGURATION))

    def stop(self) -> None:
        """End after what has begun; the data plane goes on."""
        self._stopped.set()
        self._engine.cancel()
        self._inbox.wake()
        self._converger.wake()

    def run(self) -> None:
        """Converge until stopped. May be called again after an unexpected exception."""
        self._planner.invalidate_state()
        self._take(Mark(Cause.START))
        try:
            while not self._stopped.is_set():
                now = time.monotonic()
                self.pulse = Pulse(now)
                self._schedule = self._schedule.timer_fired(now).alarmed(now + FULL_PASS, Mark(Cause.FULL))
                at = self._schedule.check_at(self._converger.going_on) if self._leads() else None
                moments = (now + TICK, at, self._schedule.rings_at(), self._converger.next_time)
                until = min(moment for moment in moments if moment is not None)
                self._take(*self._inbox.take(until - time.monotonic()))  # also where a look is due already
                self._go_on()
                if at is not None and at <= now:
                    self._inspect()
                self._publish_delays()
        finally:
            if self._stopped.is_set():
                self._end()
                self._listen(Stopped())

    def _publish_delays(self) -> None:
        """Report which outside parties don't answer, where that is news."""
        plan = self._last[0] if self._last else Plan()
        hanging = {name: hang.since for name, hang in self._hangs.hanging.items()}
        found = tuple(delays(self._converger.late_lanes(), hanging, plan, self._epoch))
        if found != self._delays:
            self._delays = found
            self._listen(Delayed(found))

    def _end(self) -> None:
        """Let what runs end, and follow nothing any more."""
        try:
            outcome = self._converger.stop()
        except EngineError as error:
            self._listen(Failed(str(error), _kind(error)))
        else:
            if outcome.ended:
                self._report(outcome, outcome.since)
        self._hangs.stop()
        self._planner.stop()

    def _go_on(self) -> None:
        """Go on with what is under way, and look again where some of it has ended."""
        if self._last is None or not self._converger.has_work:
            return
        try:
            outcome = self._converger.go_on()
        except EngineError as error:
            self._break_off(error)
            return
        self._planner.ended()
        if outcome.ended:
            self._conclude(*self._last, outcome, outcome.since)
            self._take(Mark(Cause.RETRY))

    def _break_off(self, error: Exception, marks: Iterable[Mark] = ()) -> None:
        """Try again as a whole: whatever was done before it broke off is in the state, or in its journal."""
        self._planner.invalidate_state()
        self._listen(Failed(str(error), _kind(error)))
        self._take(*marks)
        self._schedule = self._schedule.broken(time.monotonic(), jitter())

    def _take(self, *marks: Mark) -> None:
        for mark in marks:
            self._schedule = self._schedule.marked(time.monotonic(), mark)

    def _inspect(self) -> None:
        """Plan again, and update what differs until something else asks for attention."""
        current = Pass.at(time.monotonic(), self._schedule)
        self._schedule = self._schedule.begun(current.began)
        self.pulse = Pulse(current.began, busy=True)
        try:
            with filling() if Cause.START in current.causes else nullcontext():
                reading, plan = self._read(current.marks, current.began)
            self._converge(reading, plan, current)
            self._schedule = self._schedule.healthy()
            if current.causes & _WHOLE:
                self._follow_up(plan)
        except _ERRORS as error:
            self._break_off(error, current.marks)

    def _read(self, marks: frozenset[Mark], began: float) -> tuple[SnapshotResult, Plan]:
        if self._planner.open(marks, overtaken=self._converger.is_overtaken):
            self._converger.learn()
            self._planner.updated()
        self._failures.hung(self._hangs.hanging)
        self._failures.silences = self._failures.silences.observed(began, self._silent)
        down, silent = self._failures.outages.lasting(began), self._failures.silences.published
        reading, plan = self._planner.read_and_plan(marks, down, silent)
        self._schedule = self._schedule.back(time.monotonic(), self._planner.back)
        if self._planner.unready():
            self._schedule = self._schedule.alarmed(time.monotonic() + RETRY_DELAY, Mark(Cause.FOUND_CLUSTERS))
        for cluster, at in self._planner.retry().items():
            self._schedule = self._schedule.alarmed(at, Mark(Cause.SOURCE, cluster))
        self._ask_whether_they_hang(plan)
        return reading, plan

    def _ask_whether_they_hang(self, plan: Plan) -> None:
        """Have the proxies of this plan asked: what ends because it hangs is started again, and no other is."""
        if plan.proxies is not self._requested:
            self._requested, places = plan.proxies, Proxies.ours()
            self._hangs.follow({each.proxy.name: places.path(each.proxy.id) for each in plan.proxies})

    def _end_hanging(self, plan: Plan, keys: Collection[ObjectKey]) -> None:
        """End the very Envoys that hang still, before an update of these starts them again."""
        hanging, replaced = self._hangs.hanging, self._failures.replaced
        for planned in plan.proxies if replaced else ():
            hang = replaced.get(planned.proxy.name)
            if hang and planned.root in keys and hanging.get(planned.proxy.name) is hang:
                directory = Proxies.ours().path(planned.proxy.id)
                with suppress(ClientError):  # the update finds that it doesn't answer, and tells
                    runtime(planned.run.runtime).end_requested(directory, hang.process, hang.requested)

    def _follow_up(self, plan: Plan) -> None:
        """Collect garbage, and look for what no event reports: files that others changed, proxies that answer again."""
        collect_all()
        binary.cut_all(paths.proxies_root())
        self._take(*(Mark(Cause.DRIFT, str(key)) for key in self._failures.drifted(plan, self._converger)))

    def _converge(self, reading: SnapshotResult, plan: Plan, current: Pass) -> None:
        """Find what isn't as planned, and update what is due, the most urgent first, until there is something new."""
        wanted = self._converger.wanted(plan)
        self._find_damage(reading, plan, current.marks)
        work = self._converger.work(wanted, self._failures.broken)
        due = self._due(work, plan, wanted)
        notices = self._failures.notices()
        self._listen(planned_event(current, reading, plan, work, planner=self._planner, notices=notices))
        self._last = plan, wanted
        self._wait = min(max(SHORTEST_WAIT, time.monotonic() - current.began), LONGEST_WAIT)
        while due.keys and not self._stopped.is_set():
            due = self._update(plan, wanted, due, current.first)
            if self._converger.is_overtaken or (due.keys and len(self._inbox)):
                self._schedule = self._schedule.interrupted(time.monotonic(), due.waiting)
                self._take(*self._inbox.take(), Mark(Cause.RETRY))
                return
        if not due.keys:
            self._schedule = self._schedule.interrupted(time.monotonic(), ())
            if not self._converger.going_on:
                waiting = self._schedule.retries.keys() | self._resting(work, time.monotonic())
                self._listen(Converged(len(waiting)))

    def _find_damage(self, reading: SnapshotResult, plan: Plan, marks: frozenset[Mark]) -> None:
        """Find what ended or was changed by others although the plan is the same."""
        now, chance = time.monotonic(), jitter()
        fallen = self._failures.exited(plan, marks)
        self._converger.exited(fallen)
        for key in fallen:
            self._schedule = self._schedule.exited(now, key, self._converger.applied, chance)
        uncertain = self._failures.uncertain
        self._check_by(
            next_check(reading),
            *self._failures.inspect(reading, plan, self._planner.stale(), self._converger, self._observed),
        )
        if self._failures.uncertain and not uncertain:  # what was reported meanwhile was no news
            self._take(Mark(Cause.HEALTH))
        for name, at in self._failures.replacements().items():
            self._schedule = self._schedule.alarmed(at, Mark(Cause.HANG, name))

    def _due(self, work: Work, plan: Plan, wanted: Mapping[ObjectKey, str]) -> Work:
        """Leave out what failed or changes all the time, as long as it waits, and spares until nothing else changes."""
        now = time.monotonic()
        self._schedule = self._schedule.planned(set(work.keys)).blocked(now, self._failures.blocked_by(plan), jitter())
        under_way = self._converger.under_way(wanted, work.broken)
        resting = self._resting(work, now)
        self._check_by(*resting.values())
        left_out = self._schedule.waiting(now, wanted) | under_way | resting.keys()
        due = replace(work.without(left_out), overdue=self._schedule.overdue(now))
        idle = self._schedule.idle_at(now, busy=due.urgent)
        if not due.spare or idle <= now:
            return due
        self._schedule = self._schedule.alarmed(idle, Mark(Cause.SPARE))
        return due.without(due.spare)

    def _resting(self, work: Work, now: float) -> Mapping[ObjectKey, float]:
        """Return what changes all the time and waits therefore, and until when; what is broken or gone doesn't."""
        busy = {key: at for key, at in self._schedule.busy(now).items() if at > now}
        return {key: busy[key] for key in work.patient if key in busy} if busy else {}

    def _check_by(self, *moments: float | None) -> None:
        """Look again by the first of these."""
        for at in moments:
            self._schedule = self._schedule if at is None else self._schedule.reading(at)

    def _update(self, plan: Plan, wanted: Mapping[ObjectKey, str], remaining: Work, first: float) -> Work:
        """Apply one batch; return what is left."""
        batch, began = remaining.first(), time.monotonic()
        self.pulse = Pulse(began, busy=True)
        is_full = batch.patient and self._converger.is_full(began)
        if is_full:
            outcome = self._converger.wait(lambda: self._is_enough(began))
        else:
            self._schedule = self._schedule.updating(began, batch.keys)
            outcome = self._converger.update(plan, wanted, batch, lambda: self._is_enough(began))
        if len(batch.keys) >= FEW:
            set_aside()
        self._planner.ended()
        if outcome.ended:
            self._conclude(plan, wanted, outcome, first)
        return remaining if is_full else remaining.without(batch.keys)

    def _is_enough(self, began: float) -> bool:
        """Return whether slow work is left running: a trigger is due, or the wait has reached its deadline."""
        now = time.monotonic()
        moments = self._schedule.check_at(self._converger.going_on), self._schedule.rings_at()
        is_due = bool(len(self._inbox)) or any(at is not None and at <= now for at in moments)
        is_reported = not self._converger.has_ended or now - began < DEADLINE
        return self._stopped.is_set() or not is_reported or (is_due and now - began >= self._wait)

    def _conclude(self, plan: Plan, wanted: Mapping[ObjectKey, str], outcome: Outcome, first: float) -> None:
        """Note and tell how updates ended."""
        ended, keys = time.monotonic(), tuple(sorted(outcome.ended))
        began = outcome.since or ended
        hanging = self._hangs.hanging
        if outcome.failed:
            types = outcome.result.failed_types
            if not types or types - ELSEWHERE:
                self._planner.invalidate_host_facts()
            names = proxies_of(plan, outcome.failed)
            suspects = [key for key in outcome.failed if names.get(key) not in hanging]
            if suspects and REACHABLE in types and self._planner.find_refusals(plan, suspects):
                self._take(Mark(Cause.RETRY))
        repaired = self._failures.repaired(ended, keys, outcome)
        done = [key for key in keys if key not in outcome.failed]
        failed = {key: wanted.get(key, "") for key in outcome.failed}
        self._proxy_returned(plan, self._failures.returned(plan, keys, outcome, began, hanging))
        self._check_by(self._failures.outages.check_at(began))
        dependent = self._failures.dependent(plan, outcome, self._planner.silent)
        now = time.monotonic()  # a proxy that hangs was waited for meanwhile: what failed isn't due already
        self._schedule = self._schedule.ended(now, done, failed, jitter(), dependent)
        self._schedule = self._schedule.repaired(now, repaired)
        self._schedule = self._schedule.removed([key for key in done if key not in wanted])
        self._report(outcome, min(first, outcome.since or first))

    def _report(self, outcome: Outcome, first: float) -> None:
        now, keys = time.monotonic(), tuple(sorted(outcome.ended))
        took = now - outcome.since if outcome.since else 0.0
        changes = {op.value: count for op, count in outcome.result.changes.items()}
        retries = self._schedule.retries
        at = {key: retries[key].at + self._epoch for key in outcome.failed if key in retries}
        self._listen(Updated(keys, took, now - first, changes, outcome.failed, outcome.untouched, at))

    def _proxy_returned(self, plan: Plan, proxies: Collection[str]) -> None:
        """Look again at all that is served by proxies that are back, and correct the statuses that said otherwise."""
        if proxies:
            served = [placement.key for placement in plan.placements if placement.proxy in proxies]
            self._schedule = self._schedule.expedited(time.monotonic(), served)
            self._take(Mark(Cause.RETRY))


def _kind(error: Exception) -> str:
    return next(kind for sort, kind in _KINDS.items() if isinstance(error, sort))
