"""Assigns a proxy to each Service: one of its own, a shared one or a spare, within the host's capacity.

A Service keeps its proxy, as it keeps its address, so that an added or removed one moves no other. The number of
shared proxies is the configured one, or one more if all are full; a new Service goes to the one with the fewest. A
spare is started before it is needed, serves one Service or Gateway for the rest of its life, and is then replaced by
another.

The capacity is a budget of inotify instances: every proxy watches its listeners and clusters, and one that learns
endpoints by EDS also watches a file for each upstream. A running proxy keeps its method, so that a new Service never
reconfigures a neighbour; new ones get EDS as far as the budget goes once all are admitted.

Not here: the size of the budget (a fact of the host), and the ports on a proxy (`planning.proxy_placing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from itertools import count, filterfalse
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import ProxySettings, Sharing
from locallb.envoy import watches
from locallb.model.identities import ObjectKey, ProxyName
from locallb.model.objects import Discovery, Service
from locallb.model.serving import HeapBounds, ProxyTraits
from locallb.model.snapshot import HeldProxy, HeldProxyAssignment, Snapshot
from locallb.patterns import pattern


class Need(Struct, frozen=True):
    """A proxy that needs instances, with the number of its upstreams, or of all its watched files."""

    service: ObjectKey
    upstreams: int
    held: Discovery | None = None
    """Its current discovery; None for a new one."""
    logs: bool = False
    """Whether it can write a log on request."""

    def cost(self, discovery: Discovery) -> int:
        """Return how many inotify instances this proxy takes."""
        return watches(discovery, self.upstreams, logs=self.logs)


def share_out(needs: Sequence[Need], budget: int) -> Mapping[ObjectKey, Discovery]:
    """Decide which proxies run, and how they learn endpoints. Those missing in the answer don't fit.

    Running proxies are admitted first, then the others in the order given.
    """
    admitted: dict[ObjectKey, Discovery] = {}
    remaining = budget
    in_order = sorted(needs, key=lambda need: need.held is None)
    for need in in_order:
        methods = (need.held, Discovery.STATIC) if need.held else (Discovery.STATIC,)
        method = next((method for method in methods if method and need.cost(method) <= remaining), None)
        if method:
            admitted[need.service] = method
            remaining -= need.cost(method)
    for need in in_order:
        more = need.cost(Discovery.EDS) - need.cost(Discovery.STATIC)
        if need.held is None and need.service in admitted and more <= remaining:
            admitted[need.service] = Discovery.EDS
            remaining -= more
    return admitted


SHARED, SPARE = "shared", "spare"
_NAME = pattern(r"(shared|spare)-([1-9][0-9]*)")


class Assignment(Struct, frozen=True):
    """The stack's proxies, and the Services of each."""

    proxies: tuple[ProxyName, ...] = ()
    """Names, in order of their numbers."""
    assignments: Mapping[ObjectKey, ProxyName] = field(default_factory=dict)


class Http(NamedTuple):
    """Services that need HTTP, and spares that can serve it: spares of earlier versions can't."""

    wanted_by: Collection[ObjectKey] = ()
    proxies: Collection[ProxyName] = ()


NO_HTTP = Http()


def is_shared(name: ProxyName) -> bool:
    return name.startswith(f"{SHARED}-")


def serves_services(name: ProxyName) -> bool:
    """Return whether a proxy of this name is shared or a spare."""
    return _NAME.fullmatch(name) is not None


def sharing_services(
    assignments: Iterable[HeldProxyAssignment],
    proxies: Iterable[HeldProxy],
    files: Collection[ObjectKey],
    mode: Sharing,
) -> frozenset[ObjectKey]:
    """Return the Services that keep a shared proxy, whatever ports they come to have; `files` has the Gateways."""
    if mode is not Sharing.SHARED:
        return frozenset()
    sharing = frozenset(held.service for held in assignments if is_shared(held.proxy))
    return sharing.difference(files, (proxy.service for proxy in proxies))


def assign_shared(
    services: Sequence[ObjectKey], assignments: Iterable[HeldProxyAssignment], settings: ProxySettings, room: int
) -> Assignment:
    """Assign a shared proxy to each of `services`, in this order; `room` is the number of proxies that fit."""
    wanted = set(services)
    held = {
        assignment.service: assignment.proxy
        for assignment in assignments
        if assignment.service in wanted and is_shared(assignment.proxy)
    }
    numbers = range(1, settings.count + 1) if settings.count else sorted({*map(_number, held.values())}) or (1,)
    names = {_shared(number): number for number in [*numbers][:room]}
    if not names:
        return Assignment()
    retained = {service: proxy for service, proxy in held.items() if proxy in names}
    load = Counter(retained.values())
    least = [(load[name], number) for name, number in names.items()]
    heapify(least)
    unused = filterfalse({*names.values()}.__contains__, count(1))
    for service in services:
        if service not in retained:
            if not settings.count and least[0][0] >= settings.each and len(least) < room:
                heappush(least, (0, next(unused)))
            has, number = least[0]
            retained[service] = _shared(number)
            heapreplace(least, (has + 1, number))
    return Assignment(tuple(_shared(number) for _, number in sorted(least, key=itemgetter(1))), retained)


def _shared(number: int) -> ProxyName:
    return ProxyName(f"{SHARED}-{number}")


def assign_spares(
    newcomers: Sequence[ObjectKey],
    staying: Collection[ObjectKey],
    held: Iterable[ProxyName],
    assignments: Collection[HeldProxyAssignment],
    http: Http = NO_HTTP,
) -> Assignment:
    """Assign waiting spares to `newcomers`, in this order; Services that stay keep theirs.

    `held` are the running stack proxies. The result has the assigned and the still waiting ones. A proxy of a removed
    Service isn't in it: it may still carry that Service's streams, so it is stopped and not used again.
    """
    running = set(held)
    retained = {
        assignment.service: assignment.proxy
        for assignment in assignments
        if assignment.proxy in running and assignment.service in staying
    }
    waiting = _spares(running) - {assignment.proxy for assignment in assignments}
    claimed = _claimed(newcomers, sorted(waiting, key=lambda name: (name in http.proxies, _number(name))), http)
    return Assignment(tuple(sorted({*retained.values(), *waiting}, key=_order)), {**retained, **claimed})


def _claimed(newcomers: Sequence[ObjectKey], waiting: list[ProxyName], http: Http) -> Mapping[ObjectKey, ProxyName]:
    """Assign each newcomer the first spare that can serve it; Services first get spares that can't serve HTTP."""
    claimed: dict[ObjectKey, ProxyName] = {}
    for key in newcomers:
        fitting = (name for name in waiting if key not in http.wanted_by or name in http.proxies)
        if name := next(fitting, None):
            claimed[key] = name
            waiting.remove(name)
    return claimed


def with_spares(assignment: Assignment, held: Iterable[ProxyName], wanted: int) -> Assignment:
    """Keep `wanted` proxies waiting besides the assigned ones; new ones get free numbers."""
    claimed = set(assignment.assignments.values())
    waiting = [name for name in assignment.proxies if name not in claimed]
    fresh = _unused({*held, *assignment.proxies})
    spares = [*waiting[:wanted], *(next(fresh) for _ in range(wanted - len(waiting)))]
    return Assignment(tuple(sorted({*claimed, *spares}, key=_order)), assignment.assignments)


def _unused(names: set[ProxyName]) -> Iterator[ProxyName]:
    return (name for number in count(1) if (name := ProxyName(f"{SPARE}-{number}")) not in names)


def _spares(names: Iterable[ProxyName]) -> set[ProxyName]:
    return {name for name in names if (match := _NAME.fullmatch(name)) and match[1] == SPARE}


def _number(name: ProxyName) -> int:
    match = _NAME.fullmatch(name)
    return int(match[2]) if match else 0


def _order(name: ProxyName) -> tuple[str, int]:
    return name.partition("-")[0], _number(name)


_NONE: Mapping[ObjectKey, int] = MappingProxyType({})
EACH = watches(Discovery.STATIC, 0)
"""inotify instances of a proxy of the stack, but for that of its logs."""
MAX_SHARED_LISTENERS = 200
"""Limit of a Service's listeners in a shared proxy: Envoy reads a proxy's listeners as a whole, so that every change of
another Service in it would take as long as all of these.
"""


_NEW = ProxyTraits()


class ProxyAssignment(Struct, frozen=True):
    """The proxy of a Service: its own, or the named one of the stack."""

    discovery: Discovery
    proxy: ProxyName = ProxyName("")
    traits: ProxyTraits = _NEW
    """Of its running proxy; a new one has none."""
    whole: bool = False
    """The named proxy serves nothing else and is configured like an own one: HTTP changes by files, not in parts."""

    @property
    def in_part(self) -> bool:
        """Return whether it is served by a part of what a proxy has."""
        return bool(self.proxy) and not self.whole


class ProxyDemand(NamedTuple):
    """All of a Service that decides about its proxy."""

    service: ObjectKey
    created: str
    upstreams: int = 0
    """The number of its listeners, and of the files for endpoints that a proxy of its own would watch; a Gateway has
    others as well."""

    @classmethod
    def of(cls, service: Service) -> ProxyDemand:
        return cls(service.key, service.created, len(service.ports) * len(service.families))


class ProxyAssignments(Struct, frozen=True):
    """The proxy of each Service that is served. Services that don't fit are missing."""

    assignments: Mapping[ObjectKey, ProxyAssignment]
    proxies: tuple[ProxyName, ...]
    """The desired proxies of the stack, except the ones that serve one Service exclusively."""
    http: frozenset[ProxyName] = frozenset()
    """Stack proxies that may serve HTTP."""
    heaps: Mapping[ProxyName, HeapBounds] = field(default_factory=dict)
    """Heap limits of running proxies."""


def assign_proxies(
    demands: Iterable[ProxyDemand], snapshot: Snapshot, settings: ProxySettings, files: Mapping[ObjectKey, int] = _NONE
) -> ProxyAssignments:
    """Assign a proxy to every Service; Services with a proxy first, then the older ones.

    `files` has the Gateways, which never share a proxy, with the number of files that each needs to watch.
    """
    in_order = sorted(demands, key=lambda demand: (demand.created, demand.service))
    if settings.mode is not Sharing.SHARED:
        return _per_service(in_order, snapshot, settings, files)
    alone = {*files, *_unshared(in_order, snapshot)}
    assigned = _mixed(in_order, alone, snapshot, settings, files)
    while unserved := alone - files.keys() - assigned.assignments.keys():
        alone -= unserved
        assigned = _mixed(in_order, alone, snapshot, settings, files)
    return assigned


def _unshared(demands: Iterable[ProxyDemand], snapshot: Snapshot) -> Iterator[ObjectKey]:
    """Yield the Services that share no proxy: new ones with many listeners, and ones that didn't share before."""
    shared = {held.service for held in snapshot.assignments if is_shared(held.proxy)}
    unshared = {proxy.service for proxy in snapshot.proxies} | {held.service for held in snapshot.assignments} - shared
    for demand in demands:
        is_new = demand.service not in shared and demand.service not in unshared
        if demand.service in unshared or (is_new and demand.upstreams > MAX_SHARED_LISTENERS):
            yield demand.service


def _mixed(
    demands: Sequence[ProxyDemand],
    alone: Collection[ObjectKey],
    snapshot: Snapshot,
    settings: ProxySettings,
    files: Mapping[ObjectKey, int],
) -> ProxyAssignments:
    """Assign proxies of their own to the Services in `alone`, and shared ones to the rest."""
    several = [demand.service for demand in demands if demand.service not in alone]
    shared = _shared_assignment(several, snapshot, settings)
    if not alone and not settings.spares:
        return shared
    spares = tuple(name for name in snapshot.stack_proxies if not is_shared(name))
    # As many as there are to be once spares have made room, which they do only if they have none of it now.
    without = replace(snapshot, stack_proxies=tuple(filter(is_shared, snapshot.stack_proxies)))
    soon = max(len(shared.proxies), len(_shared_assignment(several, without, settings).proxies))
    remaining = replace(snapshot.host, watches=snapshot.host.watches - _each(settings) * soon)
    rest = replace(snapshot, host=remaining, stack_proxies=spares)
    own = _per_service([demand for demand in demands if demand.service in alone], rest, settings, files)
    proxies = *shared.proxies, *own.proxies
    return ProxyAssignments({**shared.assignments, **own.assignments}, proxies, own.http, snapshot.heaps)


def _each(settings: ProxySettings) -> int:
    """Count the inotify instances of a proxy of the stack."""
    return EACH + settings.logs


def _shared_assignment(services: Sequence[ObjectKey], snapshot: Snapshot, settings: ProxySettings) -> ProxyAssignments:
    wanted = assign_shared(services, snapshot.assignments, settings, settings.count or len(services) + 1)
    room = max(0, snapshot.host.watches - _leaving(snapshot, wanted.proxies, (), settings)) // _each(settings)
    few = room < len(wanted.proxies)
    given = assign_shared(services, snapshot.assignments, settings, room) if few else wanted
    return ProxyAssignments(_assignments(given, snapshot), given.proxies, heaps=snapshot.heaps)


def _per_service(
    demands: Sequence[ProxyDemand], snapshot: Snapshot, settings: ProxySettings, files: Mapping[ObjectKey, int]
) -> ProxyAssignments:
    held = {proxy.service: proxy.discovery for proxy in snapshot.proxies}
    keys = [demand.service for demand in demands]
    assigned = {assignment.service for assignment in snapshot.assignments if assignment.proxy in snapshot.stack_proxies}
    newcomers = [key for key in keys if key not in held and key not in assigned]
    http = Http(files, snapshot.http_proxies)
    given = assign_spares(newcomers, set(keys), snapshot.stack_proxies, snapshot.assignments, http)
    parts, whole = _apart(given.assignments, files)
    needs = [
        Need(demand.service, files.get(demand.service, demand.upstreams), held.get(demand.service), settings.logs)
        for demand in demands
        if demand.service not in parts
    ]
    per_proxy = _each(settings)
    budget = max(0, snapshot.host.watches - _leaving(snapshot, given.proxies, keys, settings)) - per_proxy * len(parts)
    spares = min(
        settings.spares,
        _room_for_spares(needs, budget, per_proxy, len({*given.proxies} - {*given.assignments.values()})),
    )
    traits = {proxy.service: proxy.traits for proxy in snapshot.proxies}
    methods = share_out(needs, budget - per_proxy * spares)
    own = {
        key: ProxyAssignment(
            method, proxy, traits.get(key) or ProxyTraits(heap=snapshot.heaps.get(proxy)), whole=key in whole
        )
        for key, method in methods.items()
        for proxy in [whole.get(key, ProxyName(""))]
    }
    others = tuple(name for name in given.proxies if name not in whole.values())
    given = with_spares(Assignment(others, parts), snapshot.stack_proxies, spares)
    able = (name for name in given.proxies if name in snapshot.http_proxies or name not in snapshot.stack_proxies)
    assignments = {**_assignments(given, snapshot), **own}
    return ProxyAssignments(assignments, given.proxies, frozenset(able), snapshot.heaps)


def _room_for_spares(needs: Sequence[Need], budget: int, per_proxy: int, waiting: int) -> int:
    """Count the spares that fit in addition to serving proxies: new ones after all files that those watch.

    A waiting spare is ended only for a Service that would get no proxy at all: it is stopped after newcomers are
    started, which couldn't have its inotify instances for their files yet.
    """
    methods = share_out(needs, budget)
    served = sum(need.cost(methods[need.service]) for need in needs if need.service in methods)
    least = sum(need.cost(need.held or Discovery.STATIC) for need in needs)
    new, old = (max(0, budget - claimed) // per_proxy for claimed in (served, least))
    return max(new, min(waiting, old))


def _apart(
    assignments: Mapping[ObjectKey, ProxyName], files: Mapping[ObjectKey, int]
) -> tuple[Mapping[ObjectKey, ProxyName], Mapping[ObjectKey, ProxyName]]:
    """Set Services, which have a part of a proxy, apart from Gateways, which take one whole."""
    whole = {key: name for key, name in assignments.items() if key in files}
    return {key: name for key, name in assignments.items() if key not in files}, whole


def _assignments(given: Assignment, snapshot: Snapshot) -> Mapping[ObjectKey, ProxyAssignment]:
    held = {(assignment.service, assignment.proxy): assignment.patient for assignment in snapshot.assignments}
    heaps = snapshot.heaps
    return {
        key: ProxyAssignment(Discovery.STATIC, proxy, ProxyTraits(held.get((key, proxy)), heap=heaps.get(proxy)))
        for key, proxy in given.assignments.items()
    }


def _leaving(
    snapshot: Snapshot, proxies: Sequence[ProxyName], own: Sequence[ObjectKey], settings: ProxySettings
) -> int:
    """Count the instances of removed proxies: these stop after new ones start, so they are free in the next run.

    `proxies` are those of the stack that stay, `own` the Services that may stay with a proxy of their own.
    """
    keys, whole = set(own), {assignment.proxy for assignment in snapshot.assignments if assignment.whole}
    alone = [proxy for proxy in snapshot.proxies if proxy.service not in keys]
    leaving = sum(watches(proxy.discovery, proxy.watched_files, logs=settings.logs) for proxy in alone)
    return leaving + _each(settings) * len(set(filter(serves_services, snapshot.stack_proxies)) - {*proxies, *whole})
