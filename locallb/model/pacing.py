"""Back-off and rate limits: the one implementation for everything that is tried more than once.

`Pace` is the policy, `Backoff` the history: the caller checks `wait` before an attempt and reports its result. `Quota`
limits the rate of many callers, `Credit` grants a caller a few extra. All times are seconds of one monotonic clock. Not
here: threads, clocks, randomness, and the attempts.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque

from msgspec import Struct, field
from msgspec.structs import replace

_MAX_STEPS = 64
"""Failures in a row after which a wait grows no more: numbers stay finite."""


class Pace(Struct, frozen=True):
    """Limits on the frequency of attempts."""

    first: float
    """Seconds to wait after the first failure."""
    longest: float
    """Seconds to wait after many failures, before chance is added."""
    factor: float = 2.0
    """By how much each further failure in a row lengthens the wait."""
    floor: float = 0.0
    """Seconds between the end of an attempt and the next attempt in any case, also after success."""
    idle: float = 0.0
    """Seconds that success must last before earlier failures are forgotten: who succeeds and fails in turn waits."""
    spread: float = 0.25
    """By which part of itself chance may lengthen a wait, so that what failed together isn't tried together."""

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Return the seconds to wait after `failures` in a row; `chance` is from 0 to 1."""
        if failures < 1:
            return self.floor
        grown = self.first * self.factor ** min(failures - 1, _MAX_STEPS)
        return max(self.floor, min(self.longest, grown) * (1 + self.spread * chance))


class Backoff(Struct, frozen=True):
    """Attempts at one thing: how they ended, and when the next may begin."""

    pace: Pace
    failures: int = 0
    """In a row; success that doesn't last doesn't end the row."""
    not_before: float = -math.inf
    """When the next attempt may begin; it is due from then on."""
    healthy_since: float = math.inf
    """Since when it succeeds; infinite while it doesn't."""
    _earliest: float = -math.inf
    """When the floor ends."""

    def is_due(self, now: float) -> bool:
        """Return whether it may be tried now."""
        return self.not_before <= now

    def wait(self, now: float) -> float:
        """Return the seconds until it may be tried; 0 if it may now."""
        return max(0.0, self.not_before - now)

    @property
    def is_healthy(self) -> bool:
        return self.healthy_since < math.inf

    def is_idle(self, now: float) -> bool:
        """Return whether it has succeeded for so long that earlier failures count no more."""
        return now - self.healthy_since >= self.pace.idle

    def failed(self, now: float, chance: float) -> Backoff:
        """Note that an attempt, or what succeeded before, failed."""
        failures = 1 if self.is_idle(now) else self.failures + 1
        at = now + self.pace.delay(failures, chance)
        return Backoff(self.pace, failures, at, math.inf, now + self.pace.floor)

    def succeeded(self, now: float) -> Backoff:
        """Note that an attempt succeeded, or that an earlier success still holds."""
        since = min(self.healthy_since, now)
        failures = 0 if now - since >= self.pace.idle else self.failures
        earliest = now + self.pace.floor
        return Backoff(self.pace, failures, earliest, since, earliest)

    def expedited(self, now: float) -> Backoff:
        """Retry as soon as the floor allows: the cause of failures may be gone. The count of failures continues."""
        return replace(self, not_before=min(self.not_before, max(now, self._earliest)))


class Credit(Struct):
    """Turns that a changed object brings: `each`, once in a `life`, and lost at its end. Time never runs backwards."""

    each: int = 0
    life: float = 0.0
    """Seconds."""
    _ends: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Time at which each object's turns expire, the earliest first."""
    _remaining: deque[tuple[float, int]] = field(default_factory=deque)
    """Number of remaining turns and their end, in the same order; only positive numbers."""

    def bring(self, party: str, now: float, times: int = 1) -> None:
        """Note that an object changed, counted `times` times. More changes in its life add nothing."""
        self._forget(now)
        if party not in self._ends:
            self._ends[party] = now + self.life
            if self.each > 0:
                self._remaining.append((now + self.life, self.each * times))

    def is_remaining(self, now: float) -> bool:
        """Return whether there is a turn."""
        self._forget(now)
        return bool(self._remaining)

    def spend(self, now: float) -> None:
        """Use up one turn, if any remains."""
        if self.is_remaining(now):
            end, remaining = self._remaining.popleft()
            if remaining > 1:
                self._remaining.appendleft((end, remaining - 1))

    def _forget(self, now: float) -> None:
        """Forget what counts no more."""
        while self._remaining and self._remaining[0][0] <= now:
            self._remaining.popleft()
        while self._ends and self._ends[party := next(iter(self._ends))] <= now:
            del self._ends[party]


class Quota(Struct):
    """Turns of many callers: at most `maximum` within any `span`, and a few more that are owed or granted."""

    maximum: int
    span: float = 1.0
    """Seconds."""
    owed: int = 0
    """Number of turns above `maximum` that may be taken if the last ones are owed to a waiting caller."""
    credit: Credit = field(default_factory=Credit)
    """Extra turns, taken if no other is free."""
    _claimed: deque[float] = field(default_factory=deque)
    """When the last turns were taken, as many as may count, in order."""

    def wait(self, now: float, *, is_owed: bool = False) -> float:
        """Return the seconds until the next turn is free; 0 if one may be taken now."""
        return 0.0 if self.credit.is_remaining(now) else self._wait(now, is_owed=is_owed)

    def take(self, now: float, *, is_owed: bool = False) -> None:
        """Note that a turn was taken."""
        if self.credit.is_remaining(now) and self._wait(now, is_owed=is_owed) > 0:
            self.credit.spend(now)
            return
        self._claimed.append(now)
        self._forget()

    def bring(self, party: str, now: float, times: int = 1) -> None:
        """Note that an object changed, which brings turns."""
        self.credit.bring(party, now, times)

    def allow(self, maximum: int) -> None:
        """Set the limit of turns. Dropped earlier turns were too long ago to count."""
        self.maximum = maximum
        self._forget()

    def _forget(self) -> None:
        """Forget turns that more recent ones make count no more."""
        while len(self._claimed) > self.maximum + self.owed:
            self._claimed.popleft()

    def _wait(self, now: float, *, is_owed: bool) -> float:
        """Return the seconds until there is a turn that no change brought."""
        maximum = self.maximum + self.owed * is_owed
        return max(0.0, self._claimed[-maximum] + self.span - now) if len(self._claimed) >= maximum else 0.0
