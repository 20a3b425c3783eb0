"""A whole plan, declared: load balancers and proxies below the stack, in the order that their dependencies ask for."""

from __future__ import annotations

from collections.abc import Collection

import pulumi

from components.load_balancer import LoadBalancer
from components.proxy import Proxy
from components.rejected import Rejected
from locallb.planning.model import ServiceKey
from locallb.planning.plan import Plan, balancer_digest


def declare(plan: Plan) -> None:
    """Declare every placement and proxy, tell about the rest, and export the addresses."""
    declare_some(plan, {*(one.key for one in plan.placements), *(one.key for one in plan.rejections)})
    for rejection in plan.rejections:
        pulumi.log.warn(str(rejection.problem))
    for notice in plan.notices:
        pulumi.log.warn(notice)


def declare_some(plan: Plan, keys: Collection[ServiceKey]) -> None:
    """Declare these Services only, served or rejected, for an update of them alone; export all addresses."""
    wanted = [placement for placement in plan.placements if placement.key in keys]
    names = {placement.proxy for placement in wanted}
    proxies = [planned for planned in plan.proxies if planned.proxy.name in names]
    digests = {planned.proxy.name: planned.digest for planned in proxies}
    balancers = {
        placement.proxy: LoadBalancer(placement, balancer_digest(placement, digests[placement.proxy]))
        for placement in wanted
    }
    for planned in proxies:
        balancer = balancers[planned.proxy.name]
        balancer.serve(Proxy(planned, balancer.addresses))
    for rejection in plan.rejections:
        if rejection.key in keys and rejection.owner and rejection.access:
            Rejected(rejection, rejection.owner, rejection.access)
    pulumi.export("services", {str(p.key): [str(address) for address in p.addresses] for p in plan.placements})
