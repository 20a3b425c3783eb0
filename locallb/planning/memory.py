"""What the last plan came to, for whoever plans again and again: equal inputs need not be worked out twice.

A plan made with a memory is the plan made without one (a law in the tests). Not here: deciding anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from locallb.config.settings import Settings
from locallb.gateway.bound import Bound
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.memory import Memory
from locallb.model.objects import Service
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.addresses.allocation import Answer, allocate
from locallb.planning.gateways import Gateways, gateways_of
from locallb.planning.planned import PlannedStatus
from locallb.planning.pod_routes import RoutePlan, routes_of
from locallb.planning.ports import PortProblems
from locallb.planning.proxies.assignment import ProxyAssignment
from locallb.planning.proxies.placing import Placed, PlacementInputs, PlanContext, place

Asked = tuple[Service, tuple[IPAddress, ...], ProxyAssignment, Bound | None]
"""The first three of `PlacementInputs`, and its last: a Service, its addresses, its seat, what is bound for it."""
_Question = tuple[Snapshot, Sequence[Service], Settings]


@dataclass(slots=True)
class PlanMemory:
    """Placements and addresses of one plan, each with what it was made from. For one thread."""

    statuses: Memory[PlannedStatus] = field(default_factory=Memory)
    """What objects of Gateway API are told."""
    _beside: tuple[object, ...] = ()
    _placed: Memory[Placed] = field(default_factory=Memory)
    _gateways: Memory[Gateways] = field(default_factory=Memory)
    _bound: Memory[Bound] = field(default_factory=Memory)
    _problems: Memory[PortProblems] = field(default_factory=Memory)
    _routing: Memory[RoutePlan] = field(default_factory=lambda: Memory(_lead_the_same_way))
    _answers: Memory[Mapping[ObjectKey, Answer]] = field(default_factory=lambda: Memory(_asks_the_same))

    def problems(
        self, host: HostFacts, services: Iterable[Service], find: Callable[[Service], PortProblems]
    ) -> Mapping[ObjectKey, PortProblems]:
        """Return what `find` says of each Service on this host."""
        self._problems.within(host)
        problems = {service.key: self._problems.of(service.key, find, service) for service in services}
        self._problems.evict_unused()
        return problems

    def routing(self, snapshot: Snapshot, settings: Settings) -> RoutePlan:
        """Return the routes to pods, as they were the last time where nothing that decides has changed."""
        return self._routing.of(settings.pod_routes, routes_of, snapshot, settings)

    def place(
        self,
        frame: PlanContext,
        around: tuple[object, ...],
        services: Iterable[Asked],
        give: Callable[..., PlacementInputs],
    ) -> list[Placed]:
        """Place each of `services`, in order; `give` tells the rest that decides and is the same in the same `around`.

        With `around` as before that need not even be asked for the very same Service.
        """
        self._placed.within(frame)
        steady, self._beside = around == self._beside, around
        placed = []
        for asked in services:
            key = asked[0].key
            known: PlacementInputs | None = next(iter(self._placed.given(key)), None)
            if not (known and steady and _is_for(known, asked)):
                known = give(*asked)
            placed.append(self._placed.of(key, lambda given: place(given, frame), known))
        self._placed.evict_unused()
        return placed

    def gateways(self, snapshot: Snapshot, settings: Settings) -> Gateways:
        """Return the Gateways and Ingresses that the objects of a snapshot bind."""
        bind = partial(gateways_of, memory=self._bound)
        return self._gateways.of(None, bind, snapshot.gateway_api, settings, snapshot.authority)

    def allocate(
        self, snapshot: Snapshot, services: Sequence[Service], settings: Settings
    ) -> Mapping[ObjectKey, Answer]:
        """Return the addresses of `services`, as the last answer has them where nothing that decides has changed."""
        return self._answers.of(None, allocate, snapshot, services, settings)


def beside(snapshot: Snapshot, settings: Settings) -> tuple[object, ...]:
    """Return all that a placement may depend on besides what is asked for it.

    Claims apart: they only tell whose the addresses are that its status lists and that aren't its own.
    """
    world = snapshot.nodes, snapshot.slices, snapshot.host, snapshot.access, snapshot.health_ports
    return settings, snapshot.home, snapshot.authority, snapshot.orders, *world


def _is_for(known: PlacementInputs, asked: Asked) -> bool:
    """Return whether these are inputs for the very same, whose status lists its own addresses and no other ones."""
    service, addresses, seat, bound = asked
    same = known.service is service and known.gateway is bound and (known.addresses, known.seat) == (addresses, seat)
    return same and all(ingress.address in addresses for ingress in service.ingress)


def _lead_the_same_way(one: tuple[Snapshot, Settings], other: tuple[Snapshot, Settings]) -> bool:
    """Return whether the same routes to pods are made for sure."""
    (before, settings_before), (now, settings) = one, other
    return settings_before == settings and _ways(before) == _ways(now)


def _ways(snapshot: Snapshot) -> tuple[object, ...]:
    """Return all of a snapshot that decides about routes to pods."""
    host = snapshot.host
    facts = host.addresses, host.routes, host.diversions, host.subnets, host.may_route
    return snapshot.home, snapshot.nodes, snapshot.node_routes, *facts


def _asks_the_same(question: _Question, other: _Question) -> bool:
    """Return whether two questions for addresses have the same answers for sure."""
    (before, ours_before, settings_before), (now, ours, settings) = question, other
    return (
        settings_before == settings
        and _held(before) == _held(now)
        and _want_the_same(ours_before, ours)
        and _want_the_same(before.services, now.services)
    )


def _held(snapshot: Snapshot) -> tuple[object, ...]:
    """Return all of a snapshot that decides about addresses, Services apart."""
    addresses = [(node.cluster, node.name, node.addresses) for node in snapshot.nodes]
    return snapshot.home, snapshot.claims, snapshot.remembered, snapshot.host, snapshot.external_ips, addresses


def _want_the_same(before: Sequence[Service], now: Sequence[Service]) -> bool:
    return len(before) == len(now) and all(
        service is other or _wants(service, other) == other for service, other in zip(before, now, strict=True)
    )


def _wants(service: Service, other: Service) -> Service:
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
