"""The holders of addresses, kept in step with snapshots of which each differs little from the one before.

What a Service or a claim that comes or goes concerns is decided again, and nothing else, by the same rules as for all
at once (`holders`). Not here: whether the pools, pins and facts of the host are the same (`allocation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.memory import came_and_went
from locallb.model.objects import Service
from locallb.model.snapshot import Claim, Snapshot
from locallb.planning.addresses.holders import Evidence, Holdings, age, keepers
from locallb.planning.addresses.pins import Pins

_Changes = tuple[Sequence[Service], Sequence[Service]]
"""Services that came, and those that went."""


class HolderIndex:
    """Knows who holds what by the last snapshot. For one thread."""

    def __init__(self, snapshot: Snapshot, services: Sequence[Service], pins: Pins) -> None:
        self._evidence = Evidence.of(snapshot, services, pins)
        self._snapshot, self._services = snapshot, services
        found = self._evidence.holdings()
        self._holders, self._held = {**found.holders}, {**found.held}
        self.holdings = Holdings(self._holders, self._held)
        """As they are now: these follow."""
        self._claimed: dict[ObjectKey, list[IPAddress]] = {}
        """Which addresses the claims of each Service name, one for each claim."""
        for claim in chain(snapshot.claims, snapshot.remembered):
            self._claimed.setdefault(claim.owner.service, []).append(claim.address)

    def follow(self, snapshot: Snapshot, services: Sequence[Service]) -> set[ObjectKey]:
        """Take over another snapshot; return the Services that may hold something else, or are others themselves."""
        everywhere = came_and_went(self._snapshot.services, snapshot.services)
        ours = came_and_went(self._services, services)
        before, self._snapshot, self._services = self._snapshot, snapshot, services
        addresses = {
            *self._follow_claims(self._evidence.state, *came_and_went(before.remembered, snapshot.remembered)),
            *self._follow_claims(self._evidence.ledger, *came_and_went(before.claims, snapshot.claims)),
        }
        self._follow_statuses(*everywhere)
        self._follow_services(everywhere, ours)
        changed = [*chain(*everywhere, *ours)]
        for service in changed:
            addresses.update(self._claimed.get(service.key, ()), self._held.get(service.key, ()))
            addresses.update(entry.address for entry in service.ingress)
        return self._decide_again(addresses) | {service.key for service in changed}

    @property
    def ours(self) -> Mapping[ObjectKey, Service]:
        """The Services that can keep an address."""
        return self._evidence.ours

    @property
    def is_exact(self) -> bool:
        """Whether each key is that of one Service, which is what all of this goes by."""
        known = self._evidence
        return len(known.ages) == len(self._snapshot.services) and len(known.ours) == len(self._services)

    def _follow_claims(
        self, known: dict[IPAddress, list[Claim]], came: Iterable[Claim], went: Iterable[Claim]
    ) -> set[IPAddress]:
        for claim in went:
            known[claim.address].remove(claim)
            self._claimed[claim.owner.service].remove(claim.address)
        for claim in came:
            known.setdefault(claim.address, []).append(claim)
            self._claimed.setdefault(claim.owner.service, []).append(claim.address)
        return {claim.address for claim in chain(came, went)}

    def _follow_statuses(self, came: Iterable[Service], went: Iterable[Service]) -> None:
        listed = self._evidence.listed
        for service in went:
            for entry in service.ingress:
                listed[entry.address].remove(service.key)
        for service in came:
            for entry in service.ingress:
                listed.setdefault(entry.address, []).append(service.key)

    def _follow_services(self, everywhere: _Changes, ours: _Changes) -> None:
        known = self._evidence
        for service in everywhere[1]:
            known.ages.pop(service.key, None)
        known.ages.update((service.key, age(service)) for service in everywhere[0])
        for service in ours[1]:
            known.ours.pop(service.key, None)
        known.ours.update((service.key, service) for service in ours[0])

    def _decide_again(self, addresses: Iterable[IPAddress]) -> set[ObjectKey]:
        """Find the holders of these; return who held or holds one of them."""
        concerned: set[ObjectKey] = set()
        for address in addresses:
            was, now = self._holders.pop(address, None), self._evidence.holder(address)
            for key in keepers(was):
                self._held[key] = [other for other in self._held[key] if other != address]
            for key in keepers(now):
                self._held[key] = [*self._held.get(key, ()), address]
            if now:
                self._holders[address] = now
            concerned.update(keepers(was), keepers(now))
        for key in concerned:
            self._held[key] = self._evidence.ranked(key, self._held[key])
        return concerned
