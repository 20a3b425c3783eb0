"""A whole plan, declared: load balancers and proxies below the stack, in the order that their dependencies ask for."""

from __future__ import annotations

import pulumi

from components.load_balancer import LoadBalancer
from components.proxy import Proxy
from locallb.planning.plan import Plan


def declare(plan: Plan) -> None:
    """Declare every placement and proxy, tell about the rest, and export the addresses."""
    digests = {proxy.proxy.name: proxy.digest for proxy in plan.proxies}
    balancers = {placement.proxy: LoadBalancer(placement, digests[placement.proxy]) for placement in plan.placements}
    for planned in plan.proxies:
        balancer = balancers[planned.proxy.name]
        balancer.serve(Proxy(planned, balancer.addresses))
    for rejection in plan.rejections:
        pulumi.log.warn(str(rejection.problem))
    for notice in plan.notices:
        pulumi.log.warn(notice)
    pulumi.export("services", {str(p.key): [str(address) for address in p.addresses] for p in plan.placements})
