"""When to look, and what to try again: pure data and functions that are told the time.

Marks coalesce: the loop looks a moment after the last one, and never later than `LONGEST` after the first. A load
balancer that failed waits alone, longer each time, and is tried at once where what it shall be has changed. Times are
seconds of one monotonic clock. Not here: threads, clocks, chance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from locallb.planning.model import ClusterName, ServiceKey
from locallb.watch.happenings import Cause, Mark

QUIET = 0.001
"""Seconds without a mark after which the loop looks."""
LONGEST = 0.05
"""Seconds after the first mark at which it looks in any case."""
FIRST_RETRY, LAST_RETRY = 0.05, 30.0
"""Seconds before something that failed is tried again: at first, and at most."""
LAST_WHOLE = 3.0
"""The same at most where nothing can be done at all: most often another command holds the stack's lock."""
CALM = 1.0
"""Seconds that a repaired proxy must live for its next end to be repaired at once: several times what that costs."""
REST = 0.2
"""Seconds after the last update until what nobody needs yet is made: it would take a core from what somebody does."""
_MENDING = frozenset({Cause.CONFIGURATION, Cause.KUBECONFIG, Cause.KIND})
"""Causes that may have mended what kept the whole from being read: they don't wait for its next try."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Something that failed: how often in a row, when to try again, and what it was to be."""

    failures: int
    at: float
    wanted: str = ""


_NOTHING: Mapping[ServiceKey, Retry] = MappingProxyType({})
_NO_ALARM: Mapping[Mark, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is marked and what waits."""

    marks: frozenset[Mark] = frozenset()
    first: float = 0.0
    last: float = 0.0
    retries: Mapping[ServiceKey, Retry] = field(default_factory=lambda: _NOTHING)
    mended: Mapping[ServiceKey, Retry] = field(default_factory=lambda: _NOTHING)
    """Those whose proxy ended and was repaired: how often in a row, and when."""
    later: float | None = None
    """When to look although nothing is marked."""
    whole: Retry | None = None
    """That of reading, planning and updates as a whole."""
    hindrance: Retry | None = None
    """That of what stands in the way on this host and may end without a word."""
    alarms: Mapping[Mark, float] = field(default_factory=lambda: _NO_ALARM)
    """Marks that nobody else sets: when each is due."""
    updated: float = -math.inf
    """When the last update ended."""

    def marked(self, now: float, *marks: Mark) -> Schedule:
        """Note that something may have changed."""
        whole = self.whole
        if whole and any(mark.cause in _MENDING for mark in marks):
            whole = replace(whole, at=min(whole.at, now))
        first = self.first if self.marks else now
        return replace(self, marks=self.marks.union(marks), first=first, last=now, whole=whole)

    def alarmed(self, at: float, mark: Mark) -> Schedule:
        """Set a mark at that time, unless that is to be done at another time already."""
        return replace(self, alarms=MappingProxyType({mark: at, **self.alarms}))

    def rung(self, now: float) -> Schedule:
        """Set the marks that are due."""
        due = [mark for mark, at in self.alarms.items() if at <= now]
        if not due:
            return self
        left = {mark: at for mark, at in self.alarms.items() if at > now}
        return replace(self.marked(now, *due), alarms=MappingProxyType(left))

    def rings_at(self) -> float | None:
        """Tell when the next mark is due; None if none is."""
        return min(self.alarms.values(), default=None)

    def taken(self) -> Schedule:
        """Forget the marks: the loop is looking."""
        return replace(self, marks=frozenset(), later=None)

    def looking(self, at: float) -> Schedule:
        """Look again at that time, whatever happens."""
        return replace(self, later=at)

    def look_at(self) -> float | None:
        """Tell when to look next; None if nothing asks for it."""
        moments = [retry.at for retry in self.retries.values()]
        moments.extend(retry.at for retry in (self.whole, self.hindrance) if retry)
        if self.later is not None:
            moments.append(self.later)
        if self.marks:
            marked = min(self.last + QUIET, self.first + LONGEST)
            moments.append(max(marked, self.whole.at) if self.whole else marked)
        return min(moments) if moments else None

    def waiting(self, now: float, wanted: Mapping[ServiceKey, str]) -> frozenset[ServiceKey]:
        """Tell what must not be tried yet. `wanted` says what each load balancer shall be now, by digest."""
        return frozenset(
            key for key, retry in self.retries.items() if retry.at > now and retry.wanted == wanted.get(key, "")
        )

    def ended(
        self,
        now: float,
        done: Collection[ServiceKey],
        failed: Mapping[ServiceKey, str],
        chance: float,
        repaired: Collection[ServiceKey] = (),
    ) -> Schedule:
        """Note how an update ended: `failed` by what was wanted; `chance` (0 to 1) spreads those that fail together."""
        kept = {key: retry for key, retry in self.retries.items() if key not in done}
        for key, wanted in failed.items():
            kept[key] = _again(self.retries.get(key), now, chance, wanted)
        mended = {key: one for key, one in self.mended.items() if now - one.at < CALM * one.failures}
        for key in repaired:
            mended[key] = Retry(mended[key].failures + 1 if key in mended else 1, now)
        return replace(self, retries=MappingProxyType(kept), mended=MappingProxyType(mended), updated=now)

    def calm_at(self, now: float, *, busy: bool) -> float:
        """Tell when things will have been calm for a moment, if nothing happens; `busy` if something does now."""
        return (now if busy else self.updated) + REST

    def gone(self, keys: Collection[ServiceKey]) -> Schedule:
        """Note that these are no more: who comes back under such a name starts anew."""
        mended = {key: one for key, one in self.mended.items() if key not in keys}
        return replace(self, mended=MappingProxyType(mended))

    def fell(self, now: float, key: ServiceKey, wanted: Mapping[ServiceKey, str], chance: float) -> Schedule:
        """Note that a proxy ended: one that was repaired a moment ago waits before it is repaired again."""
        before = self.mended.get(key)
        if before is None or now - before.at > CALM:
            return self
        retry = _retry(before.failures, now, chance, wanted.get(key, ""))
        return replace(self, retries=MappingProxyType({**self.retries, key: retry}))

    def back(self, clusters: Collection[ClusterName]) -> Schedule:
        """Note that these clusters can be read again: what failed of them need not wait any longer."""
        kept = {
            key: replace(retry, at=0.0) if key.cluster in clusters else retry for key, retry in self.retries.items()
        }
        return replace(self, retries=MappingProxyType(kept)) if clusters else self

    def planned(self, open_: Collection[ServiceKey]) -> Schedule:
        """Note that reading and planning succeeded; what isn't open any more isn't tried any more."""
        kept = {key: retry for key, retry in self.retries.items() if key in open_}
        return replace(self, retries=MappingProxyType(kept))

    def well(self) -> Schedule:
        """Note that nothing failed as a whole, neither reading nor planning nor an update."""
        return replace(self, whole=None)

    def hindered(self, now: float, what: str, chance: float) -> Schedule:
        """Note what stands in the way on this host, in any words; nothing if empty."""
        before = self.hindrance
        if not what:
            return replace(self, hindrance=None)
        if before and before.wanted == what and now < before.at:
            return self
        return replace(self, hindrance=_again(before, now, chance, what))

    def broken(self, now: float, chance: float) -> Schedule:
        """Note that reading, planning or the update as a whole failed."""
        again = _again(self.whole, now, chance, "")
        return replace(self, whole=replace(again, at=min(again.at, now + LAST_WHOLE)))


def _again(before: Retry | None, now: float, chance: float, wanted: str) -> Retry:
    failures = before.failures + 1 if before and before.wanted == wanted else 1
    return _retry(failures, now, chance, wanted)


def _retry(failures: int, now: float, chance: float, wanted: str) -> Retry:
    return Retry(failures, now + delay(failures) * (1 + chance / 4), wanted)


def delay(failures: int) -> float:
    """Tell how many seconds to wait after so many failures in a row."""
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 32))
