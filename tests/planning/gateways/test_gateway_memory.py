"""Planning Gateways again and again: with a memory as without one, and at the cost of what changed."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.gateway import texts, translation
from locallb.gateway.status_patch import Status
from locallb.gateway.statuses import ApiStatus
from locallb.kubernetes.object_parsing import ParseMemory
from locallb.model.faults import ALL, Fault, Order, RequestDelay, RequestFailure
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.model.memory import AnyMemo
from locallb.planning import statuses as gateway_statuses
from locallb.planning.plan import make_plan
from locallb.planning.statuses import planned_status
from tests.support.backend_tls import OTHER_PEM, REF, bundle, policy
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    api_object,
    backend,
    gateway,
    gateway_class,
    grant,
    listener,
    namespace,
    parent,
    route,
    rule,
    service,
)
from tests.support.objects import node
from tests.support.planned_gateways import SETTINGS, snapshot

_names = st.sampled_from(["a.test", "b.test", "*.test"])
_parents = st.lists(
    st.sampled_from([parent("web"), parent("other"), parent("more", kind="ListenerSet"), parent("gone")]),
    min_size=1,
    max_size=2,
    unique_by=str,
)
_rules = st.builds(
    lambda path, name, space: rule(path, backends=[backend(name, namespace=space)]),
    st.sampled_from(["/", "/v1"]),
    st.sampled_from(["api", "missing"]),
    st.sampled_from(["shop", "far"]),
)
_routes = st.builds(
    lambda number, names, parents, made: route(made, name=f"r{number}", hostnames=names, parentRefs=parents),
    st.integers(0, 3),
    st.lists(_names, max_size=2, unique=True),
    _parents,
    _rules,
)
_listeners = st.lists(st.sampled_from([listener(), listener("b", 81), listener("b", 80, "TCP")]), max_size=2)
_sets = st.builds(
    lambda listeners: api_object("ListenerSet", "more", spec={"parentRef": {"name": "web"}, "listeners": listeners}),
    _listeners,
)
_open = {"namespaces": {"from": "Same"}}
_others = st.sampled_from(
    [
        gateway(),
        gateway(listener("b", 82), allowedListeners=_open),
        gateway(name="other"),
        gateway(name="other", gatewayClassName="theirs"),
        gateway_class(),
        gateway_class(controller="example.com/other"),
        service(),
        service("api", {"port": 8080}, namespace="far"),
        grant("far"),
        namespace("far", a="b"),
        policy(),
        policy("a", hostname="b.test"),
        policy("b", caCertificateRefs=[{**REF, "name": "gone"}]),
        bundle(),
        bundle(text=OTHER_PEM),
    ]
)
_clusters = st.lists(_routes | _routes | _sets | _others, max_size=9)


_fault = Fault("2999-01-01T00:00:00Z", delay=RequestDelay(200), status=RequestFailure(503, 1000))
_orders = st.dictionaries(
    st.sampled_from([ObjectKey(DEMO, "shop", "web", ObjectKind.GATEWAY), ObjectKey(DEMO, "shop", "api")]),
    st.sampled_from([Order(_fault), Order(drained=frozenset({"worker"})), Order(_fault, frozenset({ALL}))]),
)


@given(st.lists(st.tuples(_clusters, st.booleans(), _orders), min_size=2, max_size=5))
def test_a_plan_of_gateways_is_the_same_with_a_memory(
    steps: list[tuple[list[JsonObject], bool, dict[ObjectKey, Order]]],
) -> None:
    """Whatever came before: statuses, notices, what is served and what is ordered."""
    memory = AnyMemo()
    base = [gateway_class(), gateway(allowedListeners=_open), service(), node()]
    for documents, live, overrides in steps:
        observed = replace(snapshot([*documents, *base], live=live), overrides=overrides)
        assert make_plan(observed, SETTINGS, memory) == make_plan(observed, SETTINGS)


def many(gateways: int, routes: int) -> list[JsonObject]:
    """Have Gateways with routes each, of which one is told that its backend is missing."""
    made = [gateway_class(), service(), node()]
    for number in range(gateways):
        made.append(gateway(name=f"g{number}"))
        made += [
            route(name=f"r{number}-{each}", hostnames=[f"h{each}.test"], parentRefs=[parent(f"g{number}")])
            for each in range(routes)
        ]
    return made


def test_a_change_of_one_route_makes_two_statuses_and_the_sentences_of_that_route() -> None:
    """However many others there are; what they were told is the very same."""
    documents, memory, existing = many(6, 4), AnyMemo(), ParseMemory()
    before = make_plan(snapshot(documents, existing), SETTINGS, memory)
    place = next(number for number, one in enumerate(documents) if one["metadata"]["name"] == "r2-1")
    documents[place] = route(
        rule(backends=[backend("missing")]), name="r2-1", hostnames=["h1.test"], parentRefs=[parent("g2")]
    )
    made: list[Status] = []

    def planned(reported: ApiStatus, *rest: object) -> object:
        made.append(reported.status)
        return original(reported, *rest)  # type: ignore[arg-type]

    original, stated = planned_status, texts._of_route
    with (
        mock.patch.object(gateway_statuses, "planned_status", planned),
        mock.patch.object(texts, "_of_route", side_effect=stated) as sentences,
    ):
        after = make_plan(snapshot(documents, existing), SETTINGS, memory)
    assert (len(made), sentences.call_count) == (2, 1)
    retained = {id(one) for one in before.statuses} & {id(one) for one in after.statuses}
    assert len(retained) == len(after.statuses) - 1
    assert sum(one.key.kind is ObjectKind.HTTP_ROUTE for one in after.statuses) == 24
    assert [notice for notice in after.notices if "BackendNotFound" in notice]


def test_a_gateway_is_bound_again_for_what_concerns_it_and_for_nothing_else() -> None:
    """For a route of its own that is another, comes or goes; whatever all of them are sorted by anew."""
    documents, memory, existing = many(6, 4), AnyMemo(), ParseMemory()
    one = route(rule("/v1"), name="r2-1", hostnames=["h1.test"], parentRefs=[parent("g2")])
    new = route(name="new", parentRefs=[parent("g3")])
    others = [each for each in documents if each["metadata"]["name"] != "r2-1"]
    counts = list[int]()
    with mock.patch.object(translation, "_bound", side_effect=translation._bound) as bound:
        for now in (documents, documents, [*others, one], [*others, one, new], [*others, new], others):
            make_plan(snapshot(now, existing), SETTINGS, memory)
            counts.append(bound.call_count)
            bound.reset_mock()
    assert counts == [6, 0, 1, 1, 1, 1]
