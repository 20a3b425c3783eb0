"""The laws of address allocation: of one plan about any snapshot, and of any history of plans.

The first part judges single answers about snapshots that are as contradictory as they can be. The second lets Services,
pools, hosts and foreign hands change at random, with crashes and stale plans in between, in the world of `world.py`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from locallb.config.settings import Pool, Settings
from locallb.ledger.claims import UNKNOWN
from locallb.model.identities import Family, IPAddress, ObjectKey, Owner, Uid
from locallb.model.objects import FamilyPolicy, IngressEntry, Service
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Claim, HostFacts, Snapshot
from locallb.planning.allocation import Answer, allocate
from tests.planning.addresses.oracle import Oracle, pin_of, wanted, wishes
from tests.planning.addresses.world import Answers, World
from tests.support import strategies as draw
from tests.support.allocation import addresses_of

Thing = TypeVar("Thing")
REQUEST_REASONS = {
    Reason.FAMILY_MISMATCH,
    Reason.EXCLUDED,
    Reason.OUT_OF_POOL,
    Reason.SELECTOR_MISMATCH,
    Reason.IN_USE,
    Reason.NOT_ON_HOST,
}


@st.composite
def cases(drawn: st.DrawFn) -> Oracle:
    """Draw a snapshot, the Services of it that are ours, and a configuration."""
    snapshot = drawn(draw.snapshots())
    ours = [service for service in snapshot.services if drawn(st.integers(0, 5))]
    return Oracle(snapshot, ours, drawn(draw.settings))


def answers_to(case: Oracle) -> Answers:
    return allocate(case.snapshot, case.services, case.settings)


def carried_out(case: Oracle, **changes: object) -> Oracle:
    """Let every address of the first answer be claimed and remembered, and `changes` be made to the snapshot."""
    retained = tuple(claim for claim in case.snapshot.claims if claim.owner.home != case.snapshot.home)
    own = tuple(
        Claim(address, Owner(case.snapshot.home, key))
        for key, answer in answers_to(case).items()
        for address in addresses_of(answer)
    )
    return dataclasses.replace(
        case, snapshot=replace(case.snapshot, claims=(*retained, *own), remembered=own, **changes)
    )


def assert_sound(case: Oracle, answers: Answers) -> None:
    """Check every law that a single plan can break."""
    assert set(answers) == {service.key for service in case.services}
    given = [address for answer in answers.values() for address in addresses_of(answer)]
    assert len(given) == len(set(given)), "one address, two owners"
    for service in case.services:
        answer = answers[service.key]
        for address in addresses_of(answer):
            assert case.may_use(service, address), "outside the pools of the Service, or of this host"
            assert not case.foreign(address), "another stack's"
            assert not case.wrongly_given(service.key, address), "held by another"
        assert_families(case, service, answer)
        assert_request(case, service, answer)
        if isinstance(answer, Problem) and not wishes(service, case.settings):
            assert_scarce(case, service, answers)


def assert_families(case: Oracle, service: Service, answer: Answer) -> None:
    """One address a wanted family, in that order; all of them unless PreferDualStack, or one was there before."""
    if isinstance(answer, Problem):
        assert str(service.key) in answer.message
        return
    families = [Family.of(address) for address in answer]
    assert families
    assert families == [family for family in wanted(service) if family in families]
    keeps = any(service.key in keys for address in answer for keys in case.holders(address))
    if service.family_policy is not FamilyPolicy.PREFER_DUAL and not keeps:
        assert families == list(wanted(service))


def assert_request(case: Oracle, service: Service, answer: Answer) -> None:
    """Granted exactly, or refused for a reason that has to do with a request."""
    requested = wishes(service, case.settings)
    if isinstance(answer, Problem):
        if answer.reason in REQUEST_REASONS - {Reason.NOT_ON_HOST}:
            assert any(str(address) in answer.message for address in requested)
    else:
        assert requested <= set(answer)


def assert_scarce(case: Oracle, service: Service, answers: Answers) -> None:
    """Check that a Service that gets nothing, without having asked, could have had nothing."""
    starved = case.starved(service, answers)
    families = {Family.of(address) for address in starved}
    if service.family_policy is FamilyPolicy.REQUIRE_DUAL:
        assert families != set(wanted(service))
    else:
        assert not starved


@given(cases())
@settings(max_examples=300)
def test_every_plan_is_sound(case: Oracle) -> None:
    """Whatever the snapshot: single owners, allowed addresses, exact requests, families, nobody starved."""
    assert_sound(case, answers_to(case))


@given(cases(), draw.addresses, st.randoms(use_true_random=False))
def test_claims_that_cannot_be_read_take_no_address_and_give_none_away(
    case: Oracle, another: IPAddress, choose: random.Random
) -> None:
    """Whichever they are: who has an address by the state keeps it, and one that nobody of ours has goes to nobody."""
    case = carried_out(carried_out(case))
    before = answers_to(case)
    unread = Claim(another, UNKNOWN, problem="a disk fails", unread=True)
    claims = [
        replace(unread, address=claim.address)
        if claim.owner.home == case.snapshot.home and choose.random() < 0.5
        else claim
        for claim in case.snapshot.claims
    ]
    case = dataclasses.replace(case, snapshot=replace(case.snapshot, claims=(*claims, unread)))
    after = answers_to(case)
    held = {claim.address for claim in case.snapshot.remembered}
    assert [addresses_of(after[key]) for key in before if addresses_of(before[key])] == [
        addresses_of(answer) for answer in before.values() if addresses_of(answer)
    ]
    assert another in held or not any(another in addresses_of(answer) for answer in after.values())


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_read_does_not_matter(case: Oracle, shuffle: random.Random) -> None:
    """Restart in any order, pending before assigned: the same answers to the byte."""

    def shuffled(things: Sequence[Thing]) -> tuple[Thing, ...]:
        return tuple(shuffle.sample(list(things), len(things)))

    other = replace(
        case.snapshot,
        services=shuffled(case.snapshot.services),
        claims=shuffled(case.snapshot.claims),
        remembered=shuffled(case.snapshot.remembered),
    )
    services = [service for service in other.services if service in case.services]
    assert repr(allocate(other, services, case.settings)) == repr(answers_to(case))


@given(cases())
def test_asking_again_changes_nothing(case: Oracle) -> None:
    """With the addresses claimed and remembered, the next plan gives everybody the same at least.

    A Service may gain the secondary that it prefers, and one that was refused may gain what is released meanwhile.
    """
    first = answers_to(case)
    later = carried_out(case)
    second = answers_to(later)
    for key, answer in first.items():
        assert set(addresses_of(answer)) <= set(addresses_of(second[key]))
    third = answers_to(carried_out(later))
    assert {key: addresses_of(answer) for key, answer in third.items()} == {
        key: addresses_of(answer) for key, answer in second.items()
    }


@given(cases())
def test_recreating_every_service_moves_none(case: Oracle) -> None:
    """The same names with new uids get the same addresses."""
    renewed = [replace(service, uid=Uid("new")) for service in case.services]
    by_key = {service.key: service for service in renewed}
    snapshot = replace(
        case.snapshot, services=tuple(by_key.get(service.key, service) for service in case.snapshot.services)
    )
    assert allocate(snapshot, renewed, case.settings) == answers_to(case)


@given(cases(), st.data())
def test_clearing_a_request_keeps_the_address(case: Oracle, data: st.DataObject) -> None:
    """Who has what it asked for, keeps it when it asks no more."""
    first = answers_to(case)
    cleared = [replace(service, requested=()) if data.draw(st.booleans()) else service for service in case.services]
    by_key = {service.key: service for service in cleared}
    all_services = tuple(by_key.get(service.key, service) for service in case.snapshot.services)
    second = allocate(carried_out(case, services=all_services).snapshot, cleared, case.settings)
    for key, answer in first.items():
        assert set(addresses_of(answer)) <= set(addresses_of(second[key]))


@given(cases(), st.data())
def test_a_request_never_evicts_the_owner(case: Oracle, data: st.DataObject) -> None:
    """Whoever asks for an address that another one has is refused, and the owner keeps it."""
    first = answers_to(case)
    owned = [(key, address) for key, answer in first.items() for address in addresses_of(answer)]
    if len(case.services) < len(("owner", "asker")) or not owned:
        return
    owner, address = data.draw(st.sampled_from(owned))
    asker = data.draw(st.sampled_from([service for service in case.services if service.key != owner]))
    family = (Family.of(address),)
    greedy = replace(asker, requested=(address,), families=family, family_policy=FamilyPolicy.SINGLE, created="")
    all_services = tuple(greedy if service.key == asker.key else service for service in case.snapshot.services)
    later = carried_out(case, services=all_services)
    answers = allocate(later.snapshot, [service for service in all_services if service.key in first], case.settings)
    assert address in addresses_of(answers[owner])
    assert address not in addresses_of(answers[asker.key])


@given(cases(), st.data())
def test_an_address_that_left_the_host_is_left(case: Oracle, data: st.DataObject) -> None:
    """Whether it is held or asked for: nobody gets it."""
    given = [address for answer in answers_to(case).values() for address in addresses_of(answer)]
    if given:
        removed = data.draw(st.sampled_from(given))
        host = replace(case.snapshot.host, addresses=draw.having_all_but({removed}))
        later = carried_out(case, host=host)
        assert all(removed not in addresses_of(answer) for answer in answers_to(later).values())
        assert_sound(later, answers_to(later))


@given(st.lists(draw.keys, unique=True, min_size=1, max_size=12), st.data())
def test_creation_order_barely_matters(keys: list[ObjectKey], data: st.DataObject) -> None:
    """In a roomy pool a Service gets the same address alone as in a crowd, whoever came first."""
    roomy = Pool("p", (AddressRange(draw.IPV4[0], draw.IPV4[0] + 0xFFFFF),))
    configuration = Settings((), (roomy,))
    created = data.draw(st.permutations(range(len(keys))))
    crowd = [Service(key, (), created=f"{number:03}") for key, number in zip(keys, created, strict=True)]
    together = allocate(Snapshot(draw.HOME, tuple(crowd)), crowd, configuration)
    alone = {
        service.key: allocate(Snapshot(draw.HOME, (service,)), [service], configuration)[service.key]
        for service in crowd
    }
    assert len(set(alone.values())) == len(keys), "the preferred places are spread over the pool"
    assert together == alone


class Histories(RuleBasedStateMachine):
    """Any history: what was settled before an event must survive it, as far as the event left room for it."""

    @initialize(configuration=draw.settings, services=draw.service_lists(max_size=5))
    def begin(self, configuration: Settings, services: list[Service]) -> None:
        """Begin with some Services and nothing held."""
        self.world = World(configuration)
        self.world.services = {service.key: replace(service, ingress=()) for service in services}
        self.settled: dict[ObjectKey, Answer] = {}
        """The answers when the world last came to rest, of Services that nobody touched since."""
        self.stale: Answers | None = None
        self.pools_changed = False

    def touch(self, key: ObjectKey) -> None:
        """Note that the next answer about this Service may differ."""
        self.settled.pop(key, None)

    def some(self, data: st.DataObject) -> ObjectKey | None:
        """Draw one of the Services, if there is any."""
        return data.draw(st.sampled_from(sorted(self.world.services))) if self.world.services else None

    # --- Services

    @rule(service=draw.services())
    def create_or_recreate(self, service: Service) -> None:
        """Create a Service; under a name that exists it is deleted and created again, with another uid."""
        former = self.world.services.get(service.key)
        uid = Uid(f"{former.uid}+") if former else service.uid
        self.world.services[service.key] = replace(service, uid=uid, ingress=())
        self.world.foreign.discard(service.key)
        self.touch(service.key)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if key := self.some(data):
            del self.world.services[key]
            self.touch(key)

    @rule(data=st.data(), like=draw.services())
    def flip_families_requests_and_labels(self, data: st.DataObject, like: Service) -> None:
        """Change what a Service wants and may have."""
        if key := self.some(data):
            families = {"families": like.families, "family_policy": like.family_policy}
            self.world.edit(key, requested=like.requested, labels=like.labels, **families)
            self.touch(key)

    @rule(data=st.data())
    def request_what_another_has(self, data: st.DataObject) -> None:
        """Let a Service ask for an address that is held: its owner isn't touched."""
        key, other = self.some(data), self.some(data)
        if key and other and (held := sorted(self.world.held(other), key=str)):
            self.world.edit(key, requested=(held[0],))
            self.touch(key)

    @rule(data=st.data())
    def flip_class(self, data: st.DataObject) -> None:
        """Give a Service another class, or ours back."""
        if key := self.some(data):
            self.world.foreign ^= {key}
            self.touch(key)

    @rule(data=st.data())
    def clear_request(self, data: st.DataObject) -> None:
        """Take a request back: no reason to move, so the Service isn't touched."""
        if key := self.some(data):
            self.world.edit(key, requested=())

    # --- foreign hands

    @rule(data=st.data(), written=draw.one_a_family(draw.askable))
    def write_a_status_by_hand(self, data: st.DataObject, written: tuple[IPAddress, ...]) -> None:
        """Write anything into the status of any Service: no assigned address may change by it."""
        if key := self.some(data):
            self.world.edit(key, ingress=tuple(IngressEntry(address) for address in written))

    @rule(address=draw.addresses, key=draw.keys)
    def claim_elsewhere(self, address: IPAddress, key: ObjectKey) -> None:
        """Let another stack take a free address."""
        self.world.foreign_claim(address, key)

    @rule()
    def release_elsewhere(self) -> None:
        self.world.ledger = {claim for claim in self.world.ledger if claim.owner.home == self.world.home}

    @rule(host=draw.hosts)
    def change_host(self, host: HostFacts) -> None:
        """Let processes come and go; they evict nobody. Addresses that vanish from the host are another rule's."""
        self.world.host = replace(host, addresses=self.world.host.addresses)

    @rule(absent=st.frozensets(draw.addresses, max_size=2))
    def change_what_the_host_can_bind(self, absent: frozenset[IPAddress]) -> None:
        """Let addresses vanish from the host: who had one may move."""
        self.world.host = replace(self.world.host, addresses=draw.having_all_but(absent))
        for key, answer in list(self.settled.items()):
            if set(addresses_of(answer)) & absent:
                self.touch(key)

    # --- configuration

    def configure(self, pools: Sequence[Pool]) -> None:
        self.world.settings = replace(self.world.settings, pools=tuple(pools))
        self.pools_changed = True

    @rule(pools=draw.pool_lists, front=st.booleans())
    def add_pools(self, pools: tuple[Pool, ...], *, front: bool) -> None:
        before = self.world.settings.pools[:2]
        self.configure([*pools, *before] if front else [*before, *pools])

    @rule(data=st.data())
    def reorder_and_rename_pools(self, data: st.DataObject) -> None:
        """Shuffle the pools, give them other names and priorities."""
        pools = data.draw(st.permutations(self.world.settings.pools))
        priorities = st.integers(-3, 3)
        self.configure([replace(pool, name=f"{pool.name}x", priority=data.draw(priorities)) for pool in pools])

    @rule(data=st.data())
    def split_pools(self, data: st.DataObject) -> None:
        """Cut every range of more than one address in two pools."""
        pools = []
        for pool in self.world.settings.pools[:3]:
            cut = [piece for span in pool.ranges for piece in split(span, data)]
            pools += [replace(pool, name=f"{pool.name}-{number}", ranges=(span,)) for number, span in enumerate(cut)]
        self.configure(pools)

    @rule(data=st.data())
    def shrink_a_pool(self, data: st.DataObject) -> None:
        """Exclude a range, or restrict a pool to others."""
        pools = list(self.world.settings.pools)
        number = data.draw(st.integers(0, len(pools) - 1))
        if data.draw(st.booleans()):
            pools[number] = replace(pools[number], exclude=(*pools[number].exclude, data.draw(draw.ranges)))
        else:
            pools[number] = replace(pools[number], namespaces=frozenset({"team"}))
        self.configure(pools)

    @rule(pins=draw.pins)
    def repin(self, pins: dict[str, tuple[IPAddress, ...]]) -> None:
        """Change the pins: only Services that gain one may move."""
        self.world.settings = replace(self.world.settings, pins=pins)
        for key in list(self.settled):
            if pin_of(key, self.world.settings):
                self.touch(key)

    # --- plans

    @rule()
    def plan_and_forget_to_carry_it_out(self) -> None:
        """Make a plan that will be carried out later, when it is stale."""
        self.stale = self.world.answers()

    @precondition(lambda self: self.stale is not None)
    @rule(until=st.none() | st.integers(0, 12))
    def carry_out_a_stale_plan(self, until: int | None) -> None:
        """Carry out what was decided on old knowledge, perhaps not to the end."""
        assert self.stale is not None
        self.world.carry_out(self.stale, until)
        self.stale = None
        self.settled = {}

    @rule(until=st.integers(0, 12))
    def crash(self, until: int) -> None:
        """Plan, and stop after some writes: between claim and state, state and status, release and release."""
        self.world.carry_out(self.world.answers(), until)

    @rule()
    def lose_the_state(self) -> None:
        """Lose the state; the ledger still knows."""
        self.world.state = set()

    @rule(shuffle=st.randoms(use_true_random=False))
    def restart(self, shuffle: random.Random) -> None:
        """Read everything in another order: the same plan."""
        assert repr(self.world.answers(shuffle)) == repr(self.world.answers())

    @rule()
    def converge(self) -> None:
        """Come to rest: sound, nothing leaked, and nobody moved that didn't have to."""
        answers = self.world.converge()
        snapshot = self.world.snapshot()
        case = Oracle(snapshot, self.world.ours(snapshot), self.world.settings)
        assert_sound(case, answers)
        assert {key: self.world.held(key) for key in answers} == {
            key: set(addresses_of(answer)) for key, answer in answers.items()
        }
        ours = {claim for claim in self.world.ledger if claim.owner.home == self.world.home}
        assert self.world.state == ours
        assert {claim.address for claim in ours} == {
            address for answer in answers.values() for address in addresses_of(answer)
        }
        for key, before in self.settled.items():
            self.assert_stayed(case, self.world.services[key], before, answers[key])
        self.settled = {key: answer for key, answer in answers.items() if not isinstance(answer, Problem)}
        self.pools_changed = False

    def assert_stayed(self, case: Oracle, service: Service, before: Answer, after: Answer) -> None:
        """Check that a Service that nobody touched has what it had, as far as the pools still allow it."""
        had = set(addresses_of(before))
        if not self.pools_changed:
            assert had <= set(addresses_of(after)), "moved though nothing about it changed"
        elif not isinstance(after, Problem):
            assert {address for address in had if case.may_use(service, address)} <= set(after)
        else:
            assert not all(case.may_use(service, address) for address in had), "lost what it may still use"

    @invariant()
    def no_address_is_claimed_twice(self) -> None:
        """Look at ledger and plan at every moment: one owner for each address."""
        if hasattr(self, "world"):
            claimed = [claim.address for claim in self.world.ledger]
            assert len(claimed) == len(set(claimed))
            given = [address for answer in self.world.answers().values() for address in addresses_of(answer)]
            assert len(given) == len(set(given))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.converge()
            self.world.services.clear()
            self.world.converge()
            assert not self.world.state
            assert not {claim for claim in self.world.ledger if claim.owner.home == self.world.home}


def split(whole: AddressRange, data: st.DataObject) -> list[AddressRange]:
    """Cut a range in two, if it can be."""
    size = int(whole.last) - int(whole.first)
    if not size:
        return [whole]
    cut = whole.first + data.draw(st.integers(0, size - 1))
    return [AddressRange(whole.first, cut), AddressRange(cut + 1, whole.last)]


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestHistories = Histories.TestCase
