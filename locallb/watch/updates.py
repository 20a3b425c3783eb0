"""The updates of the loop: desired state, differences in statuses, the work queue in portions, and results.

The most urgent kind of work is first. A spare proxy that a Gateway has claimed is updated with it, no longer by itself.
Statuses of objects that other controllers wrote to are compared by the same decision that the update makes.

Not here: the update itself and the applied state (`converge`), when a repair is due (`failures`), what has to wait
(`schedule`), and which Gateway claims a spare proxy (`planning.proxy_assignment`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as field_dataclasse
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct, field

from locallb.desired import Desired, desired
from locallb.engine.core.events import Op, Result
from locallb.engine.state.resource import ResourceState
from locallb.gateway.status_patch import ObservedRouteStatus
from locallb.kubernetes.object_parsing import AnyStatus
from locallb.kubernetes.status import WAITING, ObservedStatus, awaiting, differences, publication
from locallb.model.desired import CONFIG
from locallb.model.identities import ObjectKey, ObjectKind, ProxyName
from locallb.model.memory import AnyMemo, Memo
from locallb.model.texts import named_after
from locallb.planning.planned import Placement, Plan, PlannedStatus, Rejection


class ClaimedProxies(Struct):
    """Spare proxies claimed by Gateways, and by which Gateway each. For one thread."""

    planned: Mapping[ObjectKey, ObjectKey] = field(default_factory=dict)
    """As the last plan has it."""
    applied: dict[ObjectKey, ObjectKey] = field(default_factory=dict)
    """As the state has it, or may have it where an update failed."""
    _takers: Mapping[ObjectKey, ObjectKey] = field(default_factory=dict)
    """Gateway that claims each spare proxy."""
    _remaining: set[ObjectKey] = field(default_factory=set)
    """Proxies that were left to another load balancer, with no update of that one since."""

    def learn(self, resources: Iterable[ResourceState], applied: dict[ObjectKey, str]) -> None:
        """Take over what the state says; in `applied` each is left to whom it serves."""
        configs = (resource for resource in resources if resource.type == CONFIG)
        serving = ((resource.inputs.get("serves"), resource.name) for resource in configs)
        self.applied = {ObjectKey.parse(str(key)): ObjectKey.parse(proxy) for key, proxy in serving if key}
        self._remaining = set()
        for key, proxy in self.applied.items():
            applied.pop(proxy, None)
            applied.setdefault(key, "")

    def plan(self, plan: Plan) -> None:
        """Take over what is planned."""
        self.planned = {proxy.root: proxy.key for proxy in plan.proxies if proxy.serves}
        self._takers = {proxy: key for key, proxy in self.planned.items()}

    def leave(self, applied: dict[ObjectKey, str], unchecked: set[ObjectKey]) -> None:
        """Leave claimed spare proxies to the load balancers that they serve; take back the ones no longer claimed."""
        for proxy in self._remaining - self._takers.keys():
            applied.setdefault(proxy, "")
            self._remaining.remove(proxy)
        for proxy in self._takers:
            if applied.pop(proxy, None) is not None:
                self._remaining.add(proxy)
            unchecked.discard(proxy)

    def of(self, key: ObjectKey) -> set[ObjectKey]:
        """Return the applied and planned proxies of `key`, except proxies that another load balancer claims."""
        either = (proxies.get(key) for proxies in (self.applied, self.planned))
        return {proxy for proxy in either if proxy and self._takers.get(proxy, key) == key}

    def released_spares(self, keys: Iterable[ObjectKey], wanted: Container[ObjectKey]) -> set[ObjectKey]:
        """Return proxies that these don't claim after all: an update failed, and files may show the opposite."""
        return {proxy for key in keys for proxy in self.of(key) if proxy in wanted}

    def names(self, keys: Iterable[ObjectKey]) -> Names:
        """Return keys by what their resources are named after."""
        names = {str(key): key for key in keys}
        return names | {str(proxy): key for key in names.values() for proxy in self.of(key)}

    def updated(self, key: ObjectKey, *, failed: bool) -> None:
        """Note how an update of it ended."""
        if proxy := self.planned.get(key):
            self.applied[key] = proxy
            self._remaining.discard(proxy)
        elif not failed:
            self.applied.pop(key, None)


StatusContent: TypeAlias = Placement | Rejection | PlannedStatus
"""Planned content of an object's status."""
_Row: TypeAlias = tuple[ObjectKey, ObjectKey, StatusContent]
"""Key of the update that writes the status, key of the object, planned content."""
_SILENT = ObservedStatus()


class Differences(Struct):
    """Knows what differed of what was planned and said, so that another look costs what is new. For one thread."""

    _reported: Memo[tuple[_Row, ...]] = field(default_factory=Memo)
    _planned: Memo[StatusContent] = field(default_factory=Memo)
    _compared: Memo[tuple[str, ...]] = field(default_factory=Memo)

    def of(self, plan: Plan, stated: Mapping[ObjectKey, AnyStatus]) -> Iterator[tuple[ObjectKey, tuple[str, ...]]]:
        """Name the differences in objects of live clusters, with the key of the update that writes each."""
        placed = chain.from_iterable(self._reported.each(_reported_by, plan.placements))
        refused = ((each.key, each.key, each) for each in plan.rejections if each.access)
        rows = *placed, *refused, *((each.key, each.key, each) for each in plan.statuses)
        # Rejections are made again by each plan: equal ones are the former objects here.
        planned = self._planned.each(lambda one: one, [one for _, _, one in rows])
        of_each = self._compared.each(differences_of, planned, [stated.get(key) for _, key, _ in rows])
        return ((row[0], differing) for row, differing in zip(rows, of_each, strict=True) if differing)


def _reported_by(placement: Placement) -> tuple[_Row, ...]:
    """Return the statuses that a placement's update writes, each with its object."""
    own: tuple[_Row, ...] = ((placement.key, placement.key, placement),) if placement.access else ()
    return *own, *((placement.key, each.key, each) for each in placement.statuses)


def differences_of(planned: StatusContent, stated: AnyStatus | None) -> tuple[str, ...]:
    """Name what isn't as planned; nothing where it is unknown what an object of Gateway API says."""
    if isinstance(planned, PlannedStatus):
        return _of_status(planned, stated)
    if planned.key.kind is not ObjectKind.SERVICE:
        return _of_status(planned.status, stated) if planned.status else ()
    return _of_service(planned, stated if isinstance(stated, ObservedStatus) else _SILENT)


def _of_status(planned: PlannedStatus, stated: AnyStatus | None) -> tuple[str, ...]:
    if not isinstance(stated, ObservedRouteStatus):
        return ()
    return stated.differences(json.loads(planned.status), planned.generation)


def _of_service(planned: Placement | Rejection, stated: ObservedStatus) -> tuple[str, ...]:
    wanted = publication(planned)
    if isinstance(planned, Rejection):
        return differences(stated, (), wanted)
    if stated.serving and stated.serving.reason == WAITING:  # the proof decides when that ends
        wanted = awaiting(wanted, stated.serving.message)
    unclaimed = () if stated.claimed else ("finalizer",)
    return *unclaimed, *differences(stated, (), wanted, alone=planned.take_over)


class Wanted(Struct):
    """The desired state of the last plan, so that the next plan costs only its differences. For one thread."""

    spare: frozenset[ObjectKey] = frozenset()
    """Spare proxies."""
    status_only: Collection[ObjectKey] = ()
    """Objects that get a status and nothing besides."""
    proxies: Mapping[ObjectKey, ProxyName] = field(default_factory=dict)
    """The proxy that serves each load balancer."""
    _last: tuple[Plan, Desired] | None = None
    _memo: AnyMemo = field(default_factory=AnyMemo)

    def of(self, plan: Plan) -> Desired:
        if self._last is None or self._last[0] is not plan:
            self._last = plan, self._learned(plan)
        return self._last[1]

    def _learned(self, plan: Plan) -> Desired:
        self.proxies = dict(map(attrgetter("owner.service", "proxy"), plan.placements))
        needed = set(self.proxies.values())
        idle = (planned for planned in plan.proxies if not (planned.proxy.name in needed or planned.proxy.names))
        self.spare = frozenset(planned.key for planned in idle)
        self.status_only = {planned.key for planned in plan.statuses} - self.proxies.keys()
        return desired(plan, self._memo)


_LEAVING_AS_IT_IS = frozenset({Op.SAME, Op.REFRESH, Op.READ})
Names: TypeAlias = Mapping[str, ObjectKey]
"""Load balancers by what their resources are named after: their own key, or the proxy that they took whole."""


class Outcome(Struct, frozen=True):
    """How one update ended."""

    result: Result
    failed: Mapping[ObjectKey, str] = field(default_factory=dict)
    """Reasons of failed ones."""
    untouched: frozenset[ObjectKey] = frozenset()
    """Load balancers without a necessary change."""
    ended: frozenset[ObjectKey] = frozenset()
    """Load balancers with a finished update; the remaining ones are still running."""
    since: float = 0.0
    """When the first of them began, by the monotonic clock."""


def touched_by(result: Result, names: Names) -> set[ObjectKey]:
    """Return those of which the update changed any resource."""
    touched = {step.subject.name for step in result.steps if step.op not in _LEAVING_AS_IT_IS}
    return {key for name in touched if (key := named_after(name, names))}


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
    few: int = field_dataclasse(default=FEW, kw_only=True)
    """Of those, in one update."""
    overdue: tuple[ObjectKey, ...] = field_dataclasse(default=(), kw_only=True)
    """What waited long enough for what goes before it, the longest first."""

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
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
        """What rests where it changes all the time."""
        return (*self.changed, *self.new, *self.reported)

    @property
    def waiting(self) -> tuple[ObjectKey, ...]:
        """What may have to wait for others."""
        return (*self.removed, *self.patient)

    def without(self, keys: Collection[ObjectKey]) -> Work:
        excluded = frozenset(keys)

        def rest(some: tuple[ObjectKey, ...]) -> tuple[ObjectKey, ...]:
            return tuple(key for key in some if key not in excluded)

        every = (self.broken, self.removed, self.changed, self.new, self.reported, self.spare, self.unchecked)
        return Work(*(rest(some) for some in every), few=self.few, overdue=self.overdue)

    def first(self) -> Batch:
        """Return the load balancers of the next update.

        Many existing ones don't wait for new ones, and nothing that serves waits for a mere status: a few of those are
        included with others, many come afterwards. As existing ones may change or break all the time, a few others and
        overdue ones are always included: what is removed holds addresses. Spares come one by one: an Envoy takes long
        to start, and other triggers wait for the end of its update.
        """
        waiting = frozenset(self.waiting if self.overdue else ())
        late = [key for key in self.overdue if key in waiting][:FEW]
        present = tuple(sorted((*self.removed, *self.changed), key=self._is_orphaned_elsewhere))
        if self.broken:
            along = (*present, *self.new)[: max(0, FEW - len(self.broken))]
            return Batch(_once(*late, *self.broken, *along)[:MAX], refresh=True)
        if serving := (*present, *self.new[: max(0, FEW - len(present))]) if present else self.new:
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
    different = [key for key, digest in wanted.items() if existing.get(key) != digest]
    changed = [key for key in different if key in existing and key not in broken]
    new = [key for key in different if not (key in existing or key in broken)]
    return Work(
        broken=tuple(broken),
        removed=_removed(wanted, existing),
        changed=tuple(key for key in changed if key not in reported),
        new=tuple(key for key in new if key not in spare and key not in reported),
        reported=tuple(key for key in (*changed, *new) if key in reported),
        spare=tuple(key for key in new if key in spare),
        unchecked=unchecked,
        few=few,
    )


def _removed(wanted: Mapping[ObjectKey, str], existing: Mapping[ObjectKey, str]) -> tuple[ObjectKey, ...]:
    """Return what isn't wanted any more, proxies of the stack last."""
    return tuple(sorted(existing.keys() - wanted.keys(), key=lambda key: (not key.cluster, key)))
