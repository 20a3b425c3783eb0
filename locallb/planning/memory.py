"""The planner's cache: results of the last plan are used again where their inputs are equal.

A plan made with it is the plan made without it (a law in the tests). Not here: any decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import ProxySettings, Settings
from locallb.gateway.routes.bound import Bound
from locallb.model.identities import IPAddress, ObjectKey, ProxyName
from locallb.model.memory import AnyMemory, Memory, RowCache
from locallb.model.objects import Service
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.addresses.allocation import Answer
from locallb.planning.addresses.port_mapping import MappedServices
from locallb.planning.addresses.reallocation import Allocations
from locallb.planning.backends.index import SlicesByService
from locallb.planning.gateways.gateways import Gateways, gateways_of
from locallb.planning.last_plan import LastPlan, proxy_demand, wants_the_same
from locallb.planning.planned import PlannedProxy, PlannedStatus
from locallb.planning.ports import HostPorts, PortProblems
from locallb.planning.proxies.assignment import ProxyAssignment, ProxyAssignments, assign_proxies
from locallb.planning.proxies.placing import Placed, PlacementInputs, PlanContext, place, proxy_of_stack
from locallb.planning.routes.pod_routes import RoutePlan, routes_of
from locallb.planning.selection import is_ours

Asked = tuple[Sequence[Service], Sequence[tuple[IPAddress, ...]], Sequence[ProxyAssignment], Sequence[Bound | None]]
"""Columns of the first three of `PlacementInputs`, and of its last: Services, addresses, proxies, what is bound."""
_Value = TypeVar("_Value")
_Question = tuple[Snapshot, Sequence[Service], Settings]
_AssignmentInputs = tuple[Sequence[Service], Snapshot, ProxySettings, Mapping[ObjectKey, int]]


class PlanMemory(Struct):
    """Placements and addresses of one plan, each with what it was made from. For one thread."""

    statuses: Memory[PlannedStatus] = field(default_factory=Memory)
    """The statuses of Gateway API objects."""
    last: LastPlan | None = None
    """The last plan, with what decides about its Services."""
    admitted: AnyMemory = field(default_factory=Memory)
    """The last admission."""
    slices: SlicesByService = field(default_factory=SlicesByService)
    _ports: Memory[HostPorts] = field(default_factory=Memory)
    _placed: Memory[Placed] = field(default_factory=Memory)
    _gateways: Memory[Gateways] = field(default_factory=Memory)
    _bound: Memory[Bound] = field(default_factory=Memory)
    _ours: RowCache[bool] = field(default_factory=RowCache)
    _problems: RowCache[PortProblems] = field(default_factory=RowCache)
    _files: RowCache[int] = field(default_factory=RowCache)
    _counted: Memory[Mapping[ObjectKey, int]] = field(default_factory=Memory)
    _lists: RowCache[bool] = field(default_factory=RowCache)
    _rows: RowCache[Placed] = field(default_factory=RowCache)
    """The placements of Services that are the very same ones, with the same addresses and proxies."""
    _of_stack: Memory[PlannedProxy] = field(default_factory=Memory)
    _assignments: Memory[ProxyAssignments] = field(default_factory=lambda: Memory(_same_assignments))
    _last_assignments: ProxyAssignments = field(default_factory=lambda: ProxyAssignments({}, ()))
    """The last of those; equal members are used again, so that one that stays is known by identity."""
    _addresses: Mapping[ObjectKey, Answer] = field(default_factory=dict)
    """The last addresses, likewise."""
    _mapped: Mapping[ObjectKey, Service] = field(default_factory=dict)
    """The last Services with mapped ports, likewise."""
    _routing: Memory[RoutePlan] = field(default_factory=lambda: Memory(_lead_the_same_way))
    _answers: Memory[Mapping[ObjectKey, Answer]] = field(default_factory=lambda: Memory(_asks_the_same))
    _allocations: Allocations = field(default_factory=Allocations)

    def ours(self, services: Sequence[Service], settings: Settings) -> list[Service]:
        """Return those that this stack serves."""
        self._ours.within(settings)
        ours = self._ours.of(lambda service: is_ours(service, settings) and not service.deleting, services)
        return list(compress(services, ours))

    def mapped(self, made: MappedServices) -> MappedServices:
        """Return the same values; those equal to the last ones as the identical objects."""
        self._mapped = _as_before(self._mapped, {service.key: service for service in made.services})
        self._addresses = _as_before(self._addresses, made.answers)
        return MappedServices(tuple(self._mapped.values()), self._addresses)

    def ports(self, host: HostFacts) -> HostPorts:
        """Return what can be bound on this host."""
        return self._ports.of(None, HostPorts, host)

    def problems(
        self, host: HostFacts, services: Sequence[Service], find: Callable[[Service], PortProblems]
    ) -> Mapping[ObjectKey, PortProblems]:
        """Return the result of `find` for each Service on this host."""
        self._problems.within(host)
        keys = (service.key for service in services)
        return dict(zip(keys, self._problems.of(find, services), strict=True))

    def files(self, bound: Mapping[ObjectKey, Bound], count: Callable[[Bound], int]) -> Mapping[ObjectKey, int]:
        """Return the number of files that the proxy of each Gateway watches, by `count`."""
        counts = self._files.of(count, bound.values())
        return self._counted.of(None, lambda keys, counts: dict(zip(keys, counts, strict=True)), tuple(bound), counts)

    def routing(self, snapshot: Snapshot, settings: Settings) -> RoutePlan:
        """Return the routes to pods, as they were the last time where nothing that decides has changed."""
        return self._routing.of(settings.pod_routes, routes_of, snapshot, settings)

    def place(
        self,
        frame: PlanContext,
        around: tuple[object, ...],
        asked: Asked,
        give: Callable[..., PlacementInputs],
    ) -> Sequence[Placed]:
        """Place each row of `asked`, in order; `give` adds the other inputs, which only depend on `around`.

        With the same `around`, `give` isn't called for an identical Service.
        """
        self._placed.within(frame)
        self._rows.within(frame, *around)

        def placed(service: Service, *asked: object) -> Placed:
            return self.place_alone(frame, give(service, *asked[:-1]))

        services, addresses, _, _ = asked
        # Claims matter for addresses of others: a Service whose status lists some is placed again each time.
        again = (None if own else object() for own in self._lists.of(_lists, services, addresses))
        made = self._rows.of(placed, *asked, again)
        self._placed.keep((service.key for service in services), len(services))
        return made

    def place_alone(self, frame: PlanContext, given: PlacementInputs) -> Placed:
        """Place one Service in the frame of the last placements."""
        return self._placed.of(given.service.key, lambda given: place(given, frame), given)

    def of_stack(self, assigned: ProxyAssignments, frame: PlanContext) -> list[PlannedProxy]:
        """Return the stack's proxies, without those that belong to one Service as a whole."""
        self._of_stack.within(frame)

        def planned(name: ProxyName, http: bool, max_heap: int | None) -> PlannedProxy:  # noqa: FBT001 - as `Memory` gives it
            return proxy_of_stack(name, frame, may_serve_http=http, max_heap=max_heap)

        proxies = [
            self._of_stack.of(name, planned, name, name in assigned.http, assigned.max_heaps.get(name))
            for name in assigned.proxies
        ]
        self._of_stack.evict_unused()
        return proxies

    def assignments(
        self, services: Sequence[Service], snapshot: Snapshot, settings: ProxySettings, files: Mapping[ObjectKey, int]
    ) -> ProxyAssignments:
        """Return by which proxies `services` are served."""
        return self._assignments.of(None, self._assigned, services, snapshot, settings, files)

    def seats_the_same(self, before: Snapshot, after: Snapshot, settings: Settings) -> bool:
        """Return whether all are served by the proxies that the last plan has, with other inotify instances left.

        For two plans with the same Services, no Gateways, and all other inputs unchanged.
        """
        if before.host.watches == after.host.watches:
            return True
        last = self._last_assignments
        return self.assignments(self.ours(after.services, settings), after, settings.proxies, {}) == last

    def _assigned(self, *question: Any) -> ProxyAssignments:  # noqa: ANN401 - as of assign_proxies
        made = assign_proxies(*question)
        self._last_assignments = replace(
            made, assignments=_as_before(self._last_assignments.assignments, made.assignments)
        )
        return self._last_assignments

    def gateways(self, snapshot: Snapshot, settings: Settings) -> Gateways:
        """Return the Gateways and Ingresses that the objects of a snapshot bind."""
        bind = partial(gateways_of, memory=self._bound)
        return self._gateways.of(None, bind, snapshot.gateway_api, settings, snapshot.authority)

    def allocate(
        self, snapshot: Snapshot, services: Sequence[Service], settings: Settings
    ) -> Mapping[ObjectKey, Answer]:
        """Return the addresses of `services`, as the last answer has them where nothing that decides has changed."""
        return self._answers.of(None, self._allocated, snapshot, services, settings)

    def _allocated(self, *question: Any) -> Mapping[ObjectKey, Answer]:  # noqa: ANN401 - as of Allocations
        self._addresses = _as_before(self._addresses, self._allocations.of(*question))
        return self._addresses


def _as_before(before: Mapping[ObjectKey, _Value], after: Mapping[ObjectKey, _Value]) -> Mapping[ObjectKey, _Value]:
    """Return the values of `after`; those equal to the ones of `before` as the identical objects."""
    return {key: before[key] if before.get(key) == value else value for key, value in after.items()}


def _lists(service: Service, addresses: tuple[IPAddress, ...]) -> bool:
    """Return whether its status lists its own addresses and no other ones."""
    return all(ingress.address in addresses for ingress in service.ingress)


def _lead_the_same_way(former: tuple[Snapshot, Settings], latter: tuple[Snapshot, Settings]) -> bool:
    """Return whether the same routes to pods are made for sure."""
    (before, settings_before), (after, settings) = former, latter
    return settings_before == settings and _ways(before) == _ways(after)


def _ways(snapshot: Snapshot) -> tuple[object, ...]:
    """Return all of a snapshot that decides about routes to pods."""
    host = snapshot.host
    facts = host.addresses, host.routes, host.diversions, host.subnets, host.may_route
    return snapshot.home, snapshot.nodes, snapshot.node_routes, *facts


def _asks_the_same(question: _Question, other: _Question) -> bool:
    """Return whether two questions for addresses have the same answers for sure."""
    (before, ours_before, settings_before), (after, ours, settings) = question, other
    return (
        settings_before == settings
        and _held(before) == _held(after)
        and _want_the_same(ours_before, ours)
        and _want_the_same(before.services, after.services)
    )


def _held(snapshot: Snapshot) -> tuple[object, ...]:
    """Return all of a snapshot that decides about addresses, Services apart."""
    addresses = [(node.cluster, node.name, node.addresses) for node in snapshot.nodes]
    return snapshot.home, snapshot.claims, snapshot.remembered, snapshot.host, snapshot.external_ips, addresses


def _same_assignments(question: _AssignmentInputs, other: _AssignmentInputs) -> bool:
    """Return whether two questions for proxies have the same answers for sure."""
    (before, seen_before, *rest_before), (after, seen, *rest) = question, other
    mode = other[2].mode
    return (
        rest_before == rest
        and _assignment_facts(seen_before) == _assignment_facts(seen)
        and len(before) == len(after)
        and all(
            former is service or proxy_demand(former, mode) == proxy_demand(service, mode)
            for former, service in zip(before, after, strict=True)
        )
    )


def _assignment_facts(snapshot: Snapshot) -> tuple[object, ...]:
    """Return all of a snapshot that decides about proxies, Services apart."""
    of_stack = snapshot.stack_proxies, snapshot.http_proxies, snapshot.max_heaps, snapshot.assignments
    return snapshot.host.watches, snapshot.proxies, of_stack


def _want_the_same(before: Sequence[Service], after: Sequence[Service]) -> bool:
    return len(before) == len(after) and all(
        service is other or wants_the_same(service, other) for service, other in zip(before, after, strict=True)
    )
