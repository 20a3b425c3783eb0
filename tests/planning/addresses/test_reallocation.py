"""Allocation of a few Services, without asking all others, gives what allocation of all gives."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Pool, Settings
from locallb.model.identities import ClusterName, Family, IPAddress, ObjectKey, SharingKey
from locallb.model.memory import came_and_went
from locallb.model.network.ranges import AddressRange
from locallb.model.objects import FamilyPolicy, IngressEntry, Service
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses import reallocation
from locallb.planning.addresses.allocation import allocate
from locallb.planning.addresses.reallocation import Allocations
from tests.planning import strategies as draw
from tests.planning.addresses.world import Answers, World

ONE = AddressRange(ip_address("10.0.0.0"), ip_address("10.0.0.23"))
OTHER = AddressRange(ip_address("fd00::10"), ip_address("fd00::2f"))
POOLS = Settings((), (Pool("some", (ONE, OTHER)), Pool("team", (ONE,), priority=1, namespaces=frozenset({"team"}))))
STEPS = (*("come", "carry out") * 2, "go", "crash", "claim", "release", "write", "move", "lose", "stranger")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_history_of_a_few_changes_has_the_answers_of_all(data: st.DataObject) -> None:
    """Services come, go and change, claims and statuses are written or not: each answer is the one without memory."""
    world, known = World(POOLS), Allocations()
    for _ in range(data.draw(st.integers(1, 12))):
        for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=2)):
            take(step, world, data)
        assert answers_of(known, world) == world.answers()


def take(step: str, world: World, data: st.DataObject) -> None:
    """Let one thing happen in the world."""
    if step == "come":
        drawn = data.draw(draw.services())
        asking = data.draw(st.integers(0, 9)) == 0
        requested, sharing = (drawn.requested, drawn.sharing_key) if asking else ((), SharingKey(""))
        world.services[drawn.key] = replace(drawn, requested=requested, sharing_key=sharing, ingress=())
    elif step == "carry out":
        world.carry_out(world.answers())
    elif step == "crash":
        world.carry_out(world.answers(), data.draw(st.integers(0, 12)))
    elif step == "claim":
        world.foreign_claim(data.draw(addresses), data.draw(draw.keys))
    elif step == "release":
        world.ledger = {claim for claim in world.ledger if claim.owner.home == world.home}
    elif step == "lose":
        world.state = set()
    elif world.services:
        change(step, world, data)


def change(step: str, world: World, data: st.DataObject) -> None:
    """Let something happen to one Service that is there."""
    key = data.draw(st.sampled_from(sorted(world.services)))
    if step == "go":
        del world.services[key]
    elif step == "write":
        world.edit(key, ingress=tuple(map(IngressEntry, data.draw(st.lists(addresses, max_size=2)))))
    elif step == "move":
        world.edit(key, created=data.draw(st.sampled_from(draw.CREATED)), families=data.draw(families))
    else:
        world.foreign ^= {key}


@given(draw.snapshots(), draw.snapshots(), st.data())
@settings(max_examples=200, deadline=None)
def test_snapshots_that_contradict_themselves_have_the_answers_of_all(
    first: Snapshot, second: Snapshot, data: st.DataObject
) -> None:
    """Whoever claims, remembers or lists what, twice or against each other."""
    known, hosts = Allocations(), [data.draw(draw.hosts), data.draw(draw.hosts)]
    claims, remembered = [*first.claims, *second.claims], [*first.remembered, *second.remembered]
    services = {
        one.key: replace(one, requested=(), sharing_key=SharingKey("")) for one in (*first.services, *second.services)
    }
    for _ in range(4):
        some = [
            replace(one, created=data.draw(st.sampled_from((one.created, *draw.CREATED))))
            for one in services.values()
            if data.draw(st.integers(0, 4))
        ]
        snapshot = replace(
            first,
            host=hosts[data.draw(st.integers(0, 4)) == 0],
            services=tuple(services[one.key] if one == services[one.key] else one for one in some),
            claims=tuple(claim for claim in claims if data.draw(st.integers(0, 4))),
            remembered=tuple(claim for claim in remembered if data.draw(st.integers(0, 4))),
        )
        ours = [one for one in snapshot.services if data.draw(st.integers(0, 4))]
        assert known.of(snapshot, ours, POOLS) == allocate(snapshot, ours, POOLS)


addresses: st.SearchStrategy[IPAddress] = st.sampled_from([ONE.first + number for number in range(6)] + [OTHER.first])
families = st.sampled_from(draw.FAMILIES)


def answers_of(known: Allocations, world: World) -> Answers:
    """Ask with a memory."""
    snapshot = world.snapshot()
    return known.of(snapshot, world.ours(snapshot), world.settings)


def service(name: str, created: str = "", **fields: object) -> Service:
    """Make a Service."""
    return replace(Service(ObjectKey(ClusterName("c"), "n", name), (), created=created), **fields)  # fields by name


@pytest.fixture
def settled() -> Iterator[tuple[World, Allocations]]:
    """Have ten Services with addresses, a memory that knows them, and nobody who could ask all."""
    world, known = World(POOLS), Allocations()
    for number in range(10):
        world.services |= {one.key: one for one in [service(f"s{number}")]}
    world.converge()
    answers_of(known, world)
    with patch.object(reallocation, "allocate", side_effect=AssertionError("all were asked")):
        yield world, known


def test_new_and_deleted_service_is_allocated_without_asking_the_others(settled: tuple[World, Allocations]) -> None:
    """From its first plan to the release of its address."""
    world, known = settled
    new = service("new", families=(Family.IPV4, Family.IPV6), family_policy=FamilyPolicy.REQUIRE_DUAL)
    world.services[new.key] = new
    for _ in range(2):
        answers = answers_of(known, world)
        assert len(answers[new.key]) == 2  # type: ignore[arg-type]  # addresses
        world.carry_out(answers)
    del world.services[new.key]
    for _ in range(3):
        answers = answers_of(known, world)
        assert (new.key in answers, len(answers)) == (False, 10)
        world.carry_out(answers)
    assert answers == allocate(world.snapshot(), world.ours(world.snapshot()), world.settings)


def test_an_address_that_was_only_planned_is_the_next_ones() -> None:
    """Whoever got it in a plan and went before it was claimed hinders nobody who holds it later."""
    world, known = World(replace(POOLS, pools=(Pool("one", (AddressRange(ONE.first, ONE.first),)),))), Allocations()
    for name in ("a", "b"):
        one = service(name)
        world.services = {one.key: one}
        assert answers_of(known, world)[one.key] == (ONE.first,)
    world.carry_out(world.answers())
    assert answers_of(known, world) == world.answers() == {one.key: (ONE.first,)}


GUARDED = {
    "asks for an address": service("new", requested=(ONE.first,)),
    "shares one": service("new", sharing_key=SharingKey("x")),
    "wants more than there is": service("new", families=(Family.IPV6,)),
}


@pytest.mark.parametrize("new", GUARDED.values(), ids=GUARDED)
def test_service_that_may_affect_others_is_allocated_among_all(
    settled: tuple[World, Allocations], new: Service
) -> None:
    """One that requests an address, shares one, or can't be served as it wants."""
    world, known = settled
    for number in range(32):
        world.services |= {one.key: one for one in [service(f"full{number}", families=(Family.IPV6,))]}
    world.carry_out(answers_of(known, world))
    world.services[new.key] = new
    with pytest.raises(AssertionError, match="all were asked"):
        answers_of(known, world)


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_came_and_went_are_the_exact_difference_of_two_lists(before: list[int], now: list[int]) -> None:
    """Each object as often as one list has it more than the other; those that moved are in neither."""
    things = [object() for _ in range(6)]
    old, new = ([things[number] for number in some] for some in (before, now))
    came, went = came_and_went(old, new)
    assert sorted(map(id, [*old, *came])) == sorted(map(id, [*new, *went]))
    assert not {*map(id, came)} & {*map(id, went)}
