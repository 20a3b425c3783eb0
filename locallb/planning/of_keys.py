"""Finds what a plan has of a few Services, without going through all of it. Not here: any decision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from locallb.model.identities import ObjectKey
from locallb.planning.planned import Placement, Plan

_KEY = attrgetter("key")


def placements_of(plan: Plan, keys: Iterable[ObjectKey]) -> tuple[Placement, ...]:
    """Return the placements of these, in the plan's order, which is that of keys."""
    placements = plan.placements
    places = ((bisect_left(placements, key, key=_KEY), key) for key in sorted(set(keys)))
    return tuple(placements[place] for place, key in places if place < len(placements) and placements[place].key == key)
