"""The work queue: what is to be updated, the most urgent first, in portions. Pure.

Not here: how it is found out and done (`converge`), and what has to wait (`schedule`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import is_, ne

from msgspec import Struct

from locallb.model.identities import ObjectKey

MAX = 50
"""Load balancers of one update."""
FEW = 20
"""The same where nothing is known to be wrong: whatever happens meanwhile waits for the end of that update."""
CHECKS = 250
"""The same where they are only looked at, which takes a few tenths of a second."""


@dataclass(frozen=True, slots=True)
class Work:
    """Load balancers that aren't as planned, the most urgent kind first."""

    broken: tuple[ObjectKey, ...] = ()
    """What serves them ended or was changed by others."""
    removed: tuple[ObjectKey, ...] = ()
    """Not planned any more."""
    changed: tuple[ObjectKey, ...] = ()
    new: tuple[ObjectKey, ...] = ()
    reported: tuple[ObjectKey, ...] = ()
    """New or changed load balancers without traffic: only a status is written."""
    spare: tuple[ObjectKey, ...] = ()
    """New as well, but spare proxies."""
    unchecked: tuple[ObjectKey, ...] = ()
    """As planned if the state says true, which hasn't been checked since the start."""
    few: int = field(default=FEW, kw_only=True)
    """Of those, in one update."""
    overdue: tuple[ObjectKey, ...] = field(default=(), kw_only=True)
    """What waited long enough for what goes before it, the longest first."""

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        """All of them."""
        return (*self.differing, *self.unchecked)

    @property
    def differing(self) -> tuple[ObjectKey, ...]:
        """Load balancers that are known to differ from the plan."""
        return (*self.broken, *self.removed, *self.changed, *self.new, *self.reported, *self.spare)

    @property
    def urgent(self) -> bool:
        """Whether any of it is needed now."""
        return bool(self.broken or self.removed or self.changed or self.new or self.reported)

    @property
    def patient(self) -> tuple[ObjectKey, ...]:
        """What may have to wait for others."""
        return (*self.changed, *self.new, *self.reported)

    def without(self, keys: Collection[ObjectKey]) -> Work:
        """Leave some out."""
        excluded = frozenset(keys)

        def rest(some: tuple[ObjectKey, ...]) -> tuple[ObjectKey, ...]:
            return tuple(key for key in some if key not in excluded)

        every = (self.broken, self.removed, self.changed, self.new, self.reported, self.spare, self.unchecked)
        return Work(*(rest(some) for some in every), few=self.few, overdue=self.overdue)

    def first(self) -> Batch:
        """Return the load balancers of the next update.

        Existing ones don't wait for new ones, and nothing that serves waits for a mere status: a few of those are
        included with others, many come afterwards. As existing ones may change all the time, a few overdue ones are
        always included. Spares come one by one: an Envoy takes long to start, and other triggers wait for the end of
        its update.
        """
        if self.broken:
            return Batch(self.broken[:MAX], refresh=True)
        patient = frozenset(self.patient if self.overdue else ())
        late = [key for key in self.overdue if key in patient][:FEW]
        present = tuple(sorted((*self.removed, *self.changed), key=self._is_orphaned_elsewhere))
        if serving := present or self.new:
            along = self.reported if len(serving) + len(self.reported) <= FEW else ()
            return Batch(_once(*_once(*late, *serving)[:MAX], *along), patient=not present)
        if self.reported:
            return Batch(_once(*late, *self.reported)[:MAX], patient=True)
        if self.spare:
            return Batch(self.spare[:1], patient=True)
        return Batch(self.unchecked[: self.few], refresh=True, patient=True)

    def _is_orphaned_elsewhere(self, key: ObjectKey) -> bool:
        """Return whether it is a proxy or routes of the stack, which go when they are unused."""
        return not key.cluster and key in self.removed


def _once(*keys: ObjectKey) -> tuple[ObjectKey, ...]:
    return tuple(dict.fromkeys(keys))


def together(keys: Iterable[ObjectKey], proxies: Mapping[ObjectKey, str]) -> tuple[ObjectKey, ...]:
    """Sort, grouped by the proxy in `proxies` that serves them: one check of it answers for the whole group."""
    return tuple(sorted(keys, key=lambda key: (proxies.get(key, ""), key)))


class Batch(Struct, frozen=True):
    """Load balancers of one update; `refresh` looks at the world first, where the state may be wrong."""

    keys: tuple[ObjectKey, ...]
    refresh: bool = False
    patient: bool = False
    """Whether none of it serves, or did: it may wait until fewer are under way."""


def differing_work(  # noqa: PLR0913 - all that decides
    wanted: Mapping[ObjectKey, str],
    existing: Mapping[ObjectKey, str],
    broken: Collection[ObjectKey],
    *,
    spare: Collection[ObjectKey],
    reported: Collection[ObjectKey],
    unchecked: tuple[ObjectKey, ...],
    few: int,
) -> Work:
    """Return the differences of `existing` from `wanted`; `broken` is already sorted."""
    in_step = is_in_step(wanted, existing)
    different = _different(wanted, existing, in_step=in_step)
    changed = [key for key in different if key in existing and key not in broken]
    new = [key for key in different if not (key in existing or key in broken)]
    return Work(
        broken=tuple(broken),
        removed=() if in_step else _removed(wanted, existing),
        changed=tuple(key for key in changed if key not in reported),
        new=tuple(key for key in new if key not in spare and key not in reported),
        reported=tuple(key for key in (*changed, *new) if key in reported),
        spare=tuple(key for key in new if key in spare),
        unchecked=unchecked,
        few=few,
    )


def is_in_step(wanted: Mapping[ObjectKey, str], existing: Mapping[ObjectKey, str]) -> bool:
    """Return whether both have identical keys in the same order: then the comparison needs no lookups."""
    return len(wanted) == len(existing) and all(map(is_, wanted, existing))


def in_order_of(wanted: Mapping[ObjectKey, str], existing: dict[ObjectKey, str]) -> dict[ObjectKey, str]:
    """Return what is `existing` in step with what is `wanted`, where both have the same keys."""
    if is_in_step(wanted, existing) or wanted.keys() != existing.keys():
        return existing
    return {key: existing[key] for key in wanted}


def _different(
    wanted: Mapping[ObjectKey, str], existing: Mapping[ObjectKey, str], *, in_step: bool
) -> Sequence[ObjectKey]:
    """Return what is wanted and isn't known to be so: of thousands at once."""
    digests = existing.values() if in_step else map(existing.get, wanted)
    return [*compress(wanted, map(ne, wanted.values(), digests))]


def _removed(wanted: Mapping[ObjectKey, str], existing: Mapping[ObjectKey, str]) -> tuple[ObjectKey, ...]:
    """Return what isn't wanted any more, proxies of the stack last."""
    return tuple(sorted(existing.keys() - wanted.keys(), key=lambda key: (not key.cluster, key)))
