"""Who gets which address: one example for each rule, with the exact sentence of each refusal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address

import pytest

from locallb.config.settings import Pool, Settings
from locallb.model.identities import ClusterName, Family, Home, NodeName, ObjectKey, Owner, Protocol
from locallb.model.objects import FamilyPolicy, Node, Service
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import survey
from locallb.model.snapshot import Claim, HostFacts, Snapshot, Socket
from locallb.planning.allocation import allocate
from tests.support.allocation import (
    BOTH,
    CLUSTER,
    FOUR,
    PREFER,
    REQUIRE,
    SIX,
    claim,
    doubtful,
    given,
    pool,
    service,
    terms,
)
from tests.support.strategies import HOME, OTHER_HOME, having_all_but, route


def listening(address: str) -> HostFacts:
    """Make a host on which a foreign process listens."""
    return HostFacts(sockets=(Socket(ip_address(address), 80, Protocol.TCP, "nginx (12)"),))


# --- what is held ---------------------------------------------------------------------------------------------------


def test_new_service_gets_its_preferred_address() -> None:
    """A hash of cluster/namespace/name picks it: the same on every machine, the same place in pools of equal size."""
    first = given(service("web", families=BOTH))["web"]
    assert terms(first) == "10.0.0.1 fd00::1"
    assert given(service("web", families=BOTH[::-1]))["web"] == tuple(reversed(list(first)))  # type: ignore[arg-type]  # it is no Problem, as seen above


@pytest.mark.parametrize("source", ["ledger", "state", "status"])
def test_a_held_address_is_kept(source: str) -> None:
    """By own claim, by own state, or by the Service's own status; each alone is enough."""
    held = [claim("10.0.0.3", "web")]
    got = given(
        service("web", status=["10.0.0.3"] if source == "status" else []),
        ledger=held if source == "ledger" else [],
        state=held if source == "state" else [],
    )
    assert terms(got["web"]) == "10.0.0.3"


@pytest.mark.parametrize(
    ("ledger", "state", "status", "retained"),
    [
        (["10.0.0.3"], ["10.0.0.2"], ["10.0.0.0"], "10.0.0.3"),
        ([], ["10.0.0.2"], ["10.0.0.0"], "10.0.0.2"),
        (["10.0.0.2", "10.0.0.3"], ["10.0.0.3"], [], "10.0.0.3"),
        (["10.0.0.2", "10.0.0.3"], [], ["10.0.0.3"], "10.0.0.3"),
        (["10.0.0.3", "10.0.0.2"], [], [], "10.0.0.2"),
        (["10.9.9.9"], ["10.0.0.2"], [], "10.0.0.2"),
    ],
)
def test_the_strongest_hold_wins(ledger: list[str], state: list[str], status: list[str], retained: str) -> None:
    """Ledger, state, status; of equal ones what also holds by the next, then the lower; unusable ones don't count."""
    got = given(
        service("web", status=status),
        ledger=[claim(address, "web") for address in ledger],
        state=[claim(address, "web") for address in state],
    )
    assert terms(got["web"]) == retained


def test_a_service_recreated_under_its_name_keeps_the_address() -> None:
    """The claim of the former uid stays with the name."""
    assert terms(given(service("web"), ledger=[claim("10.0.0.3", "web", uid="old")])["web"]) == "10.0.0.3"


def test_a_claim_whose_service_is_gone_is_not_handed_out() -> None:
    """Until it is released its data plane may stand."""
    got = given(service("new", "10.0.0.3"), ledger=[claim("10.0.0.3", "gone")])
    assert got["new"] == Problem(
        Reason.IN_USE,
        "a/n/new asks for 10.0.0.3, which is not yet released by Service a/n/gone; "
        "ask for another address or release it there",
    )
    everything = [claim(f"10.0.0.{number}", "gone") for number in range(4)]
    assert terms(given(service("new"), state=everything)["new"]) == "PoolExhausted"


def test_address_held_by_two_services_stays_with_the_older() -> None:
    """A crash or a manual edit can cause that; the younger gets a new one."""
    both = [claim("10.0.0.3", "a"), claim("10.0.0.3", "b")]
    services = service("a", created="2026-02-02"), service("b", created="2026-01-01")
    for where in ("ledger", "state"):
        got = given(*services, **{where: both})  # type: ignore[arg-type]  # either takes claims
        assert terms(got["b"]) == "10.0.0.3"
        assert terms(got["a"]) not in {"10.0.0.3", "PoolExhausted"}


def test_the_ledger_is_stronger_than_state_and_status_of_others() -> None:
    """Who claims it has it, whoever else remembers or lists it."""
    got = given(
        service("a", created="1", status=["10.0.0.3"]),
        service("b", created="2"),
        service("c", created="0"),
        ledger=[claim("10.0.0.3", "b")],
        state=[claim("10.0.0.3", "c")],
    )
    assert terms(got["b"]) == "10.0.0.3"


@pytest.mark.parametrize(
    ("status_of_other", "created", "got"),
    [("", "", "10.0.0.3"), ("10.0.0.3", "9", "10.0.0.3"), ("10.0.0.3", "0", "10.0.0.1")],
)
def test_a_status_entry_is_adopted_unless_an_older_service_lists_it(
    status_of_other: str, created: str, got: str
) -> None:
    """The status of Services that aren't ours counts as well."""
    other = service("other", status=[status_of_other] if status_of_other else [], created=created)
    assert terms(given(service("web", status=["10.0.0.3"], created="5"), others=[other])["web"]) == got


def test_a_status_entry_that_another_stack_claims_is_not_adopted() -> None:
    """The ledger says whose it is."""
    got = given(service("web", status=["10.0.0.3"]), ledger=[claim("10.0.0.3", "web", OTHER_HOME)])
    assert terms(got["web"]) == "10.0.0.1"


def test_a_status_entry_outside_the_pools_of_the_service_is_not_adopted() -> None:
    """A cloud's address, or that of a pool for others, stays where it is."""
    pools = [pool(), pool(AddressRange(ip_address("10.1.0.0"), ip_address("10.1.0.0")), namespaces=frozenset({"x"}))]
    assert terms(given(service("web", status=["34.1.2.3"]), pools=pools)["web"]) == "10.0.0.1"
    assert terms(given(service("web", status=["10.1.0.0"]), pools=pools)["web"]) == "10.0.0.1"


def test_address_in_a_foreign_status_is_given_to_no_service() -> None:
    """Whether requested or not, as long as it is in that status."""
    others = [service("other", status=["10.0.0.1"])]
    assert terms(given(service("web"), others=others)["web"]) == "10.0.0.2"
    assert given(service("web", "10.0.0.1"), others=others)["web"] == Problem(
        Reason.IN_USE,
        "a/n/web asks for 10.0.0.1, which stands in the status of Service a/n/other; "
        "ask for another address or release it there",
    )


def test_a_foreign_claim_is_never_taken() -> None:
    """Another stack of this host has it, even if ours says the same."""
    foreign = claim("10.0.0.1", "theirs", OTHER_HOME)
    assert terms(given(service("web"), ledger=[foreign])["web"]) == "10.0.0.2"
    assert terms(given(service("web"), ledger=[foreign, claim("10.0.0.1", "web")])["web"]) == "10.0.0.2"
    assert given(service("web", "10.0.0.1"), ledger=[foreign])["web"] == Problem(
        Reason.IN_USE,
        "a/n/web asks for 10.0.0.1, which belongs to Service a/n/theirs of project/test at /srv/project; "
        "ask for another address or release it there",
    )


def test_a_damaged_claim_counts_as_owned() -> None:
    """A ledger file that can't be read keeps its address from everybody."""
    nobody = Owner(Home("", "", ""), ObjectKey(ClusterName(""), "", ""))
    got = given(service("web", "10.0.0.1"), ledger=[Claim(ip_address("10.0.0.1"), nobody)])
    assert got["web"] == Problem(
        Reason.IN_USE,
        "a/n/web asks for 10.0.0.1, which is held by a damaged claim in the ledger; "
        "ask for another address or release it there",
    )


def test_a_claim_that_cannot_be_read_takes_no_address_from_its_holder() -> None:
    """By the ledger or by this stack's own state, also where the claim of that is the very one; nobody new gets it."""
    ours, other = claim("10.0.0.1", "web"), service("new", created="2")
    for ledger, state in (([doubtful("10.0.0.1"), ours], []), ([doubtful("10.0.0.1")], [ours])):
        got = given(service("web"), other, ledger=ledger, state=state)
        assert (terms(got["web"]), terms(got["new"])) == ("10.0.0.1", "10.0.0.3")
    foreign = claim("10.0.0.1", "theirs", OTHER_HOME)
    assert terms(given(service("web"), ledger=[doubtful("10.0.0.1"), foreign], state=[ours])["web"]) == "10.0.0.2"
    assert given(service("web", "10.0.0.1"), ledger=[doubtful("10.0.0.1")])["web"] == Problem(
        Reason.IN_USE,
        "a/n/web asks for 10.0.0.1, which is held by a claim in the ledger that can't be read just now "
        "(/ledger/x can't be read; look after that disk); ask for another address or release it there",
    )


def test_a_project_that_moved_keeps_its_addresses() -> None:
    """State and ledger name the old place word for word; the ledger alone would be somebody else's."""
    moved = claim("10.0.0.3", "web", HOME._replace(root="/srv/before"))
    assert terms(given(service("web"), ledger=[moved], state=[moved])["web"]) == "10.0.0.3"
    assert terms(given(service("web"), ledger=[moved])["web"]) == "10.0.0.1"


# --- requests and pins ----------------------------------------------------------------------------------------------


def test_a_request_is_granted_exactly() -> None:
    """One of each family, in the order of the Service's families."""
    assert terms(given(service("web", "10.0.0.3", "fd00::2", families=BOTH[::-1]))["web"]) == "fd00::2 10.0.0.3"
    assert terms(given(service("web", "fd00::2", families=BOTH))["web"]) == "10.0.0.1 fd00::2"


def test_a_request_moves_the_service_and_clearing_it_keeps_the_address() -> None:
    """An edited request is obeyed; no request is no reason to move."""
    held = [claim("10.0.0.3", "web")]
    assert terms(given(service("web", "10.0.0.2"), ledger=held, state=held)["web"]) == "10.0.0.2"
    assert terms(given(service("web"), ledger=held, state=held)["web"]) == "10.0.0.3"


REFUSALS: list[tuple[Service, Mapping[str, object], Problem]] = [
    (
        service("web", "10.9.9.9"),
        {},
        Problem(
            Reason.OUT_OF_POOL,
            "a/n/web asks for 10.9.9.9, which isn't in pool p (10.0.0.0/30, fd00::/126); "
            "ask for another address or add it to local-lb:pools",
        ),
    ),
    (
        service("web", "fd00::1"),
        {},
        Problem(
            Reason.FAMILY_MISMATCH,
            "a/n/web asks for fd00::1, an IPv6 address, but it wants IPv4; "
            "ask for another address or set spec.ipFamilyPolicy to PreferDualStack",
        ),
    ),
    (
        service("web", "127.0.0.1"),
        {"pools": [pool(AddressRange(ip_address("127.0.0.0"), ip_address("127.0.0.3")))]},
        Problem(
            Reason.EXCLUDED,
            "a/n/web asks for 127.0.0.1, which is never handed out (localhost); ask for another address",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"pools": [pool(exclude=(AddressRange(ip_address("10.0.0.2"), ip_address("10.0.0.2")),))]},
        Problem(
            Reason.EXCLUDED,
            "a/n/web asks for 10.0.0.2, which the pool p excludes; "
            "ask for another address or take it out of the pool's `exclude`",
        ),
    ),
    (
        service("web", "10.0.0.2", labels={"tier": "db"}),
        {"pools": [pool(namespaces=frozenset({"x", "n"}), selector={"tier": "web"})]},
        Problem(
            Reason.SELECTOR_MISMATCH,
            "a/n/web asks for 10.0.0.2, which is in the pool p, only for namespace n or x and label tier=web; "
            "ask for another address or let the pool allow it",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"ledger": [claim("10.0.0.2", "other")], "others": [service("other")]},
        Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.2, which is not yet released by Service a/n/other; "
            "ask for another address or release it there",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"host": listening("10.0.0.2")},
        Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.2, which the process nginx (12) listens on; "
            "ask for another address or release it there",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"nodes": [Node(CLUSTER, NodeName("worker"), (ip_address("10.0.0.2"),))]},
        Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.2, which is the address of Node worker in a; "
            "ask for another address or release it there",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"external_ips": ["10.0.0.2"]},
        Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.2, which is in spec.externalIPs of a Service; "
            "ask for another address or release it there",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"host": HostFacts(addresses=survey([route("10.0.0.0/8"), route("10.0.0.2", "broadcast", "eth0")]))},
        Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.2, which is the broadcast address of a network of this host; "
            "ask for another address or release it there",
        ),
    ),
    (
        service("web", "10.0.0.2"),
        {"host": HostFacts(addresses=having_all_but({ip_address("10.0.0.2")}))},
        Problem(
            Reason.NOT_ON_HOST,
            "a/n/web asks for 10.0.0.2, which isn't this host's: no local route has it; "
            "as root, `locallb host setup --yes` makes its pool local, or ask for another address",
        ),
    ),
    (
        service("web"),
        {"pins": {"n/web": ["fd00::1"]}},
        Problem(
            Reason.FAMILY_MISMATCH,
            "a/n/web is pinned to fd00::1, an IPv6 address, but it wants IPv4; "
            "pin another address in local-lb:pins or set spec.ipFamilyPolicy to PreferDualStack",
        ),
    ),
]


def test_refusal_names_the_final_holder_of_the_address() -> None:
    """A Service that is refused one of two requested addresses leaves the other to others in the same plan."""
    span = AddressRange(ip_address("fd00::1"), ip_address("fd00::1"))
    both = service("both", "fd00::1", "10.0.0.1", families=(Family.IPV6,)), service("other", families=(Family.IPV6,))
    first = given(*both, pools=[pool(span)])
    assert terms(first["other"]) == "fd00::1"
    assert "asks for fd00::1, which belongs to Service a/n/other" in str(first["both"])
    assert given(*both, pools=[pool(span)], ledger=[claim("fd00::1", "other")]) == first


@pytest.mark.parametrize(("asking", "world", "problem"), REFUSALS, ids=lambda value: getattr(value, "reason", ""))
def test_a_request_that_cannot_be_granted_is_refused(
    asking: Service, world: Mapping[str, object], problem: Problem
) -> None:
    """Never replaced by another address; the sentence says who, what and what helps."""
    assert given(asking, **world)["web"] == problem  # type: ignore[arg-type]  # a table of keywords


def test_a_refused_request_refuses_every_family() -> None:
    """What was asked for can't be had: half of it would hide that."""
    assert terms(given(service("web", "fd99::1", families=BOTH))["web"]) == "OutOfPool"


def test_address_requested_by_two_services_goes_to_the_older() -> None:
    """The younger is told which Service has it."""
    got = given(service("a", "10.0.0.2", created="2"), service("b", "10.0.0.2", created="1"))
    assert terms(got["b"]) == "10.0.0.2"
    assert got["a"] == Problem(
        Reason.IN_USE,
        "a/n/a asks for 10.0.0.2, which belongs to Service a/n/b; ask for another address or release it there",
    )


def test_a_request_never_evicts_the_owner() -> None:
    """Not even that of an older Service."""
    got = given(service("old", "10.0.0.2", created="1"), service("new", created="2"), ledger=[claim("10.0.0.2", "new")])
    assert (terms(got["old"]), terms(got["new"])) == ("InUse", "10.0.0.2")


def test_requests_come_before_preferences() -> None:
    """An older Service that doesn't care gives way to a younger one that asks."""
    got = given(service("web", created="1"), service("asks", "10.0.0.1", created="2"))
    assert (terms(got["web"]), terms(got["asks"])) == ("10.0.0.2", "10.0.0.1")


def test_a_request_for_one_family_leaves_alone_what_another_asks_for_in_the_other() -> None:
    """The second family is chosen beside all requests, also the younger ones."""
    first = service("web", "10.0.0.3", families=BOTH, policy=REQUIRE, created="1")
    got = given(first, service("asks", "fd00::1", families=(Family.IPV6,), created="2"))
    assert (terms(got["web"]), terms(got["asks"])) == ("10.0.0.3 fd00::2", "fd00::1")


def test_refused_service_leaves_its_requested_address_to_others() -> None:
    """Also where it was refused because of the other family."""
    refused = service("a", "10.0.0.2", "fd99::9", families=BOTH, created="1")
    assert terms(given(refused, service("b", "10.0.0.2", created="2"))["b"]) == "10.0.0.2"
    half = service("a", "10.0.0.2", families=BOTH, policy=REQUIRE, created="1")
    got = given(half, service("b", "10.0.0.2", created="2"), pools=[pool(FOUR)])
    assert (terms(got["a"]), terms(got["b"])) == ("InUse", "10.0.0.2")


@pytest.mark.parametrize("policy", [REQUIRE, PREFER])
def test_address_requested_only_by_a_refused_service_is_given_to_others(policy: FamilyPolicy) -> None:
    """The last IPv6 address isn't kept free for a request that is refused for another reason."""
    span = AddressRange(ip_address("fd00::1"), ip_address("fd00::1"))
    needs = service("a", "10.0.0.2", families=BOTH, policy=policy, created="1")
    refused = service("b", "fd00::1", "10.9.9.9", families=BOTH, created="2")
    got = given(needs, refused, pools=[pool(FOUR, span)])
    assert (terms(got["a"]), terms(got["b"])) == ("10.0.0.2 fd00::1", "InUse")


def test_a_pin_beats_the_request_of_its_family() -> None:
    """The request of the other family still counts."""
    asking = service("web", "10.0.0.2", "fd00::2", families=BOTH)
    assert terms(given(asking, pins={"n/web": ["10.0.0.3"]})["web"]) == "10.0.0.3 fd00::2"


def test_a_pinned_address_is_kept_free_for_its_service() -> None:
    """Even before that Service exists; who asks for it is told."""
    pins = {"n/later": ["10.0.0.1"]}
    assert terms(given(service("web"), pins=pins)["web"]) == "10.0.0.2"
    assert given(service("web", "10.0.0.1", created="1"), service("later", created="2"), pins=pins) == {
        "web": Problem(
            Reason.IN_USE,
            "a/n/web asks for 10.0.0.1, which is pinned to n/later; ask for another address or release it there",
        ),
        "later": (ip_address("10.0.0.1"),),
    }


def test_a_pattern_pins_for_the_oldest_that_it_fits_and_that_has_no_pin_of_its_own() -> None:
    """The others are told; who doesn't fit leaves the address alone."""
    pins = {"n/bastion-*": ["10.0.0.1"], "n/bastion-own": ["10.0.0.3"]}
    services = [service("web", created="1"), *(service(f"bastion-{name}", created="2") for name in ("own", "x", "y"))]
    got = given(*services, pins=pins)
    assert [terms(got[name]) for name in ("web", "bastion-own", "bastion-x")] == ["10.0.0.2", "10.0.0.3", "10.0.0.1"]
    assert got["bastion-y"] == Problem(
        Reason.IN_USE,
        "a/n/bastion-y is pinned to 10.0.0.1, which belongs to Service a/n/bastion-x; "
        "pin another address in local-lb:pins or release it there",
    )


def test_a_pin_never_evicts_the_owner() -> None:
    """It is granted once the owner has left."""
    got = given(service("web"), service("pinned"), pins={"n/pinned": ["10.0.0.3"]}, ledger=[claim("10.0.0.3", "web")])
    assert terms(got["web"]) == "10.0.0.3"
    assert got["pinned"] == Problem(
        Reason.IN_USE,
        "a/n/pinned is pinned to 10.0.0.3, which belongs to Service a/n/web; "
        "pin another address in local-lb:pins or release it there",
    )


# --- pools ----------------------------------------------------------------------------------------------------------

BIG = AddressRange(ip_address("10.1.0.0"), ip_address("10.1.0.255"))


def test_the_pool_of_the_highest_priority_is_used_first() -> None:
    """The next one when it is full or not for this Service."""
    pools = [pool(BIG), pool(FOUR, name="first", priority=1, selector={"tier": "web"})]
    labels = {"tier": "web"}
    got = given(*(service(f"s{number}", labels=labels) for number in range(6)), service("plain"), pools=pools)
    assert sum(terms(answer).startswith("10.0.0.") for answer in got.values()) == 4
    assert terms(got["plain"]).startswith("10.1.0.")


def test_a_held_address_outlives_every_change_that_still_allows_it() -> None:
    """Pools renamed, reordered, shrunk, split: who may stay, stays."""
    held = [claim("10.0.0.3", "web")]
    for pools in (
        [pool(name="renamed")],
        [pool(BIG, priority=9), pool(FOUR)],
        [pool(AddressRange(ip_address("10.0.0.3"), ip_address("10.0.0.3")))],
        [pool(BIG), pool(AddressRange(ip_address("10.0.0.2"), ip_address("10.0.0.9")), name="part")],
    ):
        assert terms(given(service("web"), pools=pools, ledger=held)["web"]) == "10.0.0.3"


def test_a_held_address_that_the_service_may_not_use_any_more_is_left() -> None:
    """Out of the pool, excluded from it, or in a pool for others."""
    held = [claim("10.0.0.3", "web")]
    for pools in (
        [pool(BIG)],
        [pool(BIG, FOUR, exclude=(FOUR,))],
        [pool(BIG), pool(FOUR, namespaces=frozenset({"x"}))],
    ):
        assert terms(given(service("web"), pools=pools, ledger=held)["web"]).startswith("10.1.0.")


def test_a_full_pool_is_reported() -> None:
    """The youngest gets none; the sentence says what is full."""
    got = given(*(service(f"s{number}", created=str(number)) for number in range(5)))
    assert len({terms(answer) for answer in got.values()}) == 5
    assert got["s4"] == Problem(
        Reason.POOL_EXHAUSTED,
        "a/n/s4 gets no IPv4 address: all of pool p (10.0.0.0/30, fd00::/126) is taken; "
        "add addresses to local-lb:pools or delete a Service that has one",
    )


def test_a_family_without_a_pool_is_reported() -> None:
    """There is none, or none for this Service."""
    six = service("web", families=(Family.IPV6,))
    assert given(six, pools=[pool(FOUR)])["web"] == Problem(
        Reason.NO_POOL,
        "a/n/web gets no IPv6 address: there is no IPv6 pool; add one to local-lb:pools",
    )
    second = service("web", families=BOTH, policy=REQUIRE)
    assert given(second, pools=[pool(FOUR)])["web"] == Problem(
        Reason.NO_POOL,
        "a/n/web gets no IPv6 address: there is no IPv6 pool; "
        "add one to local-lb:pools or set spec.ipFamilyPolicy to SingleStack",
    )
    assert given(six, pools=[pool(namespaces=frozenset({"x"}))])["web"] == Problem(
        Reason.NO_POOL,
        "a/n/web gets no IPv6 address: no IPv6 pool is for it (p is for namespace x); "
        "let one allow it or add a pool to local-lb:pools",
    )


# --- families -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "families", "pools", "got"),
    [
        (FamilyPolicy.SINGLE, BOTH, [pool()], "10.0.0.1"),
        (FamilyPolicy.SINGLE, BOTH[::-1], [pool()], "fd00::1"),
        (PREFER, BOTH, [pool()], "10.0.0.1 fd00::1"),
        (PREFER, BOTH, [pool(FOUR)], "10.0.0.1"),
        (PREFER, BOTH, [pool(SIX)], "fd00::1"),
        (REQUIRE, BOTH, [pool()], "10.0.0.1 fd00::1"),
        (REQUIRE, BOTH, [pool(FOUR)], "NoPool"),
        (REQUIRE, BOTH, [pool(SIX)], "NoPool"),
        (PREFER, BOTH, [pool(namespaces=frozenset({"x"}))], "NoPool"),
        (PREFER, (Family.IPV4,), [pool()], "10.0.0.1"),
    ],
)
def test_the_family_policy_is_obeyed(
    policy: FamilyPolicy, families: tuple[Family, ...], pools: list[Pool], got: str
) -> None:
    """SingleStack the first, PreferDualStack what can be had, RequireDualStack all or nothing."""
    assert terms(given(service("web", families=families, policy=policy), pools=pools)["web"]) == got


def test_the_primary_is_kept_while_the_secondary_comes_and_goes() -> None:
    """PreferDualStack with and without IPv6; what is left over isn't handed to others before its release."""
    held = [claim("10.0.0.3", "web"), claim("fd00::3", "web")]
    dual = service("web", families=BOTH)
    assert terms(given(dual, pools=[pool(FOUR)], ledger=held)["web"]) == "10.0.0.3"
    assert terms(given(dual, ledger=held[:1])["web"]) == "10.0.0.3 fd00::1"
    assert terms(given(service("web"), ledger=held)["web"]) == "10.0.0.3"
    got = given(service("web"), service("b", "fd00::3", families=(Family.IPV6,)), ledger=held)
    assert terms(got["b"]) == "InUse"


def test_who_serves_keeps_its_address_when_it_asks_for_a_family_that_no_pool_has() -> None:
    """It keeps its address until it is deleted: a second family is added to it, or is not."""
    held = [claim("10.0.0.3", "web")]
    both = service("web", families=BOTH, policy=REQUIRE)
    assert terms(given(both, pools=[pool(FOUR)], ledger=held)["web"]) == "10.0.0.3"
    assert terms(given(both, ledger=held)["web"]) == "10.0.0.3 fd00::1"
    turned = service("web", families=BOTH[::-1], policy=REQUIRE)
    assert terms(given(turned, pools=[pool(FOUR)], ledger=held)["web"]) == "10.0.0.3"


# --- the host -------------------------------------------------------------------------------------------------------


def test_an_address_on_which_a_process_listens_is_left_out() -> None:
    """One that listens everywhere leaves out none; one that came later evicts nobody."""
    assert terms(given(service("web"), host=listening("10.0.0.1"))["web"]) == "10.0.0.2"
    assert terms(given(service("web"), host=listening("0.0.0.0"))["web"]) == "10.0.0.1"
    held = [claim("10.0.0.1", "web")]
    assert terms(given(service("web"), host=listening("10.0.0.1"), ledger=held)["web"]) == "10.0.0.1"


def test_an_address_that_the_host_cannot_bind_is_left_out() -> None:
    """Held or not: nobody could reach it. If no other is free, the reason says so."""
    some = frozenset({ip_address("10.0.0.1")})
    lacking = HostFacts(addresses=having_all_but(some))
    assert terms(given(service("web"), host=lacking)["web"]) == "10.0.0.2"
    held = [claim("10.0.0.1", "web")]
    assert terms(given(service("web"), host=lacking, ledger=held)["web"]) == "10.0.0.2"
    assert given(service("web"), host=HostFacts(addresses=survey(())))["web"] == Problem(
        Reason.NOT_ON_HOST,
        "a/n/web gets no IPv4 address: nothing that is free in pool p (10.0.0.0/30, fd00::/126) is this host's: "
        "no local route has 10.0.0.0; as root, `locallb host setup --yes` makes it local",
    )


# --- size -----------------------------------------------------------------------------------------------------------


def calls(act: Callable[[], object]) -> int:
    """Count the calls of functions in what is done: how long it takes, whatever else the machine does."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [
        ("10.0.0.0", "10.0.3.255", 1000),
        ("10.0.0.0", "10.0.3.255", 2000),
        ("fd00::", "fd00::ffff:ffff:ffff:ffff", 1000),
    ],
)
def test_a_thousand_services_get_a_thousand_addresses_at_once(first: str, last: str, count: int) -> None:
    """Distinct ones, in a nearly full pool, a full one and a /64; then all are kept. Each costs about as in a dozen."""
    span = AddressRange(ip_address(first), ip_address(last))
    families = (Family.of(span.first),)
    services = [service(f"s{number}", families=families) for number in range(count)]
    settings = Settings((), (pool(span),))
    new, dozen = (Snapshot(HOME, tuple(some)) for some in (services, services[:12]))
    answers = allocate(new, services, settings)
    claimed = {key: answer[0] for key, answer in answers.items() if not isinstance(answer, Problem)}
    held = tuple(Claim(address, Owner(HOME, key)) for key, address in claimed.items())
    retained = Snapshot(HOME, tuple(services), claims=held, remembered=held)
    assert allocate(retained, services, settings) == answers
    assert len(set(claimed.values())) == len(claimed) == min(count, int(span.last) - int(span.first) + 1)
    few, *many = (
        calls(partial(allocate, snapshot, snapshot.services, settings)) for snapshot in (dozen, new, retained)
    )
    assert max(many) / count < 2.5 * few / 12
