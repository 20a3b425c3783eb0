"""A small model of the world that carries out plans: ledger, state and status, written step by step.

Each step is one write, in the order in which the engine makes them, so that a crash can be put between any two. A
claim is refused where the ledger has another owner, as the real one does; the Service then stays without addresses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import Home, IPAddress, ObjectKey, Owner
from locallb.model.objects import IngressEntry, Service
from locallb.model.reasons import Problem
from locallb.model.snapshot import Claim, HostFacts, Snapshot
from locallb.planning.allocation import Answer, allocate
from tests.support.strategies import HOME, OTHER_HOME

Answers = Mapping[ObjectKey, Answer]
Step = Callable[[], None]


@dataclass
class World:
    """Clusters, ledger and state of one stack, and the configuration as it is now."""

    settings: Settings
    home: Home = HOME
    services: dict[ObjectKey, Service] = field(default_factory=dict)
    foreign: set[ObjectKey] = field(default_factory=set)
    """Services of another class: in the cluster, but none of our business."""
    ledger: set[Claim] = field(default_factory=set)
    state: set[Claim] = field(default_factory=set)
    host: HostFacts = field(default_factory=HostFacts)

    def snapshot(self, shuffle: random.Random | None = None) -> Snapshot:
        """Read everything, in an order of `shuffle`'s choice."""
        services, claims, state = list(self.services.values()), list(self.ledger), list(self.state)
        if shuffle:
            for listed in (services, claims, state):
                shuffle.shuffle(listed)
        return Snapshot(self.home, tuple(services), claims=tuple(claims), remembered=tuple(state), host=self.host)

    def ours(self, snapshot: Snapshot) -> list[Service]:
        """Return the Services of `snapshot` that get addresses from us."""
        return [service for service in snapshot.services if service.key not in self.foreign]

    def answers(self, shuffle: random.Random | None = None) -> Answers:
        snapshot = self.snapshot(shuffle)
        return allocate(snapshot, self.ours(snapshot), self.settings)

    def steps(self, answers: Answers) -> Iterator[Step]:
        """Return the writes that carry out `answers`: new ones first, what isn't wanted any more last."""
        wanted = {Claim(address, self._owner(key)) for key, address in _given(answers) if key in self.services}
        for claim in sorted(wanted, key=lambda claim: str(claim.address)):
            yield lambda claim=claim: self._claim(claim)  # type: ignore[misc]  # mypy can't type a lambda's default
            yield lambda claim=claim: self._remember(claim)  # type: ignore[misc]  # likewise
        for key, answer in answers.items():
            yield lambda key=key, answer=answer: self._publish(key, answer)  # type: ignore[misc]  # likewise
        for claim in sorted((self.ledger | self.state) - wanted, key=lambda claim: str(claim.address)):
            if claim.owner.home == self.home:
                yield lambda claim=claim: self.ledger.discard(claim)  # type: ignore[misc]  # likewise
                yield lambda claim=claim: self.state.discard(claim)  # type: ignore[misc]  # likewise

    def carry_out(self, answers: Answers, until: int | None = None) -> None:
        """Take the steps; with `until` crash after so many of them."""
        for number, step in enumerate(self.steps(answers)):
            if number == until:
                return
            step()

    def converge(self) -> Answers:
        """Plan and carry out until nothing changes; that takes a few rounds at most."""
        for _ in range(6):
            before = (set(self.ledger), set(self.state), dict(self.services))
            answers = self.answers()
            self.carry_out(answers)
            if before == (self.ledger, self.state, self.services):
                return answers
        raise AssertionError("it never comes to rest")

    def edit(self, key: ObjectKey, **changes: object) -> None:
        self.services[key] = replace(self.services[key], **changes)  # fields by name

    def held(self, key: ObjectKey) -> set[IPAddress]:
        """Return the addresses that the ledger has for a Service of ours."""
        return {claim.address for claim in self.ledger if claim.owner.service == key and claim.owner.home == self.home}

    def foreign_claim(self, address: IPAddress, key: ObjectKey) -> None:
        """Let another stack claim `address`, if it is free."""
        if all(claim.address != address for claim in self.ledger):
            self.ledger.add(Claim(address, Owner(OTHER_HOME, key)))

    def _owner(self, key: ObjectKey) -> Owner:
        return Owner(self.home, key, self.services[key].uid)

    def _claim(self, wanted: Claim) -> None:
        """Claim, adopt what the same Service had under another uid, or be refused."""
        held = [claim for claim in self.ledger if claim.address == wanted.address]
        mine = [claim for claim in held if (claim.owner.home, claim.owner.service) == (self.home, wanted.owner.service)]
        if not mine and not all(self._share(claim, wanted) for claim in held):
            return
        self.ledger -= set(mine)
        self.ledger.add(wanted)

    def _share(self, claim: Claim, wanted: Claim) -> bool:
        """Return whether both owners are of this stack and have sharing keys, as the ledger wants it."""
        both = [self.services.get(wish.owner.service) for wish in (claim, wanted)]
        return claim.owner.home == self.home and all(service and service.sharing_key for service in both)

    def _remember(self, wanted: Claim) -> None:
        if wanted in self.ledger:
            self.state.add(wanted)

    def _publish(self, key: ObjectKey, answer: Answer) -> None:
        """Write into the status what was granted and could be claimed; nothing that others wrote there is kept."""
        if key in self.services:
            addresses = () if isinstance(answer, Problem) else answer
            held = self.held(key)
            self.edit(key, ingress=tuple(IngressEntry(address) for address in addresses if address in held))


def _given(answers: Answers) -> Iterator[tuple[ObjectKey, IPAddress]]:
    for key, answer in answers.items():
        if not isinstance(answer, Problem):
            yield from ((key, address) for address in answer)
