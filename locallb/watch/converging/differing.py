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
from locallb.kubernetes.parsing.objects import Said
from locallb.kubernetes.status_patch import ObservedStatus, differences
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

    def of(self, plan: Plan, said: Mapping[ObjectKey, Said]) -> Iterator[tuple[ObjectKey, tuple[str, ...]]]:
        """Name the differences in objects of live clusters, with the key of the update that writes each."""
        placed = chain.from_iterable(map(_told_by, plan.placements))
        refused = ((each.key, each.key, each) for each in plan.rejections if each.access)
        rows = *placed, *refused, *((each.key, each.key, each) for each in plan.statuses)
        names = [
            (teller, self._compared.of((teller, key, type(told)), differences_of, told, said.get(key)))
            for teller, key, told in rows
        ]
        self._compared.evict_unused()
        return ((teller, differing) for teller, differing in names if differing)


def _told_by(placement: Placement) -> tuple[_Row, ...]:
    """Return the statuses that a placement's update writes, each with its object."""
    own: tuple[_Row, ...] = ((placement.key, placement.key, placement),) if placement.access else ()
    return *own, *((placement.key, each.key, each) for each in placement.statuses)


def differences_of(planned: Desired, said: Said | None) -> tuple[str, ...]:
    """Name what isn't as planned; nothing where it is unknown what an object of Gateway API says."""
    if isinstance(planned, PlannedStatus):
        return _of_status(planned, said)
    if planned.key.kind.value not in FRONTENDS:
        return _of_status(planned.status, said) if planned.status else ()
    return _of_frontend(planned, said if isinstance(said, ObservedStatus) else _SILENT)


def _of_status(planned: PlannedStatus, said: Said | None) -> tuple[str, ...]:
    if not isinstance(said, ObservedRouteStatus):
        return ()
    return said.differences(json.loads(planned.status), planned.generation)


def _of_frontend(planned: Placement | Rejection, said: ObservedStatus) -> tuple[str, ...]:
    wanted = frontend(planned.key.kind).publication(planned)
    if isinstance(planned, Rejection):
        return differences(said, (), wanted)
    unclaimed = () if said.claimed else ("finalizer",)
    return *unclaimed, *differences(said, (), wanted, alone=planned.take_over)
