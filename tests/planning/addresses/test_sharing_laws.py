"""The laws of shared addresses: who shares has agreed to, fits beside the others, and takes nothing from anybody."""

from __future__ import annotations

import random
from collections import defaultdict
from ipaddress import ip_address
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Pool, Settings
from locallb.model.identities import ClusterName, IPAddress, ObjectKey, Owner, Protocol, SharingKey
from locallb.model.objects import Service, ServicePort, TrafficPolicy
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Claim, Snapshot
from locallb.planning.allocation import allocate
from tests.planning.addresses.world import Answers, World
from tests.support import strategies as draw
from tests.support.allocation import addresses_of

KEYS = st.sampled_from(["", "a", "b"])
ROOMY = Settings(
    (), (Pool("p", (AddressRange(draw.IPV4[0], draw.IPV4[-1]), AddressRange(draw.IPV6[0], draw.IPV6[-1]))),)
)


@st.composite
def services(drawn: st.DrawFn) -> list[Service]:
    """Draw Services, most of which share by one of two keys."""
    return [
        replace(service, ingress=(), sharing_key=SharingKey(drawn(KEYS)))
        for service in drawn(draw.service_lists(max_size=6))
    ]


def assert_sound(services: list[Service], answers: Answers) -> None:
    """Whoever has an address together has one key, one traffic policy and no port in common."""
    having: dict[IPAddress, list[Service]] = defaultdict(list)
    for service in services:
        for address in addresses_of(answers[service.key]):
            having[address].append(service)
    for sharers in having.values():
        for one, other in combinations(sharers, 2):
            assert one.sharing_key == other.sharing_key != ""
            assert one.traffic_policy is other.traffic_policy
            assert not {str(port) for port in one.ports} & {str(port) for port in other.ports}


def world_of(services: list[Service], configuration: Settings) -> World:
    """Make a world in which nothing is held yet."""
    return World(configuration, services={service.key: service for service in services})


@given(services(), draw.settings)
@settings(max_examples=200)
def test_only_agreeing_services_that_fit_share_an_address(listed: list[Service], configuration: Settings) -> None:
    """Whatever the pools are, in the first plan and when everything has come to rest."""
    world = world_of(listed, configuration)
    assert_sound(listed, world.answers())
    assert_sound(list(world.services.values()), converged(world))


@given(services(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(listed: list[Service], shuffle: random.Random) -> None:
    """Equal inputs give equal answers."""
    world = world_of(listed, ROOMY)
    assert world.answers(shuffle) == world.answers()
    converged(world)
    assert world.answers(shuffle) == world.answers()


@given(services())
def test_carried_out_plan_keeps_every_address_shared_or_not(listed: list[Service]) -> None:
    """A plan after its own execution takes no address away."""
    world = world_of(listed, ROOMY)
    first = world.answers()
    world.carry_out(first)
    for key, answer in world.answers().items():
        assert set(addresses_of(first[key])) <= set(addresses_of(answer))


@given(services(), draw.services(), KEYS)
def test_newcomer_changes_no_existing_shared_address(listed: list[Service], newcomer: Service, key: str) -> None:
    """Whoever joins, asks or only comes: everybody keeps what it has."""
    world = world_of(listed, ROOMY)
    before = converged(world)
    if newcomer.key not in world.services:
        world.services[newcomer.key] = replace(newcomer, sharing_key=SharingKey(key), ingress=())
        after = world.answers()
        for had, answer in before.items():
            assert set(addresses_of(answer)) <= set(addresses_of(after[had]))
        assert_sound(list(world.services.values()), after)


@given(services(), st.data())
def test_any_change_ends_in_a_sound_state(listed: list[Service], data: st.DataObject) -> None:
    """Ports, keys and policies change, Services go: what is claimed in the end is what sound plans gave."""
    world = world_of(listed, ROOMY)
    converged(world)
    for _ in range(data.draw(st.integers(1, 4))):
        if not world.services:
            break
        key = data.draw(st.sampled_from(sorted(world.services)))
        like = data.draw(draw.services())
        change = data.draw(st.sampled_from(["ports", "key", "policy", "go"]))
        if change == "go":
            del world.services[key]
        elif change == "ports":
            world.edit(key, ports=like.ports)
        elif change == "key":
            world.edit(key, sharing_key=data.draw(KEYS))
        else:
            world.edit(key, traffic_policy=like.traffic_policy)
        assert_sound(list(world.services.values()), world.answers())
    answers = converged(world)
    assert_sound(list(world.services.values()), answers)
    given = {(key, address) for key, answer in answers.items() for address in addresses_of(answer)}
    assert {(claim.owner.service, claim.address) for claim in world.ledger} == given


def converged(world: World) -> Answers:
    return world.converge()


# --- examples of what the laws leave open


def one(name: str, *ports: int, key: str = "k", created: str = "", **more: object) -> Service:
    service_key = ObjectKey(ClusterName("c"), "n", name)
    made = Service(
        service_key, tuple(ServicePort(port) for port in ports), created=created, sharing_key=SharingKey(key)
    )
    return replace(made, **more)  # fields by name


def given_to(*services: Service, held: dict[str, str] | None = None) -> dict[str, str | Reason]:
    """Allocate, with addresses in the ledger by name; give each its address or reason."""
    keys = {service.key.name: service.key for service in services}
    claims = tuple(
        Claim(ip_address(address), Owner(draw.HOME, keys.get(name, ObjectKey(ClusterName("c"), "n", name))))
        for name, address in (held or {}).items()
    )
    answers = allocate(Snapshot(draw.HOME, services, claims=claims, remembered=claims), services, ROOMY)
    return {
        key.name: answer.reason if isinstance(answer, Problem) else str(answer[0]) for key, answer in answers.items()
    }


def test_services_of_one_key_share_if_they_fit() -> None:
    """Two that fit have one address; the third, with a port of the first, has another."""
    got = given_to(one("a", 80, created="1"), one("b", 443, created="2"), one("c", 80, created="3"))
    assert got["a"] == got["b"] != got["c"]


def test_tcp_and_udp_of_one_number_fit() -> None:
    """A port is number and protocol."""
    udp = one("b", ports=(ServicePort(53, Protocol.UDP),))
    assert len(set(given_to(one("a", 53), udp).values())) == 1


def test_other_keys_no_key_and_other_policies_do_not_share() -> None:
    """Each has an address of its own."""
    local = one("d", 5, traffic_policy=TrafficPolicy.LOCAL)
    got = given_to(one("a", 1), one("b", 2, key="other"), one("c", 3, key=""), local, one("e", 4, key=""))
    assert len(set(got.values())) == 5


def test_older_service_joins_the_address_that_a_younger_one_holds() -> None:
    """The holder comes first."""
    assert given_to(one("a", 80, created="2"), one("b", 443, created="1"), held={"a": "10.0.0.7"})["b"] == "10.0.0.7"


def test_service_with_its_own_address_does_not_move_for_a_shared_key() -> None:
    """Both keep what they hold."""
    held = {"a": "10.0.0.7", "b": "10.0.0.8"}
    assert given_to(one("a", 80), one("b", 443), held=held) == held


def test_where_two_fit_no_longer_the_younger_moves() -> None:
    """Whoever changed; nobody else is touched."""
    held = {"a": "10.0.0.7", "b": "10.0.0.7", "c": "10.0.0.7"}
    got = given_to(one("a", 80, created="2"), one("b", 80, created="1"), one("c", 22, created="3"), held=held)
    assert (got["b"], got["c"]) == ("10.0.0.7", "10.0.0.7")
    assert got["a"] != "10.0.0.7"


def test_an_exact_request_is_granted_beside_others_or_refused() -> None:
    """It never moves who is there."""
    asking = one("b", 443, requested=(ip_address("10.0.0.7"),))
    assert given_to(one("a", 80), asking, held={"a": "10.0.0.7"})["b"] == "10.0.0.7"
    assert given_to(one("a", 443), asking, held={"a": "10.0.0.7"}) == {"a": "10.0.0.7", "b": Reason.IN_USE}


def test_address_is_not_joined_while_a_deleted_service_holds_it() -> None:
    """Its ports may still be bound: a newcomer waits for the release, with another address meanwhile."""
    got = given_to(one("a", 80), one("b", 443), held={"a": "10.0.0.7", "gone": "10.0.0.7"})
    assert got["a"] == "10.0.0.7" != got["b"]
