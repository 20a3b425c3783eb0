"""The differences in an object that others wrote to, found by the same decision that the update makes.

Not here: when that is known, and when it is repaired (`converge`, `disputes`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from msgspec import Struct, field

from locallb.config.registry import FRONTENDS
from locallb.gateway.status.observed import ObservedRouteStatus
from locallb.kubernetes.frontend import frontend
from locallb.kubernetes.parsing.objects import AnyStatus
from locallb.kubernetes.status_patch import WAITING, ObservedStatus, awaiting, differences
from locallb.model.identities import ObjectKey
from locallb.model.memory import Memo
from locallb.planning.planned import Placement, Plan, PlannedStatus, Rejection

Desired: TypeAlias = Placement | Rejection | PlannedStatus
"""Planned content of an object's status."""
_Row: TypeAlias = tuple[ObjectKey, ObjectKey, Desired]
"""Key of the update that writes the status, key of the object, planned content."""
_SILENT = ObservedStatus()


class Differences(Struct):
    """Knows what differed of what was planned and said, so that another look costs what is new. For one thread."""

    _compared: Memo[tuple[str, ...]] = field(default_factory=Memo)

    def of(self, plan: Plan, stated: Mapping[ObjectKey, AnyStatus]) -> Iterator[tuple[ObjectKey, tuple[str, ...]]]:
        """Name the differences in objects of live clusters, with the key of the update that writes each."""
        placed = chain.from_iterable(map(_reported_by, plan.placements))
        refused = ((each.key, each.key, each) for each in plan.rejections if each.access)
        rows = *placed, *refused, *((each.key, each.key, each) for each in plan.statuses)
        names = [
            (teller, self._compared.of((teller, key, type(reported)), differences_of, reported, stated.get(key)))
            for teller, key, reported in rows
        ]
        self._compared.evict_unused()
        return ((teller, differing) for teller, differing in names if differing)


def _reported_by(placement: Placement) -> tuple[_Row, ...]:
    """Return the statuses that a placement's update writes, each with its object."""
    own: tuple[_Row, ...] = ((placement.key, placement.key, placement),) if placement.access else ()
    return *own, *((placement.key, each.key, each) for each in placement.statuses)


def differences_of(planned: Desired, stated: AnyStatus | None) -> tuple[str, ...]:
    """Name what isn't as planned; nothing where it is unknown what an object of Gateway API says."""
    if isinstance(planned, PlannedStatus):
        return _of_status(planned, stated)
    if planned.key.kind.value not in FRONTENDS:
        return _of_status(planned.status, stated) if planned.status else ()
    return _of_frontend(planned, stated if isinstance(stated, ObservedStatus) else _SILENT)


def _of_status(planned: PlannedStatus, stated: AnyStatus | None) -> tuple[str, ...]:
    if not isinstance(stated, ObservedRouteStatus):
        return ()
    return stated.differences(json.loads(planned.status), planned.generation)


def _of_frontend(planned: Placement | Rejection, stated: ObservedStatus) -> tuple[str, ...]:
    wanted = frontend(planned.key.kind).publication(planned)
    if isinstance(planned, Rejection):
        return differences(stated, (), wanted)
    if stated.serving and stated.serving.reason == WAITING:  # the proof decides when that ends
        wanted = awaiting(wanted, stated.serving.message)
    unclaimed = () if stated.claimed else ("finalizer",)
    return *unclaimed, *differences(stated, (), wanted, alone=planned.take_over)
