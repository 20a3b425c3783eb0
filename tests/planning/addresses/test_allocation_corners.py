"""Who gets which address where two rules meet, and what a refusal names: a case tells one rule from its neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from itertools import permutations

import pytest
from msgspec.structs import replace

from locallb.model.identities import Protocol, SharingKey
from locallb.model.objects import Service
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import HostRoute, survey
from locallb.model.snapshot import HostFacts, Socket
from tests.support.allocation import BOTH, FOUR, PREFER, REQUIRE, claim, doubtful, given, pool, service, terms
from tests.support.strategies import OTHER_HOME, route

LAST_SIX = AddressRange(ip_address("fd00::"), ip_address("fd00::"))


def sharing(name: str, *status: str, key: str = "k", created: str = "", requested: str = "") -> Service:
    """Make a Service with a sharing key, and without ports, so that all of the key fit together."""
    wishes = [requested] if requested else []
    return replace(service(name, *wishes, status=status, created=created), sharing_key=SharingKey(key))


def test_service_that_requests_one_family_precedes_older_ones_in_the_other() -> None:
    """An older one that requests nothing, and can do without, leaves it the last address."""
    old = service("old", families=BOTH, policy=PREFER, created="1")
    young = service("young", "10.0.0.2", families=BOTH, policy=REQUIRE, created="2")
    answers = given(old, young, pools=[pool(FOUR, LAST_SIX)])
    assert terms(answers["young"]) == "10.0.0.2 fd00::"
    assert len(terms(answers["old"]).split()) == 1


@pytest.mark.parametrize("order", tuple(permutations(range(3))), ids=str)
def test_sharing_service_joins_the_lowest_address_in_any_read_order(order: Sequence[int]) -> None:
    """Of those that its key has."""
    held = [claim(f"10.0.0.{3 - number}", f"s{number}") for number in range(3)]
    owners = [sharing(f"s{number}") for number in range(3)]
    answers = given(*owners, sharing("web"), ledger=[held[number] for number in order])
    assert terms(answers["web"]) == "10.0.0.1"


HERE = route("10.0.0.0/32")
OWN = route("10.0.0.1/32", device="eth0")
MAX = (route("10.0.0.0/31"), route("10.0.0.2/32"))
NAMED: dict[str, tuple[Sequence[HostRoute], Sequence[str], str]] = {
    "the first that isn't this host's": ([HERE], ["10.0.0.0"], "10.0.0.1"),
    "none that somebody holds": ([HERE], ["10.0.0.0", "10.0.0.1"], "10.0.0.2"),
    "none of this host's own": ([HERE, OWN], ["10.0.0.0"], "10.0.0.2"),
    "the last": (MAX, ["10.0.0.0", "10.0.0.1", "10.0.0.2"], "10.0.0.3"),
    "no more than the pool has": (MAX, ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"], ""),
}


@pytest.mark.parametrize("name", NAMED)
def test_where_nothing_is_left_on_this_host_an_address_is_named_that_could_be_made_its_own(name: str) -> None:
    """One that is free; where there is none, the pool is full."""
    routes, held, example = NAMED[name]
    ledger = [claim(address, f"other{number}", OTHER_HOME) for number, address in enumerate(held)]
    facts = HostFacts(addresses=survey(routes))
    answer = given(service("web"), pools=[pool(FOUR)], host=facts, ledger=ledger)["web"]
    assert isinstance(answer, Problem)
    assert (answer.reason is Reason.NOT_ON_HOST) == bool(example)
    assert f"no local route has {example};" in answer.message or not example


@pytest.mark.parametrize("key", ["k", ""])
def test_services_of_one_key_that_only_their_status_puts_together_stay_together(key: str) -> None:
    """As after a lost ledger and state. Without a key the older has it alone."""
    at = "10.0.0.3"
    answers = given(sharing("young", at, key=key, created="2"), sharing("old", at, key=key, created="1"))
    assert terms(answers["old"]) == at
    assert (terms(answers["young"]) == at) == bool(key)


@pytest.mark.parametrize(
    ("key", "reported"), [("", "which belongs to Service a/n/old"), ("other", "which is shared by a/n/old")]
)
def test_refusal_says_whether_the_requested_address_is_shared(key: str, reported: str) -> None:
    """And which Service has it."""
    held = [claim("10.0.0.3", "old")]
    asker = sharing("web", requested="10.0.0.3", created="2")
    answer = given(sharing("old", key=key, created="1"), asker, ledger=held)["web"]
    assert isinstance(answer, Problem)
    assert reported in answer.message


@pytest.mark.parametrize(("keys", "reasons"), [(("k", "k"), 0), (("k", "other"), 1), (("k", ""), 1), (("", ""), 1)])
def test_new_services_share_a_requested_address_only_with_the_same_key(keys: tuple[str, str], reasons: int) -> None:
    """Nobody holds it yet; the older comes first."""
    old = sharing("old", key=keys[0], created="1", requested="10.0.0.3")
    answers = given(old, sharing("young", key=keys[1], created="2", requested="10.0.0.3"))
    assert terms(answers["old"]) == "10.0.0.3"
    assert [terms(answers["young"])] == ["InUse"] * reasons + ["10.0.0.3"] * (1 - reasons)


@pytest.mark.parametrize("oldest", range(8))
@pytest.mark.parametrize("source", ["ledger", "state"])
def test_address_claimed_by_many_services_stays_with_the_oldest(oldest: int, source: str) -> None:
    """Whatever they are called, and in whatever order they are read."""
    claims = [claim("10.0.0.3", f"s{number}") for number in range(8)]
    present = [service(f"s{number}", created="1" if number == oldest else "2") for number in range(8)]
    pools = [pool(AddressRange(ip_address("10.0.0.0"), ip_address("10.0.0.15")))]
    ledger, state = (claims, []) if source == "ledger" else ([], claims)
    answers = given(*present, pools=pools, ledger=ledger, state=state)
    assert [name for name, answer in answers.items() if terms(answer) == "10.0.0.3"] == [f"s{oldest}"]


def test_sharing_service_keeps_its_requested_address_while_another_leaves_it() -> None:
    """No other Service may join meanwhile."""
    held = [claim("10.0.0.3", "web"), claim("10.0.0.3", "gone")]
    answers = given(sharing("web", requested="10.0.0.3"), sharing("new", requested="10.0.0.3"), ledger=held)
    assert (terms(answers["web"]), terms(answers["new"])) == ("10.0.0.3", "InUse")


def test_address_is_not_joined_while_a_service_of_another_key_must_leave_it() -> None:
    """One of its Services has another key now: the younger moves, and may still be bound there."""
    held = [claim("10.0.0.3", "old"), claim("10.0.0.3", "moving")]
    old, moving = sharing("old", created="1"), sharing("moving", key="other", created="2")
    answers = given(old, moving, sharing("new", created="3", requested="10.0.0.3"), ledger=held)
    assert terms(answers["old"]) == "10.0.0.3"
    assert terms(answers["moving"]) not in {"10.0.0.3", "InUse"}
    assert isinstance(answers["new"], Problem)
    assert "10.0.0.3, which is shared by a/n/old;" in answers["new"].message


def test_refusal_names_the_first_of_several_deleted_holders() -> None:
    """By name, so that it is the same one each time."""
    held = [claim("10.0.0.3", f"gone{number}") for number in (2, 0, 1)]
    answer = given(service("web", "10.0.0.3"), ledger=held)["web"]
    assert isinstance(answer, Problem)
    assert "is not yet released by Service a/n/gone0" in answer.message


def test_new_service_joins_an_address_known_only_from_a_status() -> None:
    """No Service is known to leave it."""
    answers = given(sharing("old", "10.0.0.3", created="1"), sharing("new", created="2"))
    assert terms(answers["new"]) == terms(answers["old"]) == "10.0.0.3"


def test_refusal_names_the_first_of_several_foreign_holders() -> None:
    """By name, so that it is the same one each time."""
    held = [claim("10.0.0.3", f"other{number}", OTHER_HOME) for number in (2, 0, 1)]
    answer = given(service("web", "10.0.0.3"), ledger=held)["web"]
    assert isinstance(answer, Problem)
    assert "which belongs to Service a/n/other0 of " in answer.message


def test_a_process_that_this_user_may_not_see_is_reported_as_anothers() -> None:
    """Who it is can't be said."""
    host = HostFacts(sockets=(Socket(ip_address("10.0.0.3"), 80, Protocol.TCP, ""),))
    answer = given(service("web", "10.0.0.3"), host=host)["web"]
    assert isinstance(answer, Problem)
    assert "which the process of another user listens on" in answer.message


def test_shared_address_with_an_unreadable_claim_is_kept_and_not_joined() -> None:
    """Only the state knows the owner of that claim."""
    state = [claim("10.0.0.3", "a"), claim("10.0.0.3", "b")]
    services = [sharing(name, created=name) for name in "abc"]
    for ledger in ([doubtful("10.0.0.3"), state[0]], [doubtful("10.0.0.3")]):
        answers = given(*services, ledger=ledger, state=state)
        assert [terms(answers[name]) for name in "ab"] == ["10.0.0.3", "10.0.0.3"]
        assert terms(answers["c"]) != "10.0.0.3"
