"""The desired state of the last plan, and what converging asks of it. Not here: the applied state (`converge`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from locallb.desired.groups import Desired, desired
from locallb.model.identities import ObjectKey, ProxyName
from locallb.model.memory import AnyMemo
from locallb.planning.planned import Plan


class Wanted(Struct):
    """Knows that of the last plan, so that another one costs what is different. For one thread."""

    spare: frozenset[ObjectKey] = frozenset()
    """Spare proxies."""
    status_only: Collection[ObjectKey] = ()
    """Objects that get a status and nothing besides."""
    proxies: Mapping[ObjectKey, ProxyName] = field(default_factory=dict)
    """The proxy that serves each load balancer."""
    _last: tuple[Plan, Desired] | None = None
    _memo: AnyMemo = field(default_factory=AnyMemo)

    def of(self, plan: Plan) -> Desired:
        """Return the desired state of a plan."""
        if self._last is None or self._last[0] is not plan:
            self._last = plan, self._learned(plan)
        return self._last[1]

    def _learned(self, plan: Plan) -> Desired:
        self.proxies = {placement.key: placement.proxy for placement in plan.placements}
        needed = set(self.proxies.values())
        idle = (planned for planned in plan.proxies if not (planned.proxy.name in needed or planned.proxy.names))
        self.spare = frozenset(planned.key for planned in idle)
        self.status_only = {planned.key for planned in plan.statuses} - self.proxies.keys()
        return desired(plan, self._memo)
