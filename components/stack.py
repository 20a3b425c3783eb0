"""Declares a whole plan: load balancers and proxies below the stack, in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pulumi

from components.clusters import ClusterRoutes, ClusterZones
from components.digests import balancer_digest
from components.load_balancer import LoadBalancer
from components.proxy import Proxy
from components.told import GatewayObject, Rejected
from locallb.model.identities import ObjectKey
from locallb.model.memory import replaced
from locallb.planning.of_keys import placements_of
from locallb.planning.planned import Plan


def exports(plan: Plan) -> Mapping[str, object]:
    """Return the stack's outputs: the addresses of every Service. Of two plans they differ only where those do."""
    return {
        "services": {
            str(placement.key): [str(address) for address in placement.addresses] for placement in plan.placements
        }
    }


def exports_the_same(plan: Plan, other: Plan) -> bool:
    """Return whether two plans have the same outputs, at once where most placements are the very same."""
    where = replaced(plan.placements, other.placements)
    both = [(plan.placements[number], other.placements[number]) for number in where or ()]
    return where is not None and all((was.key, was.addresses) == (now.key, now.addresses) for was, now in both)


def declare(plan: Plan) -> None:
    """Declare every placement and proxy, tell about the rest, and export the addresses."""
    everything = {
        item.key
        for some in (plan.placements, plan.proxies, plan.rejections, plan.routes, plan.statuses, plan.zones)
        for item in some
    }
    declare_some(plan, everything, exports(plan))
    for rejection in plan.rejections:
        pulumi.log.warn(str(rejection.problem))
    for notice in plan.notices:
        pulumi.log.warn(notice)


def declare_some(
    plan: Plan, keys: Collection[ObjectKey], outputs: Mapping[str, object], there: Collection[ObjectKey] = ()
) -> None:
    """Declare these only, Services served or rejected and proxies of the stack, for an update of them alone.

    `outputs` are exported; those of the stack that are left out stay as they are. Routes that are `there` already are
    referred to. With who waits for a Gateway's proof comes that Gateway.
    """
    wanted = placements_of(plan, keys)
    names = {placement.proxy for placement in wanted}
    proxies = [planned for planned in plan.proxies if planned.proxy.name in names or planned.key in keys]
    digests = {planned.proxy.name: planned.digest for planned in proxies}
    balancers = [LoadBalancer(placement, balancer_digest(placement, digests[placement.proxy])) for placement in wanted]
    clusters = {placement.key.cluster for placement in wanted}
    ways = [way for way in plan.routes if way.key in keys or (way.cluster in clusters and way.key in there)]
    routes = {way.cluster: ClusterRoutes(way).routes for way in ways}
    # One of the stack's waits for nobody's addresses: it is told of them one by one.
    claimed = {balancer.placement.proxy: balancer.addresses for balancer in balancers if not balancer.placement.part}
    lives = {placement.proxy: placement.access for placement in wanted if not placement.part}
    running = {
        planned.proxy.name: Proxy(planned, claimed.get(planned.proxy.name, ()), lives.get(planned.proxy.name))
        for planned in proxies
    }
    for answering in (planned for planned in proxies if planned.proxy.names):
        running[answering.proxy.name].answer(answering)
    for balancer in balancers:
        way = routes.get(balancer.placement.key.cluster)
        balancer.serve(running[balancer.placement.proxy], [way] if way else [])
    for rejection in plan.rejections:
        if rejection.key in keys and rejection.owner and rejection.access:
            Rejected(rejection, rejection.owner)
    proofs = {balancer.placement.key: balancer.proof for balancer in balancers}
    for planned in plan.statuses:
        if planned.key in keys:
            GatewayObject(planned, [proofs[planned.gateway]] if planned.gateway else ())
    for zones in plan.zones:
        if zones.key in keys:
            ClusterZones(zones)
    for name, value in outputs.items():
        pulumi.export(name, value)
