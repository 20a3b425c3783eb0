"""Load balancers that must be in the same update as others, because one refers to or waits for another.

An update leaves alone what isn't of it, and removes nothing to which that refers. Not here: the update (`converge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from locallb.model.identities import ObjectKey, ObjectKind
from locallb.planning.planned import Plan
from locallb.planning.planned_for_clusters import ROUTES


def companions(
    keys: Collection[ObjectKey],
    plan: Plan,
    wanted: Mapping[ObjectKey, str],
    applied: Mapping[ObjectKey, str],
    placed: Collection[ObjectKey],
) -> set[ObjectKey]:
    """Return what must come along with `keys` of a plan; `placed` are those that it gives addresses."""
    sets = {key for key in keys if key.kind is ObjectKind.LISTENER_SET}
    if any(key.kind is ObjectKind.GATEWAY and key not in placed for key in keys):
        # Who refers to the proof of one that goes isn't as planned itself.
        changed = (key for key, digest in applied.items() if wanted.get(key) != digest)
        sets |= {key for key in changed if key.kind is ObjectKind.LISTENER_SET}
    return {*_proven_by_routes(keys, plan, wanted), *sets, *_proving(sets, plan)}


def _proven_by_routes(keys: Collection[ObjectKey], plan: Plan, wanted: Mapping[ObjectKey, str]) -> Iterator[ObjectKey]:
    """Return what is proven by routes that go: it refers to them, and must let go first."""
    gone = {key.name.removesuffix(f"/{ROUTES}") for key in keys if not key.cluster and key not in wanted}
    if gone:
        yield from (one.key for one in plan.placements if one.key.cluster in gone and one.key in wanted)


def _proving(sets: Collection[ObjectKey], plan: Plan) -> Iterator[ObjectKey]:
    """Return the Gateways for whose proof ListenerSets wait, also for one that failed before."""
    if sets:
        yield from (gateway for waiting, gateway in plan.awaited if waiting in sets)
