"""Incremental planning: which Services have to be placed again when only a few objects differ from the last plan.

Most events change one Service, or its EndpointSlices, and nothing that decides about others: then only that one is
placed again, however many there are. Where that isn't certain, everything is planned. Not here: placing (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings, Sharing
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.memory import few_replaced
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.host_changes import are_in_nobodys_way
from locallb.planning.planned import Placement, Plan, PlannedProxy
from locallb.planning.proxies.assignment import ProxyAssignment
from locallb.planning.proxies.placing import Placed


class LastPlan(Struct, frozen=True):
    """A plan, and its inputs."""

    snapshot: Snapshot
    settings: Settings
    plan: Plan
    placed: tuple[Placed, ...]
    """What was placed, in the order of the plan's placements."""
    assignments: Mapping[ObjectKey, tuple[int, ProxyAssignment]]
    """Where in that order each Service stands, and how it is served."""

    def others(self, after: Snapshot, settings: Settings) -> Sequence[Service] | None:
        """Return the placed Services of `after` that may be placed otherwise, if all else is planned as it was.

        None where that isn't certain: names and Gateways depend on all Services, and so do mapped ports.
        """
        before = self.snapshot
        if settings != self.settings or settings.port_mapping or settings.dns or after.gateway_api:
            return None
        where, slices = few_replaced(before.services, after.services), few_replaced(before.slices, after.slices)
        if where is None or slices is None:
            return None
        same = replace(after, services=before.services, slices=before.slices, host=before.host) == before
        if not same or not are_in_nobodys_way(before.host, after.host, self.plan, after.services, settings):
            return None
        mode = settings.proxies.mode
        for number in where:
            was, service = before.services[number], after.services[number]
            same = proxy_demand(was, mode) == proxy_demand(service, mode) and wants_the_same(was, service)
            if not same or service.key not in self.assignments:
                return None
        changed = [after.services[number] for number in where]
        if not slices:
            return changed
        behind = {seen.slices[number].service for seen in (before, after) for number in slices}
        keys = {*behind, *(service.key for service in changed)} & self.assignments.keys()
        return [service for service in after.services if service.key in keys]

    def asked(self, service: Service) -> tuple[Service, tuple[IPAddress, ...], ProxyAssignment, None]:
        """Return what decides about a Service: itself, its addresses and its proxy assignment."""
        number, assignment = self.assignments[service.key]
        return service, self.placed[number].placement.addresses, assignment, None

    def with_others(self, snapshot: Snapshot, changed: Sequence[Placed]) -> LastPlan | None:
        """Return the plan with these placements replaced; None where the rest of it may depend on them."""
        placed, placements, proxies = list(self.placed), list(self.plan.placements), list(self.plan.proxies)
        for placed_again in changed:
            number, _ = self.assignments[placed_again.placement.key]
            was, placed[number], placements[number] = placed[number], placed_again, placed_again.placement
            if _told_of_all(was.placement) != _told_of_all(placed_again.placement) or bool(was.own) != bool(
                placed_again.own
            ):
                return None
            if was.own and placed_again.own:
                proxies[_place_of(was.own, proxies)] = placed_again.own
        plan = replace(self.plan, placements=tuple(placements), proxies=tuple(proxies))
        return replace(self, snapshot=snapshot, plan=plan, placed=tuple(placed))


def _told_of_all(placement: Placement) -> tuple[object, ...]:
    """Return all of a placement that the rest of a plan uses."""
    return placement.notices, {port.via for port in placement.ports}


def _place_of(proxy: PlannedProxy, proxies: Sequence[PlannedProxy]) -> int:
    return next(number for number, candidate in enumerate(proxies) if candidate is proxy)


def proxy_demand(service: Service, mode: Sharing) -> tuple[object, ...]:
    """Return all of a Service that decides about its proxy; what a Gateway asks for besides is in its files."""
    size = 0 if mode is Sharing.SHARED else len(service.ports) * len(service.families)
    return service.key, service.created, size


def wants_the_same(service: Service, other: Service) -> bool:
    """Return whether two have the same addresses for sure, as far as they decide about that themselves."""
    return _with_ports_of(service, other) == other


def _with_ports_of(service: Service, other: Service) -> Service:
    """Return `service` with what of `other` decides nothing about addresses, unless addresses are shared."""
    if service.sharing_key or other.sharing_key:
        return service
    return replace(
        service,
        ports=other.ports,
        source_ranges=other.source_ranges,
        client_ip_affinity=other.client_ip_affinity,
        traffic_policy=other.traffic_policy,
        health_check_node_port=other.health_check_node_port,
    )
