"""What an update would change in an object that others wrote to, by the same decision that the update makes.

Not here: when that is known, and when it is repaired (`converge`, `disputes`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

from locallb.config.registry import FRONTENDS
from locallb.gateway.status.standing import StatusStanding
from locallb.kubernetes.frontend import frontend
from locallb.kubernetes.parsing.objects import Said
from locallb.kubernetes.status_patch import Standing, differences
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Placement, Plan, PlannedStatus, Rejection

Told: TypeAlias = Placement | Rejection | PlannedStatus
"""What of a plan is told to an object."""
_SILENT = Standing()


def told_of(plan: Plan) -> Iterator[tuple[ObjectKey, Told]]:
    """Return what is told to objects of live clusters, each with whose update tells it."""
    live: list[Placement | Rejection] = [*plan.placements, *plan.rejections]
    yield from ((each.key, each) for each in live if each.access)
    for placement in plan.placements:
        yield from ((placement.key, each) for each in placement.statuses)
    yield from ((each.key, each) for each in plan.statuses)


def differences_of(planned: Told, said: Said | None) -> tuple[str, ...]:
    """Name what isn't as it shall be; nothing where nobody knows what an object of Gateway API says."""
    if isinstance(planned, PlannedStatus):
        return _of_status(planned, said)
    if planned.key.kind.value not in FRONTENDS:
        return _of_status(planned.status, said) if planned.status else ()
    return _of_frontend(planned, said if isinstance(said, Standing) else _SILENT)


def _of_status(planned: PlannedStatus, said: Said | None) -> tuple[str, ...]:
    if not isinstance(said, StatusStanding):
        return ()
    return said.differences(json.loads(planned.status), planned.generation)


def _of_frontend(planned: Placement | Rejection, said: Standing) -> tuple[str, ...]:
    wanted = frontend(planned.key.kind).publication(planned)
    if isinstance(planned, Rejection):
        return differences(said, (), wanted)
    unclaimed = () if said.claimed else ("finalizer",)
    return *unclaimed, *differences(said, (), wanted, alone=planned.take_over)
