"""The schedule of the loop: when to plan and which updates to retry, and the queue of marks, which any thread fills.

Triggers coalesce: the loop plans a moment after the last one, and never later than `LONGEST` after the first. A load
balancer that failed waits alone, longer each time, and is retried at once if its desired state has changed. While
nothing can be done at all, no other trigger starts a pass. `Schedule` is pure: times are seconds of one monotonic
clock, passed as arguments.

Not here: the triggers (`triggers`), clocks and randomness (`loop`), and how waits grow (`model.pacing`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.pacing import Backoff, Pace
from locallb.watch.events import Cause, Mark


class Inbox:
    """A queue that has each mark once, so it can't grow while an update takes long."""

    def __init__(self) -> None:
        self._marks: SimpleQueue[Mark | None] = SimpleQueue()
        self._waiting: set[Mark] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, mark: Mark) -> None:
        """Note that something may have changed; a mark that waits to be taken says so already."""
        if mark not in self._waiting:
            self._waiting.add(mark)
            self._marks.put(mark)

    def wake(self) -> None:
        """Wake the thread that waits."""
        self._marks.put(None)

    def take(self, timeout: float = 0.0) -> list[Mark]:
        """Wait for the next trigger, and return it with all pending ones; none after `timeout` seconds, or `wake`."""
        pending: list[Mark | None] = []
        with suppress(Empty):
            pending.append(self._marks.get(timeout=max(0.0, timeout)))
            while True:
                pending.append(self._marks.get_nowait())
        marks = [mark for mark in pending if mark]
        self._waiting.difference_update(marks)
        return marks


QUIET = 0.001
"""Seconds without a mark after which the loop looks."""
LONGEST = 0.05
"""Seconds after the first mark at which it looks in any case."""
FLOOR = 0.05
"""Seconds between two looks for which nothing new was marked, whatever asks for them."""
UPDATES = Pace(first=FLOOR, longest=30.0)
"""Of what failed: a load balancer, or what is blocked by this host."""
WHOLE = Pace(first=FLOOR, longest=2.4, floor=FLOOR)
"""Where nothing can be done at all: most often another command holds the stack's lock. 3 s at most, with chance."""
OF_OTHERS = Pace(first=10.0, longest=300.0)
"""Pace of updates that depend on something retried on its own: a proxy that is down, or a cluster that doesn't answer.
"""
CRASHES = Pace(first=FLOOR, longest=30.0, idle=1.0)
"""Of a proxy that ends again and again. One that lived for several times what a repair costs is repaired at once."""
REST = 0.2
"""Seconds after the last update until spares are made: they would take a core from what is needed now."""
TIMEOUT = 1.0
"""Seconds that something waits for what goes before it, if there is always something: no burst of changes is longer."""
BURST, SPAN, APART = 20, 4.0, 0.25
"""Updates of one load balancer in so many seconds after which the next ones are so far apart: one that its owner
changes all the time leaves the processor, the API server and its Envoy to others."""
_MENDING = frozenset({Cause.CONFIGURATION, Cause.KUBECONFIG, Cause.FOUND_CLUSTERS})
"""Causes that may have repaired what kept the whole from being read: they don't wait for its next try."""


class Retry(Struct, frozen=True):
    """Something that failed: when to try again, and what it was to be."""

    backoff: Backoff
    wanted: str = ""

    @property
    def at(self) -> float:
        return self.backoff.not_before


_NOTHING: Mapping[ObjectKey, Retry] = MappingProxyType({})
_NO_CRASH: Mapping[ObjectKey, Backoff] = MappingProxyType({})
_NOT_UPDATED: Mapping[ObjectKey, tuple[float, ...]] = MappingProxyType({})
_NOT_STARVED: Mapping[ObjectKey, float] = MappingProxyType({})
_NO_ALARM: Mapping[Mark, float] = MappingProxyType({})


class Schedule(Struct, frozen=True):
    """What is marked and what waits."""

    marks: frozenset[Mark] = frozenset()
    first: float = 0.0
    last: float = 0.0
    retries: Mapping[ObjectKey, Retry] = field(default_factory=lambda: _NOTHING)
    crashes: Mapping[ObjectKey, Backoff] = field(default_factory=lambda: _NO_CRASH)
    """Load balancers with a proxy that ended and was repaired a moment ago."""
    later: float | None = None
    """When to look although nothing is marked."""
    whole: Backoff | None = None
    """Reading, planning and updates as a whole, while they fail."""
    hindrance: Retry | None = None
    """What stands in the way on this host and may clear without an event."""
    alarms: Mapping[Mark, float] = field(default_factory=lambda: _NO_ALARM)
    """Marks that the schedule itself sets: when each is due."""
    updated: float = -math.inf
    """When the last update ended."""
    recent: Mapping[ObjectKey, tuple[float, ...]] = field(default_factory=lambda: _NOT_UPDATED)
    """When updates of each load balancer began a moment ago, also before the one before had ended: the last `BURST`."""
    checked: float = -math.inf
    """When the last look began."""
    remaining: Mapping[ObjectKey, float] = field(default_factory=lambda: _NOT_STARVED)
    """What could be done and wasn't, as something new came before its turn: since when."""

    def marked(self, now: float, *marks: Mark) -> Schedule:
        """Note that something may have changed."""
        whole = self.whole
        if whole and any(mark.cause in _MENDING for mark in marks):
            whole = whole.expedited(now)
        first = self.first if self.marks else now
        return replace(self, marks=self.marks.union(marks), first=first, last=now, whole=whole)

    def alarmed(self, at: float, mark: Mark) -> Schedule:
        """Set a mark at that time, unless that is to be done at another time already."""
        return replace(self, alarms=MappingProxyType({mark: at, **self.alarms}))

    def timer_fired(self, now: float) -> Schedule:
        """Set the marks that are due."""
        due = [mark for mark, at in self.alarms.items() if at <= now]
        if not due:
            return self
        remaining = {mark: at for mark, at in self.alarms.items() if at > now}
        return replace(self.marked(now, *due), alarms=MappingProxyType(remaining))

    def rings_at(self) -> float | None:
        """Return when the next mark is due; None if none is."""
        return min(self.alarms.values(), default=None)

    def begun(self, now: float) -> Schedule:
        """Forget the marks: the loop is looking."""
        return replace(self, marks=frozenset(), later=None, checked=now)

    def reading(self, at: float) -> Schedule:
        """Look again at that time at the latest, whatever happens."""
        return replace(self, later=at if self.later is None else min(at, self.later))

    def check_at(self, going_on: Collection[ObjectKey] = ()) -> float | None:
        """Return when to look next; None if nothing asks for it. What is going on isn't tried again meanwhile."""
        if self.whole:
            return self.whole.not_before
        moments = [retry.at for key, retry in self.retries.items() if key not in going_on]
        if self.hindrance:
            moments.append(self.hindrance.at)
        if self.later is not None:
            moments.append(self.later)
        moments = [max(at, self.checked + FLOOR) for at in moments]
        if self.marks:
            at = min(self.last + QUIET, self.first + LONGEST)
            moments.append(max(at, self.checked + FLOOR) if self.busy(self.checked) else at)
        return min(moments, default=None)

    def waiting(self, now: float, wanted: Mapping[ObjectKey, str]) -> frozenset[ObjectKey]:
        """Return the keys that must not be retried yet; `wanted` has the desired digest of each load balancer."""
        return frozenset(
            key
            for key, retry in self.retries.items()
            if retry.wanted == wanted.get(key, "") and not retry.backoff.is_due(now)
        )

    def busy(self, now: float) -> Mapping[ObjectKey, float]:
        """Return the load balancers that were updated so often that they wait now and then, and until when each does.

        What belongs to the stack changes with others: it waits for none.
        """
        often = ((key, times) for key, times in self.recent.items() if len(times) == BURST and key.cluster)
        return {key: times[-1] + APART for key, times in often if times[0] + SPAN > now}

    def updating(self, now: float, keys: Collection[ObjectKey]) -> Schedule:
        """Note that an update of these begins."""
        recent = {key: times for key, times in self.recent.items() if times[-1] + SPAN > now}
        recent |= {key: (*recent.get(key, ()), now)[-BURST:] for key in keys}
        return replace(self, recent=MappingProxyType(recent))

    def ended(
        self,
        now: float,
        done: Collection[ObjectKey],
        failed: Mapping[ObjectKey, str],
        chance: float,
        dependent: Collection[ObjectKey] = (),
    ) -> Schedule:
        """Record the result of an update: `failed` by wanted digest; `chance` (0 to 1) spreads simultaneous retries.

        `dependent` failed because of something else, which is retried on its own.
        """
        retained = {key: retry for key, retry in self.retries.items() if key not in done}
        for key, wanted in failed.items():
            pace = OF_OTHERS if key in dependent else UPDATES
            retained[key] = _retry(self.retries.get(key), now, chance, wanted, pace)
        after = self.repaired(now, self.crashes.keys() & done)
        return replace(after, retries=MappingProxyType(retained), updated=now)

    def interrupted(self, now: float, remaining: Collection[ObjectKey]) -> Schedule:
        """Note what is left of a look, because something new came; nothing if all was done."""
        return replace(self, remaining=MappingProxyType({key: self.remaining.get(key, now) for key in remaining}))

    def overdue(self, now: float) -> tuple[ObjectKey, ...]:
        """Return what was left for so long that it goes with what would go before it, the longest first."""
        late = (key for key, since in self.remaining.items() if now - since >= TIMEOUT)
        return tuple(sorted(late, key=self.remaining.__getitem__))

    def repaired(self, now: float, keys: Collection[ObjectKey]) -> Schedule:
        """Note that the proxies of these ended and serve again."""
        crashes = {key: backoff for key, backoff in self.crashes.items() if not backoff.is_idle(now)}
        for key in keys:
            crashes[key] = self.crashes.get(key, Backoff(CRASHES)).succeeded(now)
        return replace(self, crashes=MappingProxyType(crashes))

    def idle_at(self, now: float, *, busy: bool) -> float:
        """Return when things will have been calm for a moment, if nothing happens; `busy` if something does now."""
        return (now if busy else self.updated) + REST

    def removed(self, keys: Collection[ObjectKey]) -> Schedule:
        """Note that these are gone: one that comes back under such a name starts again."""
        crashes = {key: backoff for key, backoff in self.crashes.items() if key not in keys}
        return replace(self, crashes=MappingProxyType(crashes))

    def exited(self, now: float, key: ObjectKey, wanted: Mapping[ObjectKey, str], chance: float) -> Schedule:
        """Note that a proxy ended: one that was repaired a moment ago waits before it is repaired again."""
        before = self.crashes.get(key)
        if before is None or before.is_idle(now):
            return self
        after = before.failed(now, chance)
        retries = {**self.retries, key: Retry(after, wanted.get(key, ""))}
        crashes = {**self.crashes, key: after}
        return replace(self, retries=MappingProxyType(retries), crashes=MappingProxyType(crashes))

    def back(self, now: float, clusters: Collection[ClusterName]) -> Schedule:
        """Note that these clusters can be read again: what failed of them need not wait any longer."""
        return self.expedited(now, {key for key in self.retries if key.cluster in clusters})

    def expedited(self, now: float, keys: Collection[ObjectKey]) -> Schedule:
        """Note that what made these fail may be gone: they need not wait any longer."""
        due = {key: self.retries[key] for key in keys if key in self.retries}
        expedited = {key: replace(retry, backoff=retry.backoff.expedited(now)) for key, retry in due.items()}
        return replace(self, retries=MappingProxyType({**self.retries, **expedited})) if due else self

    def planned(self, open_: Collection[ObjectKey]) -> Schedule:
        """Note that reading and planning succeeded; what isn't open any more isn't tried any more."""
        retained = {key: retry for key, retry in self.retries.items() if key in open_}
        return replace(self, retries=MappingProxyType(retained))

    def healthy(self) -> Schedule:
        """Note that nothing failed as a whole, neither reading nor planning nor an update."""
        return replace(self, whole=None)

    def blocked(self, now: float, what: str, chance: float) -> Schedule:
        """Note what stands in the way on this host, in any words; nothing if empty."""
        before = self.hindrance
        if not what:
            return replace(self, hindrance=None)
        if before and before.wanted == what and not before.backoff.is_due(now):
            return self
        return replace(self, hindrance=_retry(before, now, chance, what))

    def broken(self, now: float, chance: float) -> Schedule:
        """Note that reading, planning or the update as a whole failed."""
        return replace(self, whole=(self.whole or Backoff(WHOLE)).failed(now, chance))


def _retry(before: Retry | None, now: float, chance: float, wanted: str, pace: Pace = UPDATES) -> Retry:
    same = before and before.wanted == wanted and before.backoff.pace == pace
    backoff = before.backoff if before and same else Backoff(pace)
    return Retry(backoff.failed(now, chance), wanted)
