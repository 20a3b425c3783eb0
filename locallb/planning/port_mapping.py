"""Port mapping: Services without an address of their own (`portMapping`), and `localhost`, get loopback ports.

Each port keeps its assigned number. A new one gets its own number if that is free and may be bound here,
and otherwise the next free one after a hash of the Service and the port: so the result depends neither on an order nor
on the machine, as far as those numbers are free. Not here: claims, and listening.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.identities import LOCALHOST, Family, Home, IPAddress, ObjectKey, Owner, Protocol
from locallb.model.objects import FamilyPolicy, Service, ServicePort
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import usable
from locallb.model.snapshot import HostFacts, PortKey, Snapshot
from locallb.planning.address_holders import age
from locallb.planning.allocation import Answer

LOOPBACK: Mapping[Family, IPAddress] = {Family.IPV4: IPv4Address("127.0.0.1"), Family.IPV6: IPv6Address("::1")}
FIRST, COUNT = 10_000, 20_000
"""Numbers for ports with an occupied number: below NodePorts and the kernel's ports for clients."""
LOCAL_FIRST, LOCAL_COUNT = 8000, 100
"""The same for `localhost`: from 8080 and from 8443 on."""
_NO_STACK = Home("", "", "")


class MappedServices(Struct, frozen=True):
    """Services with their ports mapped, in the order in which they were given, and what each is answered."""

    services: tuple[Service, ...] = ()
    answers: Mapping[ObjectKey, Answer] = field(default_factory=dict)


def map_ports(snapshot: Snapshot, services: Sequence[Service]) -> MappedServices:
    """Find numbers for every port of `services`, which are the Services of `snapshot` that get addresses from us.

    A number belongs to one port of one Service, on each of its loopback addresses. Numbers of other stacks in the
    ledger, and of removed Services of ours before their release, are not assigned; one with a foreign listener goes to
    no new port, and a port gives up its number to another user's process.
    """
    whole = _claimed_whole(snapshot)
    answers: dict[ObjectKey, Answer] = {service.key: _addresses(service, snapshot.host, whole) for service in services}
    asking = [service for service in sorted(services, key=age) if not isinstance(answers[service.key], Problem)]
    given = _Numbers(snapshot, {service.key: _given(answers[service.key]) for service in asking})
    open_ports = [(service.key, port) for service in asking for port in _mappable(service)]
    for take in (given.take_held, given.take_own, given.take_next):
        open_ports = [open_port for open_port in open_ports if not take(*open_port)]
    answers |= {key: _exhausted(key, port) for key, port in reversed(open_ports)}
    return MappedServices(tuple(given.mapped(service) for service in services), answers)


class _Numbers:
    """The assigned numbers, and their earlier owners."""

    def __init__(self, snapshot: Snapshot, asking: Mapping[ObjectKey, tuple[IPAddress, ...]]) -> None:
        self._asking = asking
        self._in_foreign_use = {
            (socket.address, socket.port, socket.protocol) for socket in snapshot.host.sockets if socket.foreign
        }
        self._first = max(1, snapshot.host.unprivileged_port_start)
        here = {*LOOPBACK.values()}
        self._bound = {
            (socket.port, socket.protocol)
            for socket in snapshot.host.sockets
            if socket.address.is_unspecified or socket.address in here
        }
        self._owners: dict[PortKey, ObjectKey | None] = {}
        """None for owners without a request."""
        self._held: dict[ObjectKey, dict[tuple[int, Protocol], int]] = {}
        self._given: dict[tuple[ObjectKey, ServicePort], int] = {}
        self._claimed: set[PortKey] = set()
        remembered = frozenset(snapshot.remembered)
        for claim in (*snapshot.remembered, *snapshot.claims):
            key = claim.owner.service
            ours = key in asking and (claim.owner.home == snapshot.home or claim in remembered)
            for port in claim.ports:
                existing = self._owners.setdefault(port.place, key if ours else None)
                if not ours or existing != key:  # whoever it is, it isn't free
                    self._owners[port.place] = None if not ours else existing
                elif ours:
                    self._held.setdefault(key, {})[port.port, port.protocol] = port.number

    def take_held(self, key: ObjectKey, port: ServicePort) -> bool:
        """Keep the number of a port; return whether it has one that can still be bound.

        It can't be bound if another user's process has it at each of its addresses. The one of `localhost` is kept all
        the same, as it is in bookmarks.
        """
        number = self._held.get(key, {}).get((port.port, port.protocol), 0)
        places = {(address, number, port.protocol) for address in self._asking[key]}
        is_lost = key != LOCALHOST and places <= self._in_foreign_use
        return number >= self._first and not is_lost and self._take(key, port, number)

    def take_own(self, key: ObjectKey, port: ServicePort) -> bool:
        """Map a port to its own number; return whether that was free."""
        place = (port.port, port.protocol)
        return port.port >= self._first and place not in self._bound and self._take(key, port, port.port)

    def take_next(self, key: ObjectKey, port: ServicePort) -> bool:
        """Map a port to the first free number from its hash on; return whether there was one."""
        bound = (number for number in _sequence(key, port) if (number, port.protocol) not in self._bound)
        return any(number >= self._first and self._take(key, port, number) for number in bound)

    def _take(self, key: ObjectKey, port: ServicePort, number: int) -> bool:
        place = (number, port.protocol)
        if place in self._claimed or self._owners.get(place, key) != key:
            return False
        self._claimed.add(place)
        self._given[key, port] = number
        return True

    def mapped(self, service: Service) -> Service:
        ports = (replace(port, mapped=self._given.get((service.key, port), 0)) for port in service.ports)
        return replace(service, ports=tuple(ports))


def _given(answer: Answer) -> tuple[IPAddress, ...]:
    return () if isinstance(answer, Problem) else answer


def _sequence(key: ObjectKey, port: ServicePort) -> Iterable[int]:
    if key == LOCALHOST:
        return range(LOCAL_FIRST + port.port, LOCAL_FIRST + port.port + LOCAL_COUNT)
    start = int.from_bytes(hashlib.sha256(f"{key} {port}".encode()).digest(), "big")
    return (FIRST + (start + step) % COUNT for step in range(COUNT))


def _mappable(service: Service) -> list[ServicePort]:
    """Return the ports for which there are listeners, in an order of their own."""
    ports = (port for port in service.ports if port.protocol is not Protocol.SCTP)
    return sorted(ports, key=lambda port: (port.port, port.protocol))


def _claimed_whole(snapshot: Snapshot) -> Mapping[IPAddress, Owner]:
    """Return the owners of whole loopback addresses; not of damaged claims, which are reported by claiming."""
    others = (
        claim
        for claim in snapshot.claims
        if not claim.ports and claim.address in LOOPBACK.values() and claim not in snapshot.remembered
    )
    return {each.address: each.owner for each in others if each.owner.home not in {snapshot.home, _NO_STACK}}


def _addresses(service: Service, host: HostFacts, whole: Mapping[IPAddress, Owner]) -> Answer:
    """Return the loopback addresses of a Service's families, or why it gets none."""
    single = service.family_policy is FamilyPolicy.SINGLE
    families = tuple(dict.fromkeys(service.families))[: 1 if single else None]
    for requested in service.requested:
        if requested not in LOOPBACK.values():
            why = "but with local-lb:portMapping every Service is at 127.0.0.1; remove the request, or the key"
            return Problem(Reason.OUT_OF_POOL, f"{service.key} asks for {requested}, {why}")
    here = [family for family in families if _is_here(LOOPBACK[family], host)]
    if not here or (len(here) < len(families) and service.family_policy is not FamilyPolicy.PREFER_DUAL):
        missing = next(family for family in families if family not in here)
        why = f"this host has no {LOOPBACK[missing]}; take {missing} out of spec.ipFamilies"
        return Problem(Reason.NOT_ON_HOST, f"{service.key} gets no {missing} address: {why}")
    addresses = tuple(LOOPBACK[family] for family in here)
    for address in addresses:
        if owner := whole.get(address):
            why = (
                f"all of {address} belongs to Service {owner}; take it out of that stack's pools, or destroy that stack"
            )
            return Problem(Reason.IN_USE, f"{service.key} gets no ports of {address}: {why}")
    return addresses


def _is_here(address: IPAddress, host: HostFacts) -> bool:
    existing = host.addresses
    return existing is None or bool(usable([AddressRange(address, address)], Family.of(address), existing))


def _exhausted(key: ObjectKey, port: ServicePort) -> Problem:
    if key == LOCALHOST:
        first = LOCAL_FIRST + port.port
        why = f"{port.port} and every port from {first} to {first + LOCAL_COUNT - 1} of 127.0.0.1 is taken; free one"
        return Problem(Reason.POOL_EXHAUSTED, f"{key} port {port}: {why}")
    why = f"every port from {FIRST} to {FIRST + COUNT - 1} of 127.0.0.1 is taken; delete a Service that has one"
    return Problem(Reason.POOL_EXHAUSTED, f"{key} port {port}: {why}")
