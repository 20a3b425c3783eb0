"""DNS names in a plan: which are requested, which are assigned, and the Envoy that answers for embedded zones.

Not here: which of several owners keeps a name and which names are valid (`dns.records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec.structs import replace

from locallb.config.candidates import listed
from locallb.config.settings import Settings
from locallb.dns.records import Name, NameRequest, Names, Refusal, assign, ttl_of
from locallb.dns.stubs import stub_zone
from locallb.dns.zones import (
    CLUSTER_DOMAIN,
    DnsSettings,
    Embedded,
    Zone,
    is_hostname,
    is_of_clusters,
    normal,
    with_servers,
    zone_of,
)
from locallb.envoy import render
from locallb.gateway.routes import Bound
from locallb.model.gateway_objects import Named
from locallb.model.gateway_of_cluster import Ingress
from locallb.model.identities import ObjectKey, ObjectKind, Protocol
from locallb.model.objects import Discovery, Service
from locallb.model.serving import HeapBounds, NameListener, Proxy, ServedName
from locallb.model.snapshot import Snapshot
from locallb.model.texts import NAME_SERVER, proxy_id, proxy_owner, shown
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, Plan, PlannedProxy, PlannedZones, RunInputs, run_planner
from locallb.planning.proxy_placing import PlanContext

MAX_NAMES = 200
"""Limit of names in one annotation; a longer list is cut, with a refusal."""
MAX_LISTED_IN_STATUS = 50
"""Limit of refusals reported to the owner of names."""
REFUSED = "NameRefused"
"""A Service wishes a name that it doesn't get."""
_ANNOTATION = "external-dns.alpha.kubernetes.io/"
HOSTNAME, TTL, TARGET = (f"{_ANNOTATION}{word}" for word in ("hostname", "ttl", "target"))


def with_names(plan: Plan, snapshot: Snapshot, gateways: Mapping[ObjectKey, Bound], frame: PlanContext) -> Plan:
    """Return the plan with the names of placements, and with what answers for them, where the stack has zones."""
    if frame.settings.dns is None:
        return plan
    dns = _located(frame.settings.dns, snapshot, frame.settings)
    services = {service.key: service for service in snapshot.services}
    placements = [(services[placement.key], placement) for placement in plan.placements]
    placements.sort(key=lambda both: (both[0].created, both[0].key))
    problems = [fault for service, _ in placements for fault in _faults(service)]
    requests = [NameRequest(None, (name,), targets, dns.ttl) for name, targets in dns.records.items()]
    for service, placement in placements:
        requests += _requests(service, placement, gateways.get(service.key), dns)
    names = assign(requests, dns)
    refusals = _bounded((*problems, *names.refused))
    return replace(
        plan,
        placements=tuple(
            _named(services[placement.key], placement, names, refusals.get(placement.key, ()), dns)
            for placement in plan.placements
        ),
        proxies=(*plan.proxies, *_servers(names, dns, frame)),
        zones=tuple(_in_clusters(dns, snapshot)),
        notices=(*plan.notices, *chain.from_iterable(refusals.values()), *_unserved(frame)),
    )


def _located(dns: DnsSettings, snapshot: Snapshot, settings: Settings) -> DnsSettings:
    """Return the zones with the address of the stack's own server: none of a pool's, nor one that another has."""
    existing = tuple(Embedded(*socket) for socket in snapshot.name_servers)
    claimed = {
        Embedded(socket.address, socket.port) for socket in snapshot.host.sockets if socket.protocol is Protocol.UDP
    }

    def is_free(server: Embedded) -> bool:
        return server not in claimed and not any(listed(pool, server.address) for pool in settings.pools)

    return with_servers(dns, snapshot.home, existing, is_free)


def _bounded(refused: Iterable[Refusal]) -> Mapping[ObjectKey | None, Sequence[str]]:
    """Return the refusals of each owner: of many the first ones, and the number of the others."""
    by_owner: dict[ObjectKey | None, list[str]] = {}
    for refusal in refused:
        by_owner.setdefault(refusal.key, []).append(refusal.message)
    for key, messages in by_owner.items():
        if key and (more := len(messages) - MAX_LISTED_IN_STATUS) > 0:
            messages[MAX_LISTED_IN_STATUS:] = [f"{key}: {more} more names aren't given; correct these first"]
    return by_owner


def _requests(service: Service, placement: Placement, gateway: Bound | None, dns: DnsSettings) -> Iterator[NameRequest]:
    """Return the names that one load balancer requests, its own annotation first."""
    own = tuple(map(str, placement.addresses))
    targets = tuple(_listed(service, TARGET)) or own
    ttl = ttl_of(service.annotations.get(TTL, "").strip()) or dns.ttl
    yield NameRequest(service.key, _hostnames(service), targets, ttl)
    if gateway:
        yield NameRequest(service.key, gateway.hostnames, targets, ttl, strict=False)
    if made := _made_by_template(service.key, dns):
        yield NameRequest(service.key, made, targets, ttl)
    if zone := _zone_of_cluster(service.key, dns):
        names = (_name_in_cluster(service.key), *_short_names(service.key, zone, dns))
        yield NameRequest(service.key, names, targets, ttl, zone=zone)


def _faults(service: Service) -> Iterator[Refusal]:
    text = service.annotations.get(TTL)
    if text is not None and ttl_of(text.strip()) is None:
        sentence = f'{service.key}: metadata.annotations["{TTL}"] is {shown(text)}; write seconds such as 60'
        yield Refusal(service.key, sentence)
    if (many := len(list(_listed(service, HOSTNAME)))) > MAX_NAMES:
        sentence = f'metadata.annotations["{HOSTNAME}"] has {many} names, of which the first {MAX_NAMES} count'
        yield Refusal(service.key, f"{service.key}: {sentence}; give the others to another Service")


def _hostnames(service: Service) -> tuple[str, ...]:
    return tuple(islice(_listed(service, HOSTNAME), MAX_NAMES))


def _listed(service: Service, annotation: str) -> Iterator[str]:
    return (part.strip() for part in service.annotations.get(annotation, "").split(",") if part.strip())


def _named(service: Service, placement: Placement, names: Names, refused: Sequence[str], dns: DnsSettings) -> Placement:
    given = names.given.get(placement.key, ())
    if not given and not refused:
        return placement
    notices = tuple(Notice(REFUSED, message) for message in refused)
    hostname = _published_hostname(service, placement, given, dns)
    return replace(placement, names=given, hostname=hostname, notices=(*placement.notices, *notices))


def _published_hostname(service: Service, placement: Placement, given: Iterable[Name], dns: DnsSettings) -> str:
    """Return the name for the status: the first requested by annotation and given, or that of the template."""
    requested = dns.in_status if service.name_in_status is None else service.name_in_status
    if not requested or service.key.kind not in _ONE_NAME_REPORTED:
        return ""
    own = _own_names(placement, given)
    wished = [*map(normal, _hostnames(service)), *_made_by_template(service.key, dns)]
    return next((name for name in wished if name in own), "")


_ONE_NAME_REPORTED = (ObjectKind.SERVICE, ObjectKind.GATEWAY)


def published_hosts(ingresses: Iterable[Ingress], placement: Placement, dns: DnsSettings | None) -> Mapping[Named, str]:
    """Return the names for statuses of Ingresses: for each the first host with a DNS name for its address."""
    if dns is None or not dns.in_status:
        return {}
    own = _own_names(placement, placement.names)
    return {ingress.meta.key: next((host for host in ingress.hosts if host in own), "") for ingress in ingresses}


def _own_names(placement: Placement, given: Iterable[Name]) -> frozenset[str]:
    """Return the DNS names of a load balancer itself that may be in a status: no wildcard, no underscore."""
    own = (name for name in given if set(name.addresses) == set(placement.addresses))
    return frozenset(name.name for name in own if is_hostname(name.name))


def _made_by_template(key: ObjectKey, dns: DnsSettings) -> tuple[str, ...]:
    if not dns.template or not key.namespace:  # all Ingresses of a class have none
        return ()
    return (normal(dns.template.format(name=key.name, namespace=key.namespace, cluster=key.cluster)),)


def _name_in_cluster(key: ObjectKey) -> str:
    return normal(f"{key.name}.{key.namespace}.svc.{CLUSTER_DOMAIN}")


def _zone_of_cluster(key: ObjectKey, dns: DnsSettings) -> Zone | None:
    """Return the zone with the name that a Service has in its cluster, if the stack answers for such names."""
    if key.kind is not ObjectKind.SERVICE:
        return None
    zone = zone_of(_name_in_cluster(key), dns.zones)
    return zone if zone and is_of_clusters(zone) else None


def _short_names(key: ObjectKey, zone: Zone, dns: DnsSettings) -> Iterator[str]:
    """Return what pods of its cluster call a Service as well; only embedded servers have names out of their zones."""
    if dns.short_names and not zone.updated:
        yield f"{key.name}.{key.namespace}"
        if key.namespace == dns.short_names:
            yield key.name


def _servers(names: Names, dns: DnsSettings, frame: PlanContext) -> Iterator[PlannedProxy]:
    """Plan the Envoy that answers DNS queries, if needed."""
    if not dns.embedded or frame.settings.publishes:
        return
    every = [name for given in names.given.values() for name in given]
    listeners = tuple(_listener(server, every) for server in dns.embedded)
    owner, identity = proxy_owner(frame.home, NAME_SERVER), proxy_id(frame.home, NAME_SERVER)
    proxy = Proxy(NAME_SERVER, identity, Discovery.STATIC, names=listeners, heap=HeapBounds(0))
    proxy, run = run_planner(frame.settings.runtime).plan(proxy, RunInputs(owner, frame.settings, frame.host))
    yield PlannedProxy(proxy, owner, render(proxy), run)


def _in_clusters(dns: DnsSettings, snapshot: Snapshot) -> Iterator[PlannedZones]:
    """Return the stub zones of each running cluster, if the stack has them."""
    zones = tuple(sorted(stub_zone(zone.name, str(zone.server)) for zone in dns.zones))
    for cluster, access in sorted(snapshot.access.items()) if dns.in_clusters else ():
        yield PlannedZones(cluster, snapshot.home, access, zones)


def _listener(server: Embedded, names: Iterable[Name]) -> NameListener:
    mine = (name for name in names if name.zone.server == server)
    served = (ServedName(name.name, name.addresses, name.ttl) for name in sorted(mine, key=lambda name: name.name))
    return NameListener(server.address, server.port, tuple(served))


def _unserved(frame: PlanContext) -> Iterator[str]:
    if frame.settings.dns and frame.settings.dns.embedded and frame.settings.publishes:
        yield "local-lb:dns: nobody answers for embedded zones while Docker publishes ports; use network host"
