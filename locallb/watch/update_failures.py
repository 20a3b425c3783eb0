"""Which updates fail, since when, and when they are tried again. Pure.

Not here: when that is (`schedule`), and failures of reading or planning as a whole (`events.Failed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from msgspec import Struct

from locallb.model.identities import ObjectKey
from locallb.watch.events import Planned, Updated


class UpdateFailure(Struct, frozen=True):
    """A load balancer, or a proxy of the stack, that can't be updated."""

    key: ObjectKey
    sentence: str
    """Why not: the resource, and what it ran into."""
    since: float
    """When it failed first, in seconds since the epoch."""
    retry: float = 0.0
    """When it is tried again, likewise; 0 where that is unknown."""


Failures = Mapping[ObjectKey, UpdateFailure]


def after_update(before: Failures, updated: Updated, at: float) -> Failures:
    """Return what fails after an update that was reported at this time."""
    if not (updated.failed or before.keys() & updated.services):
        return before
    remaining = {key: failure for key, failure in before.items() if key not in updated.services}
    for key, sentence in updated.failed.items():
        since = before[key].since if key in before else at
        remaining[key] = UpdateFailure(key, sentence, since, updated.retries.get(key, 0.0))
    return remaining


def after_plan(before: Failures, planned: Planned) -> Failures:
    """Return what still fails: objects that are gone, and of which nothing is left to remove, don't."""
    if not before:
        return before
    plan = planned.plan
    keys = [[each.key for each in plan.placements], [each.key for each in plan.rejections]]
    keys += [[each.key for each in plan.statuses], [each.key for each in plan.proxies]]
    existing = {*planned.differing, *chain.from_iterable(keys)}
    return {key: failure for key, failure in before.items() if key in existing}
