"""What the soak measures of a loop: what it has, what it costs while nothing can be done, how soon all converges."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

IDLE = 0.1
"""Part of a core that a loop may use while nothing can be done: twice what it shall, as others use the same cores."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """By kind of fault: how often, the longest time until all was as wanted again, the loop's seconds of a core."""

    done: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    quiet: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds for which it was looked at."""

    @contextmanager
    def nothing_done(self, kind: str, pid: int) -> Iterator[None]:
        """Measure the loop while nobody changes anything."""
        before, begun = spent(pid), time.monotonic()
        yield
        self.busy[kind] += spent(pid) - before
        self.quiet[kind] += time.monotonic() - begun

    def converged(self, kind: str, seconds: float) -> None:
        """Note how long it took after a fault."""
        self.done[kind] += 1
        self.slowest[kind] = max(seconds, self.slowest.get(kind, 0.0))

    def share(self) -> float:
        """Return the part of a core that the loop used, over all faults."""
        return sum(self.busy.values()) / (sum(self.quiet.values()) or 1)

    def __str__(self) -> str:
        lines = [
            f"{kind}: {times} times, converged within {self.slowest[kind]:.1f} s, "
            f"{self.busy[kind] / self.quiet[kind]:.1%} of a core"
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
