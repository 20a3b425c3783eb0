"""One pass of the loop: what it is for, since when it was wanted, and the event that says what was planned in it.

Not here: when a pass begins (`marks.schedule`), and what it does (`loop`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec import Struct

from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult
from locallb.watch.converging.work import Work
from locallb.watch.events import Cause, Mark, Planned
from locallb.watch.marks.schedule import Schedule
from locallb.watch.planner import Planner


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
        """Why the loop looks."""
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
