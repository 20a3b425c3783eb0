"""By which proxy each Service is served, as far as the host goes: one of its own, or one of the stack's.

Puts together who keeps or gets what (`sharing`) and the budget of inotify instances (`capacity`). Not here: what the
proxies serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from locallb.config.settings import ProxySettings, Sharing
from locallb.envoy import watches
from locallb.model.identities import ObjectKey, ProxyName
from locallb.model.objects import Discovery, Service
from locallb.model.snapshot import Snapshot
from locallb.planning.proxies.capacity import Need, share_out
from locallb.planning.proxies.sharing import Assignment, assign_shared, assign_spares, serves_services, with_spares

_NONE: Mapping[ObjectKey, int] = MappingProxyType({})
EACH = watches(Discovery.STATIC, 0)
"""inotify instances of a proxy of the stack, but for that of its logs."""


@dataclass(frozen=True, slots=True)
class ProxyAssignment:
    """How a Service is served: by a proxy of its own, or by that one of the stack's that has a name here."""

    discovery: Discovery
    proxy: ProxyName = ProxyName("")
    patient: bool | None = None
    """Whether the listeners that it has hold clients: they stay so, as another listener would end open connections."""
    may_fail: bool | None = None
    """Whether those take faults of requests: likewise, until one is ordered."""


@dataclass(frozen=True, slots=True)
class ProxyAssignments:
    """Who is served and how. Who is missing doesn't fit."""

    seats: Mapping[ObjectKey, ProxyAssignment]
    proxies: tuple[ProxyName, ...]
    """The stack's proxies that shall run."""


def assign_proxies(
    services: Sequence[Service], snapshot: Snapshot, settings: ProxySettings, files: Mapping[ObjectKey, int] = _NONE
) -> ProxyAssignments:
    """Assign a proxy to every Service; those that have one first, then the older ones.

    `files` has the Gateways, which have proxies of their own in any case: how many files each wants to watch.
    """
    in_order = sorted(services, key=lambda service: (service.created, service.key))
    if settings.mode is not Sharing.SHARED:
        return _per_service(in_order, snapshot, settings, files)
    shared = _shared([service.key for service in in_order if service.key not in files], snapshot, settings)
    gateways = [service for service in in_order if service.key in files]
    if not gateways:
        return shared
    left = replace(snapshot.host, watches=snapshot.host.watches - _each(settings) * len(shared.proxies))
    alone = replace(snapshot, host=left, stack_proxies=(), seats=())
    own = _per_service(gateways, alone, ProxySettings(logs=settings.logs), files)
    return ProxyAssignments({**shared.seats, **own.seats}, shared.proxies)


def _each(settings: ProxySettings) -> int:
    """Count the inotify instances of a proxy of the stack."""
    return EACH + settings.logs


def _shared(services: Sequence[ObjectKey], snapshot: Snapshot, settings: ProxySettings) -> ProxyAssignments:
    wanted = assign_shared(services, snapshot.seats, settings, settings.count or len(services) + 1)
    room = max(0, snapshot.host.watches - _leaving(snapshot, wanted.proxies, (), settings)) // _each(settings)
    given = assign_shared(services, snapshot.seats, settings, room)
    return ProxyAssignments(_seats(given, snapshot), given.proxies)


def _per_service(
    services: Sequence[Service], snapshot: Snapshot, settings: ProxySettings, files: Mapping[ObjectKey, int]
) -> ProxyAssignments:
    held = {proxy.service: proxy.discovery for proxy in snapshot.proxies}
    keys = [service.key for service in services]
    seated = {assignment.service for assignment in snapshot.seats if assignment.proxy in snapshot.stack_proxies}
    newcomers = [key for key in keys if key not in held and key not in seated and key not in files]
    given = assign_spares(newcomers, set(keys), snapshot.stack_proxies, snapshot.seats)
    needs = [
        Need(service.key, wanted, held.get(service.key), settings.logs)
        for service in services
        if service.key not in given.seats
        for wanted in [files.get(service.key, len(service.ports) * len(service.families))]
    ]
    each = _each(settings)
    budget = max(0, snapshot.host.watches - _leaving(snapshot, given.proxies, keys, settings)) - each * len(given.seats)
    least = sum(need.cost(need.held or Discovery.STATIC) for need in needs)
    spares = min(settings.spares, max(0, budget - least) // each)
    kept = {proxy.service: (proxy.patient, proxy.may_fail) for proxy in snapshot.proxies}
    ways = share_out(needs, budget - each * spares)
    own = {key: ProxyAssignment(way, ProxyName(""), *kept.get(key, ())) for key, way in ways.items()}
    given = with_spares(given, snapshot.stack_proxies, spares)
    return ProxyAssignments({**_seats(given, snapshot), **own}, given.proxies)


def _seats(given: Assignment, snapshot: Snapshot) -> Mapping[ObjectKey, ProxyAssignment]:
    held = {(seat.service, seat.proxy): seat.patient for seat in snapshot.seats}
    return {key: ProxyAssignment(Discovery.STATIC, proxy, held.get((key, proxy))) for key, proxy in given.seats.items()}


def _leaving(
    snapshot: Snapshot, proxies: Sequence[ProxyName], own: Sequence[ObjectKey], settings: ProxySettings
) -> int:
    """Count the instances of those who leave: they are stopped after newcomers are started, so it is for the next run.

    `proxies` are those of the stack that stay, `own` the Services that may stay with a proxy of their own.
    """
    keys = set(own)
    alone = [proxy for proxy in snapshot.proxies if proxy.service not in keys]
    leaving = sum(watches(proxy.discovery, proxy.upstreams, logs=settings.logs) for proxy in alone)
    return leaving + _each(settings) * len(set(filter(serves_services, snapshot.stack_proxies)) - set(proxies))
