"""All groups of a plan, each made again only if its inputs changed.

Not here: the content of a group (`balancer`, `proxy`, `cluster`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from locallb.desired.balancer import balancer_group, rejection_group
from locallb.desired.cluster import object_group, routes_group, zones_group
from locallb.desired.proxy import Claimed, ServingProxy, proxy_group
from locallb.model.desired import Group
from locallb.model.identities import ClusterName, Digest, ObjectKey, ProxyName
from locallb.model.memory import AnyMemo, Memo
from locallb.planning.planned import Placement, Plan, PlannedProxy


class Desired(Struct, frozen=True):
    """The desired state of a stack."""

    by_owner: Mapping[ObjectKey, tuple[Group, ...]]
    """The groups of each load balancer, rejected Service and object, and of each that the stack has for itself."""
    digests: Mapping[ObjectKey, Digest]
    """Digests of each owner's groups, stack proxies before the load balancers that need them."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return all groups."""
        return tuple(group for groups in self.by_owner.values() for group in groups)


class _Served(Struct, frozen=True):
    """Groups of a load balancer, including its own proxy if it has one."""

    groups: tuple[Group, ...]
    digest: Digest


def desired(plan: Plan, memo: AnyMemo | None = None) -> Desired:
    """Return what a plan wants; `memo` of earlier plans saves the work for what hasn't changed."""
    memo = memo or Memo()
    names = {placement.proxy for placement in plan.placements if placement.part is None}
    own = {planned.proxy.name: planned for planned in plan.proxies if planned.proxy.name in names}
    of_stack = [planned for planned in plan.proxies if planned.proxy.name not in names]
    by_owner, digests = dict[ObjectKey, tuple[Group, ...]](), dict[ObjectKey, Digest]()
    for owner, group in _of_clusters(plan, memo):
        by_owner[owner], digests[owner] = (group,), group.digest
    serving: dict[ProxyName, ServingProxy] = {}
    for planned in of_stack:
        group, serving[planned.proxy.name] = memo.of(("proxy", planned.proxy.name), proxy_group, planned)
        by_owner[planned.root] = (group,)
        if not planned.root.cluster:
            digests[planned.key] = group.digest
    for rejection in plan.rejections:
        if rejection.access:
            group = memo.of(rejection.key, rejection_group, rejection)
            by_owner[rejection.key], digests[rejection.key] = (group,), group.digest
    routes: dict[ClusterName, ObjectKey] = {planned.cluster: planned.key for planned in plan.routes}
    for placement in plan.placements:
        key, proxy = placement.key, own.get(placement.proxy) or serving[placement.proxy]
        served: _Served = memo.of(key, _served, placement, proxy, routes.get(key.cluster))
        by_owner[key], digests[key] = (*by_owner.get(key, ()), *served.groups), served.digest
    for status in plan.statuses:
        group = memo.of(status.key, object_group, status)
        by_owner[status.key], digests[status.key] = (group,), group.digest
    memo.evict_unused()
    return Desired(by_owner, digests)


def _of_clusters(plan: Plan, memo: AnyMemo) -> Iterator[tuple[ObjectKey, Group]]:
    """Return what the stack has for clusters as a whole."""
    for planned in plan.routes:
        yield planned.key, memo.of(planned.key, routes_group, planned)
    for zones in plan.zones:
        yield zones.key, memo.of(zones.key, zones_group, zones)


def _served(placement: Placement, proxy: PlannedProxy | ServingProxy, routes: ObjectKey | None) -> _Served:
    """Make the groups of a load balancer: with a proxy of its own, or by one of the stack's."""
    if isinstance(proxy, ServingProxy):
        group = balancer_group(placement, proxy, routes)
        return _Served((group,), group.digest)
    running, serving = proxy_group(proxy, Claimed.by(placement))
    group = balancer_group(placement, serving, routes)
    return _Served((running, group), group.digest)
