"""Allocation of the Services that come, go or change, where all others keep what they have.

Whoever holds an address keeps it, and nobody else gets it: so a few newcomers decide nothing about anybody, and each
of them gets what it would get among all. That is so where nobody asks for an address, shares one, or got less than it
wants; otherwise, and where more is different, all are asked. Not here: the rules (`allocation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.model.identities import IPAddress, ObjectKey
from locallb.model.network.ranges import AddressRange
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses.address_pools import AddressPools
from locallb.planning.addresses.allocation import Answer, allocate, is_complete, request_of, serve
from locallb.planning.addresses.holder_index import HolderIndex
from locallb.planning.addresses.holders import age
from locallb.planning.addresses.pins import Pins

FEW = 100
"""Services that are asked for one by one; with more, all are."""


class Allocations(Struct):
    """Answers as `allocate` gives them, of snapshots that come one after the other. For one thread."""

    _last: _Last | None = None

    def of(self, snapshot: Snapshot, services: Sequence[Service], settings: Settings) -> Mapping[ObjectKey, Answer]:
        """Return the addresses of each of `services`, or the reason why it gets none."""
        last, self._last = self._last, None
        answers = last.again(snapshot, services, settings) if last else None
        if answers is None or last is None:
            answers = allocate(snapshot, services, settings)
            last = _Last(snapshot, settings, answers, services)
        self._last = last
        return answers


class _Last(Struct):
    """The last answers, and what they were given for."""

    snapshot: Snapshot
    settings: Settings
    answers: Mapping[ObjectKey, Answer]
    services: Sequence[Service]
    index: HolderIndex | None = None
    """Made when it is needed for the first time, as are the following."""
    pools: AddressPools | None = None
    given: set[ObjectKey] = field(default_factory=set)
    """Who got an address that it didn't hold yet."""

    def again(
        self, snapshot: Snapshot, services: Sequence[Service], settings: Settings
    ) -> Mapping[ObjectKey, Answer] | None:
        """Return the answers to another question; None where it concerns more than a few. Then this is used up."""
        if settings != self.settings or _facts(snapshot, settings) != _facts(self.snapshot, settings):
            return None
        if not self._begin():
            return None
        if self.index is None or self.pools is None:
            return None
        concerned = self.index.follow(snapshot, services) | self.given
        ours = self.index.ours
        there = sorted((ours[key] for key in concerned if key in ours), key=age)
        if len(there) > FEW or not self.index.is_exact or not all(map(_is_plain, there)):
            return None
        answers = {**self.answers}
        for key in concerned - ours.keys():
            answers.pop(key, None)
        self.pools.open_for_few()
        for service in there:
            request = request_of(service)
            answers[service.key] = answer = serve(request, self.pools)
            if not is_complete(request, answer):
                return None
        self.given = {service.key for service in there if not self._holds(service.key, answers)}
        self.snapshot, self.services, self.answers = snapshot, services, answers
        return answers

    def _begin(self) -> bool:
        """Make what is missing; return whether all of the last question are known to keep their own."""
        if self.index:
            return True
        asked = ((request_of(service), self.answers[service.key]) for service in self.services)
        if self.settings.pins or not all(map(_is_plain, self.services)) or not all(is_complete(*one) for one in asked):
            return False
        self.index = HolderIndex(self.snapshot, self.services, Pins(self.settings.pins))
        self.pools = AddressPools(self.settings.pools, self.index.holdings, self.snapshot.host)
        self.given = {key for key in self.answers if not self._holds(key, self.answers)}
        return len(self.given) <= FEW and self.index.is_exact

    def _holds(self, key: ObjectKey, answers: Mapping[ObjectKey, Answer]) -> bool:
        held = self.index.holdings.held.get(key, ()) if self.index else ()
        answer = answers[key]
        return isinstance(answer, tuple) and all(address in held for address in answer)


def _facts(snapshot: Snapshot, settings: Settings) -> tuple[object, ...]:
    """Return all of a snapshot that decides about addresses besides Services and what is held.

    Of what listens on this host that is what has an address of a pool: nobody is asked who wants another one.
    """
    nodes = [(node.cluster, node.name, node.addresses) for node in snapshot.nodes]
    spans = [span for pool in settings.pools for span in pool.ranges]
    sockets = snapshot.host.sockets
    listening = {socket for socket in sockets if any(_within(socket.address, span) for span in spans)}
    return snapshot.home, snapshot.host.addresses, snapshot.host.user, snapshot.external_ips, nodes, listening


def _within(address: IPAddress, span: AddressRange) -> bool:
    return address.version == span.first.version and int(span.first) <= int(address) <= int(span.last)


def _is_plain(service: Service) -> bool:
    """Return whether it takes what it gets, and shares it with no other."""
    return not service.requested and not service.sharing_key
