"""What a Service is told by events, when it is news, and how often at most."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import Classes, Settings
from locallb.kubernetes.events import (
    BURST,
    ENSURED,
    FAILED,
    LONGEST_NOTE,
    LONGEST_WORD,
    SECONDS_A_TOKEN,
    UNAVAILABLE,
    UPDATED,
    EventAllowance,
    event_body,
    news,
    placement_events,
    rejection_events,
    shortened,
    spend,
)
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, Uid
from locallb.model.reasons import Event
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.notices import NODES, OTHERS
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support.objects import DEMO, JsonObject, node, parsed, service

SERVES = Event("Normal", ENSURED, "serves 80/TCP at 127.77.0.5")
MOVED = Event("Normal", ENSURED, "serves 80/TCP at 127.77.0.6")
WRONG = Event("Warning", FAILED, "PoolExhausted: nothing is free")


def test_repeated_event_is_not_sent_again() -> None:
    """An event that stays isn't sent again; one that comes back is."""
    assert news([], [SERVES, WRONG]) == (SERVES, WRONG)
    assert news([SERVES, WRONG], [SERVES, WRONG]) == ()
    assert news([WRONG], [SERVES]) == (SERVES,)


def test_changed_placement_sends_an_update_event() -> None:
    """Upstream's reason for a change."""
    assert news([SERVES], [MOVED]) == (replace(MOVED, reason=UPDATED),)


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 40)), max_size=40))
def test_no_more_events_than_the_allowance(requested: list[tuple[int, int]]) -> None:
    """However they come: a burst, and one more for every five minutes that passed."""
    allowance, now, sent = EventAllowance(), 0, 0
    for later, wanted in requested:
        now += later
        allowed, allowance = spend(allowance, wanted, now)
        assert 0 <= allowed <= wanted
        sent += allowed
        assert sent <= BURST + now // SECONDS_A_TOKEN


def test_the_allowance_comes_back() -> None:
    """Spent to the last, there is one after five minutes and everything after long."""
    none_left, empty = spend(EventAllowance(since=100), BURST + 1, 100)
    assert (none_left, spend(empty, 1, 100 + SECONDS_A_TOKEN - 1)[0]) == (BURST, 0)
    assert spend(empty, 2, 100 + SECONDS_A_TOKEN)[0] == 1
    assert spend(empty, 99, 100 + BURST * SECONDS_A_TOKEN)[0] == BURST


def test_event_names_its_service_and_its_reporter() -> None:
    """By the uid too, with a name that no other event has, within the API's limits."""
    owner = Owner(Home("p" * 100, "s" * 100, "/x"), ObjectKey(ClusterName("c"), "n", "web"), Uid("u1"))
    body = event_body(WRONG, owner, 255, "2026-11-21T05:00:00.000000Z")
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Service", "namespace": "n", "name": "web", "uid": "u1"}
    assert len(str(body["reportingInstance"])) == 128
    other = event_body(SERVES, owner, 255, "2026-11-21T05:00:00.000000Z")
    assert other["metadata"] != body["metadata"]


def planned(*objects: JsonObject, classes: Classes | None = None) -> Plan:
    """Plan for objects of a live cluster."""
    read = parsed(*objects)
    home, access = Home("p", "s", "/p"), {DEMO: Access("/kubeconfig", ContextName("demo"))}
    snapshot = Snapshot(home, read.services, read.malformed, read.nodes, read.slices, access=access)
    return make_plan(snapshot, Settings((), (DEFAULT_POOL,), classes=classes or Classes()))


def test_a_placement_tells_what_serves_and_what_does_not() -> None:
    """One event for what serves, one for each cause of what doesn't, in upstream's words."""
    ports = [{"port": 80, "nodePort": 30080}, {"port": 7, "nodePort": 30007, "protocol": "SCTP"}]
    (placement,) = planned(service(ports=ports), node()).placements
    reported = placement_events(placement)
    assert [(event.type, event.reason) for event in reported] == [("Normal", ENSURED), ("Warning", FAILED)]
    assert reported[0].note == f"serves 80/TCP at {placement.addresses[0]}"
    assert reported[1].note.startswith("ProtocolNotSupported: demo/shop/web port 7/SCTP")


def test_an_event_of_many_ports_names_the_first_and_the_address() -> None:
    """What the API takes as a note would end before the address otherwise."""
    ports = [{"name": f"p{number}", "port": number, "nodePort": 30000 + number} for number in range(1, 601)]
    (placement,) = planned(service(ports=ports), node()).placements
    (reported,) = placement_events(placement)
    assert reported.note.startswith("serves 1/TCP, 2/TCP, ")
    assert reported.note.endswith(f"10/TCP and 590 more at {placement.addresses[0]}")


def test_without_a_node_nothing_serves() -> None:
    """Upstream's reason for it, and nothing that says otherwise."""
    (placement,) = planned(service()).placements
    assert [event.reason for event in placement_events(placement)] == [UNAVAILABLE]


def test_nodes_that_are_used_although_excluded_are_reported() -> None:
    """Only to Services of that cluster."""
    lone = node(meta={"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}})
    (placement,) = planned(service(), lone).placements
    assert [event.reason for event in placement_events(placement)] == [ENSURED, NODES]


def test_a_rejection_is_reported_where_the_service_lives() -> None:
    """With owner and access, so that status and events can be written."""
    (rejection,) = planned(service(meta={"uid": "u1"}, loadBalancerIP="1.2.3.4")).rejections
    assert rejection.owner is not None
    assert (rejection.owner.uid, rejection.access) == ("u1", Access("/kubeconfig", ContextName("demo")))
    (reported,) = rejection_events(rejection)
    assert (reported.type, reported.reason) == ("Warning", FAILED)
    assert reported.note.startswith("OutOfPool: demo/shop/web asks for 1.2.3.4")


def test_malformed_services_of_others_are_none_of_our_business() -> None:
    """Another class, or on its way out: nothing is planned, so nothing is told."""
    broken: JsonObject = {"ports": [{"port": "eighty"}]}
    leaving = service("b", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}, **broken)
    plan = planned(service("a", loadBalancerClass="example.com/other", **broken), leaving, service("c", **broken))
    assert [rejection.key.name for rejection in plan.rejections] == ["c"]
    assert planned(service("c", **broken), classes=Classes(default=False)).rejections == ()


def test_foreign_address_in_the_status_becomes_a_warning_event() -> None:
    """Beside one of ours, where the Service is not left to that controller. The stack's notices have it as well."""
    document = service()
    ours, theirs = ({"ip": str(planned(service(), node()).placements[0].addresses[0])}, {"ip": "172.18.0.9"})
    document["status"] = {"loadBalancer": {"ingress": [ours, theirs]}}
    plan = planned(document, node())
    assert [event.reason for event in placement_events(plan.placements[0])] == [ENSURED, OTHERS]
    assert len(plan.notices) == 1
    assert "its status lists 172.18.0.9, which is not ours" in plan.notices[0]


@pytest.mark.parametrize("letter", ["a", "\u00e4", "\u20ac", "\U0001f9ed"])
@pytest.mark.parametrize("before", range(4))
def test_a_note_has_as_many_bytes_as_the_api_takes(letter: str, before: int) -> None:
    """Of whole characters: the API refuses an event with more, and what isn't UTF-8."""
    text = "x" * before + letter * LONGEST_NOTE
    home = Home(letter * LONGEST_WORD, "dev", "/")
    owner = Owner(home, ObjectKey(ClusterName("c"), "n", "web"), Uid("u"))
    body = event_body(Event("Warning", FAILED, text), owner, 1, "now")
    for key, maximum in (("note", LONGEST_NOTE), ("reportingInstance", LONGEST_WORD)):
        reported = str(body[key])
        assert maximum - len(letter.encode()) < len(reported.encode()) <= maximum
    assert text.startswith(str(body["note"]))


@given(st.text(st.characters()), st.integers(0, 40))
def test_event_messages_are_clipped_at_any_text(text: str, maximum: int) -> None:
    """Even for half a character, which YAML may have."""
    cut = shortened(text, maximum)
    assert len(cut.encode()) <= maximum
    whole = text.encode(errors="replace").decode()
    assert whole.startswith(cut)
    assert (cut == whole) is (len(whole.encode()) <= maximum)


@pytest.mark.parametrize("name", ["web", "a" * 253, "a" * 220 + "." + "b" * 32, ("a" * 62 + ".") * 4])
def test_the_name_of_an_event_is_a_name(name: str) -> None:
    """Gateways and Ingresses have names that leave no room for more."""
    owner = Owner(Home("p", "s", "/"), ObjectKey(ClusterName("c"), "n", name), Uid("u"))
    metadata = event_body(SERVES, owner, 1_800_000_000_000_000_000, "now")["metadata"]
    assert isinstance(metadata, dict)
    assert len(metadata["name"]) <= 253
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", metadata["name"])
