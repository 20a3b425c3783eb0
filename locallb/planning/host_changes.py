"""Changes of a host that don't affect a plan: sockets of others that block no port of it.

Listening sockets and inotify instances of a host differ at nearly every look; a plan seldom does. Not here: what a
socket means for a port or an address (`ports`, `addresses`), or inotify instances for proxies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import IPAddress
from locallb.model.objects import Service
from locallb.model.snapshot import HostFacts, Socket
from locallb.planning.planned import Plan


def are_in_nobodys_way(
    before: HostFacts, after: HostFacts, plan: Plan, services: Iterable[Service], settings: Settings
) -> bool:
    """Return whether a plan is the same for sure with these sockets of others and what they were before.

    False as well where anything else of the host differs, except inotify instances, which the assignment checks.
    """
    if after == before:
        return True
    if replace(after, sockets=before.sockets, watches=before.watches) != before:
        return False
    if plan.rejections or settings.pins:  # there may be a place for them now
        return False
    differing = {*before.sockets} ^ {*after.sockets}
    return not (_hold_ports(differing, plan) or _hold_addresses(differing, plan, services, settings))


def _hold_ports(sockets: Collection[Socket], plan: Plan) -> bool:
    """Return whether one listens on every address at a port of a Service, of whatever family."""
    held = {(socket.port, socket.protocol) for socket in sockets if socket.address.is_unspecified}
    ports = (planned.port for placement in plan.placements for planned in placement.ports) if held else ()
    return any((port.number, port.protocol) in held for port in ports)


def _hold_addresses(sockets: Collection[Socket], plan: Plan, services: Iterable[Service], settings: Settings) -> bool:
    """Return whether one listens on an address of a pool, or one that a Service has, requests or lists."""
    held = {socket.address for socket in sockets if not socket.address.is_unspecified}
    spans = [span for pool in settings.pools for span in pool.ranges]
    if any(_within(address, span.first, span.last) for address in held for span in spans):
        return True
    return bool(held) and any(address in held for address in _addresses(plan, services))


def _within(address: IPAddress, first: IPAddress, last: IPAddress) -> bool:
    return address.version == first.version and int(first) <= int(address) <= int(last)


def _addresses(plan: Plan, services: Iterable[Service]) -> Iterator[IPAddress]:
    for placement in plan.placements:
        yield from placement.addresses
    for service in services:
        yield from service.requested
        yield from (entry.address for entry in service.ingress)
