"""The rules of allocation said once more, one address at a time and without thought of speed: what answers are held to.

Nothing here shares code with the allocator but the types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from locallb.config.settings import Pool, Settings
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.objects import FamilyPolicy, Service
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.allocation import Answer

NEVER = {"127.0.0.1", "127.0.0.53", "127.0.0.54", "127.0.1.1", "::1"}


def within(ranges: Iterable[AddressRange], address: IPAddress) -> bool:
    return any(
        span.first.version == address.version and int(span.first) <= int(address) <= int(span.last) for span in ranges
    )


def has(pool: Pool, address: IPAddress) -> bool:
    """Return whether the pool hands out `address` to anybody."""
    return within(pool.ranges, address) and not within(pool.exclude, address) and str(address) not in NEVER


def gives(pool: Pool, address: IPAddress, host: HostFacts) -> bool:
    """Return whether the pool hands out `address` on this host."""
    existing = host.addresses
    if existing is None or not has(pool, address):
        return has(pool, address)
    own = address in dict(existing.own)
    if own and address not in [span.first for span in pool.ranges if span.first == span.last]:
        return False
    linked = any(route.is_connected and address in route.destination for route in existing.routes)
    return within(existing.local, address) and (own or not linked or address.version == 4)


def welcomes(pool: Pool, service: Service) -> bool:
    right_place = not pool.namespaces or service.key.namespace in pool.namespaces
    return right_place and pool.selector.items() <= service.labels.items()


def wanted(service: Service) -> tuple[Family, ...]:
    """Return the families that the Service shall get."""
    return service.families[:1] if service.family_policy is FamilyPolicy.SINGLE else service.families


def pin_of(key: ObjectKey, settings: Settings) -> str:
    """Return the pin for a Service: the exact one, or the first whose pattern fits; none: empty."""
    exact = [f"{key.namespace}/{key.name}"]
    fits = [pin for pin in settings.pins if re.fullmatch(pin.replace("*", "[^/]*"), exact[0])]
    return [*(pin for pin in fits if pin in exact), *fits, ""][0]


def wishes(service: Service, settings: Settings) -> set[IPAddress]:
    """Return the addresses that the Service must get or be refused."""
    pins = settings.pins.get(pin_of(service.key, settings), ())
    pinned_families = {address.version for address in pins}
    return {*pins, *(address for address in service.requested if address.version not in pinned_families)}


@dataclass(frozen=True)
class Oracle:
    """Judges answers about one snapshot."""

    snapshot: Snapshot
    services: Sequence[Service]
    settings: Settings

    def may_use(self, service: Service, address: IPAddress) -> bool:
        """Return whether a pool lets this Service have `address`."""
        return any(gives(pool, address, self.snapshot.host) and welcomes(pool, service) for pool in self.settings.pools)

    def older(self, key: ObjectKey, other: ObjectKey) -> bool:
        """Return whether the Service of `key` is older than the one of `other`."""
        created = {service.key: service.created for service in self.snapshot.services}
        return (created[key], key) < (created[other], other)

    def foreign(self, address: IPAddress) -> bool:
        """Return whether another stack claims `address`."""
        return any(
            claim.address == address and claim.owner.home != self.snapshot.home for claim in self.snapshot.claims
        )

    def holders(self, address: IPAddress) -> tuple[set[ObjectKey], set[ObjectKey], set[ObjectKey]]:
        """Return who claims `address` in the ledger, who has it in our state, and in whose status it stands."""
        ledger = {claim.owner.service for claim in self.snapshot.claims if claim.address == address}
        state = {claim.owner.service for claim in self.snapshot.remembered if claim.address == address}
        status = {
            service.key for service in self.snapshot.services if any(e.address == address for e in service.ingress)
        }
        return ledger, state, status

    def occupied(self, key: ObjectKey, address: IPAddress) -> bool:
        """Return whether anything speaks for keeping `address` from a Service that doesn't hold it."""
        others = set().union(*self.holders(address)) - {key}
        return bool(others) or self.foreign(address) or self.on_host(address) or self.pinned_away(key, address)

    def on_host(self, address: IPAddress) -> bool:
        """Return whether a Node has `address` or a process listens on it."""
        of_nodes = {address for node in self.snapshot.nodes for address in node.addresses}
        return address in of_nodes | {socket.address for socket in self.snapshot.host.sockets}

    def pinned_away(self, key: ObjectKey, address: IPAddress) -> bool:
        """Return whether `address` is pinned to another Service."""
        owners = {name for name, addresses in self.settings.pins.items() if address in addresses}
        return bool(owners - {pin_of(key, self.settings)})

    def wrongly_given(self, key: ObjectKey, address: IPAddress) -> bool:
        """Return whether the Service of `key` takes what is another's by the order ledger, state, status."""
        ours = {service.key for service in self.services}
        for level, holders in enumerate(self.holders(address)):
            rivals = holders - {key}
            if key in holders:
                living = rivals if level == len(("ledger", "state")) else rivals & ours
                return any(self.older(rival, key) for rival in living)
            if rivals:
                return True
        return self.on_host(address) or self.pinned_away(key, address)

    def starved(self, service: Service, answers: Mapping[ObjectKey, Answer]) -> list[IPAddress]:
        """Return the addresses that a Service without one could have had; it asks for none."""
        given = {address for answer in answers.values() if not isinstance(answer, Problem) for address in answer}
        return [
            address
            for family in wanted(service)
            for address in self.all_addresses(family)
            if self.may_use(service, address) and address not in given and not self.occupied(service.key, address)
        ]

    def all_addresses(self, family: Family) -> Iterable[IPAddress]:
        """Enumerate the pools' addresses of one family."""
        for pool in self.settings.pools:
            for span in pool.ranges:
                if Family.of(span.first) is family:
                    yield from (span.first + number for number in range(int(span.last) - int(span.first) + 1))
