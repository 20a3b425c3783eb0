"""What the soak measures of a loop: what it has, what it costs while nothing can be done, how soon all converges."""

from __future__ import annotations

import os
import time
from bisect import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from locallb.kubernetes.api.writes import EACH, LIFE
from tests.support.faulty_api import FaultyApi

SLACK = 0.5
"""Seconds by which the loop hears of a change, and the API of a request, later than they are told and sent."""
IDLE = 0.05
"""Part of a core that a loop may use while nothing can be done."""
LONGEST = 30.0
"""Seconds for which a loop is measured that used more than that at first."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """By kind of fault: how often, the longest time until all was as wanted again, the loop's seconds of a core."""

    done: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    quiet: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds for which it was looked at."""
    requested: dict[str, int] = field(default_factory=dict)
    """Requests to the API in the busiest second, from the fault's beginning until all was as wanted again."""

    def nothing_done(self, kind: str, pid: int, seconds: float) -> float:
        """Measure the loop for `seconds` while nobody changes anything, and return the part of a core that it used.

        A pass over everything, or a retry, may take more than `IDLE` of a few seconds. So the time is as long as is
        needed, at most `LONGEST`, to tell that from a loop that never rests.
        """
        before, begun = spent(pid), time.monotonic()
        time.sleep(seconds)
        while (used := spent(pid) - before) >= IDLE * (took := time.monotonic() - begun) and took < LONGEST:
            time.sleep(1)
        self.busy[kind] += used
        self.quiet[kind] += took
        return used / took

    def converged(self, kind: str, seconds: float, requested: int) -> None:
        """Note how long it took after a fault, and how much was asked meanwhile."""
        self.done[kind] += 1
        self.requested[kind] = max(requested, self.requested.get(kind, 0))
        self.slowest[kind] = max(seconds, self.slowest.get(kind, 0.0))

    def share(self) -> float:
        """Return the part of a core that the loop used, over all faults."""
        return sum(self.busy.values()) / (sum(self.quiet.values()) or 1)

    def shares(self) -> dict[str, float]:
        """Return the same by kind of fault."""
        return {kind: self.busy[kind] / self.quiet[kind] for kind in self.quiet}

    def __str__(self) -> str:
        lines = [
            f"{kind}: {times} times, converged within {self.slowest[kind]:.1f} s, "
            f"{self.shares()[kind]:.1%} of a core, at most {self.requested[kind]} requests in a second"
            for kind, times in sorted(self.done.items())
        ]
        return "\n".join([*lines, f"all: {self.share():.1%} of a core while nothing could be done"])


def spent(pid: int) -> float:
    """Return the seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def size(pid: int) -> tuple[int, int, int]:
    """Return what a process has: MiB, open descriptors, threads."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(status["VmRSS"].split()[0]) // 1024, descriptors, int(status["Threads"])


def unasked(api: FaultyApi, since: float = 0.0) -> int:
    """Return the most requests in a second, besides those that Services bring of which a watch told changes before."""
    return max(
        (
            number - EACH * (bisect(api.changes, at + 1) - bisect(api.changes, at - LIFE - SLACK))
            for at, number in api.in_each_second()
            if at >= since
        ),
        default=0,
    )
