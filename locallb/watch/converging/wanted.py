"""The desired state of each load balancer of a plan, as a digest. Not here: the state itself (`converge`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from components.digests import balancer_digest, rejection_digest
from locallb.model.identities import ObjectKey, ProxyName
from locallb.model.memory import Memo, RowCache
from locallb.planning.planned import Plan, PlannedProxy, PlannedStatus


class WantedDigests(Struct):
    """Knows those of the last plan, so that another one costs what is different. For one thread."""

    spare: frozenset[ObjectKey] = frozenset()
    """Spare proxies."""
    only_told: Collection[ObjectKey] = ()
    """Who is told a status and gets nothing besides."""
    proxies: Mapping[ObjectKey, ProxyName] = field(default_factory=dict)
    """Who serves each load balancer."""
    _last: tuple[Plan, Mapping[ObjectKey, str]] | None = None
    _digests: RowCache[str] = field(default_factory=RowCache)
    """Of proxies, and so on."""
    _placed: RowCache[str] = field(default_factory=RowCache)
    _refused: Memo[str] = field(default_factory=Memo)
    _statuses: RowCache[str] = field(default_factory=RowCache)

    def of(self, plan: Plan) -> Mapping[ObjectKey, str]:
        """Return the digest of each load balancer of the plan, and of each Service that is told why it gets none.

        Proxies of the stack come first: load balancers need them.
        """
        if self._last is None or self._last[0] is not plan:
            self._last = plan, self._of_all(plan)
        return self._last[1]

    def _of_all(self, plan: Plan) -> Mapping[ObjectKey, str]:
        proxies = {
            planned.proxy.name: digest
            for planned, digest in zip(plan.proxies, self._digests.of(_digest, plan.proxies), strict=True)
        }
        self.proxies = {placement.key: placement.proxy for placement in plan.placements}
        theirs = (proxies[proxy] for proxy in self.proxies.values())
        placed = dict(zip(self.proxies, self._placed.of(balancer_digest, plan.placements, theirs), strict=True))
        told = {  # each plan makes all of them again
            rejection.key: self._refused.of(rejection.key, rejection_digest, rejection)
            for rejection in plan.rejections
            if rejection.access
        }
        self._refused.evict_unused()
        statuses = {
            planned.key: digest
            for planned, digest in zip(plan.statuses, self._statuses.of(_digest, plan.statuses), strict=True)
        }
        needed = set(self.proxies.values())
        idle = (planned for planned in plan.proxies if not (planned.proxy.name in needed or planned.proxy.names))
        self.spare = frozenset(planned.key for planned in idle)
        self.only_told = statuses.keys() - placed.keys()
        stacks = {planned.key: proxies[planned.proxy.name] for planned in plan.proxies if not planned.root.cluster}
        routes = {planned.key: planned.digest for planned in plan.routes}
        zones = {planned.key: planned.digest for planned in plan.zones}
        return routes | zones | stacks | told | placed | statuses


def _digest(planned: PlannedProxy | PlannedStatus) -> str:
    return planned.digest
