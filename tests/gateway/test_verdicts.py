"""What a status comes to in one word: of the statuses that a plan has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching.metrics import Metrics
from locallb.components.stack import declare
from locallb.gateway.status_patch import StatusVerdict, bad_news, verdict_of
from locallb.kubernetes.events import WARNING, event_body
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.identities import ObjectKey, ObjectKind, Owner, Uid
from locallb.model.reasons import Event
from locallb.watch.events import Planned
from tests.support.deployed_plans import deployed
from tests.support.gateway_objects import DEMO, JsonObject
from tests.support.metrics import sample
from tests.support.planned_gateways import HOME, GatewayApi, cluster, plan_of


def test_each_object_of_a_plan_is_counted_by_its_status() -> None:
    """A Gateway with an odd listener partly, a route that nothing takes not at all."""
    metrics, plan = Metrics(dict), plan_of(*cluster())
    assert sample(metrics, "locallb_told_objects", kind="gateways", told="partly") is None
    metrics.listen(Planned(plan, (), 0.0, ()))
    counts = {
        (kind, reported.value): sample(metrics, "locallb_told_objects", kind=kind, told=reported.value)
        for kind in ("gateways", "gatewayclasses", "listenersets", "httproutes", "backendtlspolicies")
        for reported in StatusVerdict
    }
    assert {place: count for place, count in counts.items() if count} == {
        ("gateways", "partly"): 1,
        ("gatewayclasses", "accepted"): 1,
        ("listenersets", "accepted"): 1,
        ("httproutes", "accepted"): 1,
        ("httproutes", "refused"): 1,
        ("backendtlspolicies", "accepted"): 1,
    }


def test_refusal_is_sent_as_an_event_once() -> None:
    """To the object that it is about, as its status says it; what goes is no news."""
    documents = cluster()
    plan, api = plan_of(*documents), GatewayApi.having(*documents)
    lost = next(one for one in documents if one["metadata"]["name"] == "lost")
    with deployed(plan, api) as (_, engine):
        first = list(api.events)
        assert {(where, whom, reason) for where, whom, reason, _ in first} == {
            ("shop", "Gateway/web", "UnsupportedProtocol"),
            ("shop", "Gateway/web", "Invalid"),
            ("shop", "HTTPRoute/lost", "NoMatchingParent"),
        }
        assert all(note for *_, note in first)
        assert engine.up(lambda: declare(plan)).ok
        assert api.events == first
        lost["spec"]["parentRefs"] = []
        without = plan_of(*documents)
        assert engine.up(lambda: declare(without)).ok
        assert api.events == first
        assert engine.destroy().ok
        assert api.events == first


_reasons = st.sampled_from(["Invalid", "Conflicted"])
_stated = st.lists(
    st.builds(
        lambda kind, status, reason: {"type": kind, "status": status, "reason": reason, "message": "why"},
        st.sampled_from(["Accepted", "ResolvedRefs", "PartiallyInvalid", "Conflicted", "example.com/Fine"]),
        st.sampled_from(["True", "False", "Unknown"]),
        _reasons,
    ),
    max_size=3,
    unique_by=lambda one: str(one["type"]),
)
_statuses = st.builds(
    lambda own, entry, theirs, listener: {
        "conditions": own,
        "parents": [
            {"controllerName": CONTROLLER, "conditions": entry},
            {"controllerName": "example.com/other", "conditions": theirs},
        ],
        "listeners": [{"name": "http", "conditions": listener}],
    },
    _stated,
    _stated,
    _stated,
    _stated,
)


@given(_statuses, _statuses)
def test_bad_news_is_what_stood_nowhere_in_ours_before(before: JsonObject, after: JsonObject) -> None:
    """Each once; what others say is their news, and nothing is news again."""
    news = bad_news(before, after)
    assert len(news) == len(set(news))
    assert set(news) == set(bad_news({}, after)) - set(bad_news({}, before))
    assert bad_news(after, after) == ()
    others = {**after, "parents": [after["parents"][0], {**after["parents"][1], "conditions": []}]}
    assert bad_news(before, others) == news


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_an_event_is_where_the_api_wants_it(namespace: str) -> None:
    """That of a GatewayClass is in the default namespace, and regards no namespace."""
    kind = ObjectKind.HTTP_ROUTE if namespace else ObjectKind.GATEWAY_CLASS
    owner = Owner(HOME, ObjectKey(DEMO, namespace, "web", kind), Uid("u"))
    body = event_body(Event(WARNING, "Invalid", "why"), owner, 1, "now")
    metadata, regarding = body["metadata"], body["regarding"]
    assert isinstance(metadata, dict)
    assert isinstance(regarding, dict)
    assert metadata["namespace"] == (namespace or "default")
    assert regarding.get("namespace", "") == namespace
    assert regarding["apiVersion"] == "gateway.networking.k8s.io/v1"


def condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "", "message": ""}


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ({"parents": []}, StatusVerdict.ACCEPTED),
        ({"loadBalancer": {"ingress": []}}, StatusVerdict.ACCEPTED),
        ({"conditions": [condition("Programmed", "False")]}, StatusVerdict.REFUSED),
        ({"ancestors": [{"conditions": [condition("ResolvedRefs", "False")]}]}, StatusVerdict.PARTLY),
        ({"parents": [{"conditions": [condition("PartiallyInvalid", "True")]}]}, StatusVerdict.PARTLY),
        ({"listeners": [{"conditions": [condition("Accepted", "False")]}]}, StatusVerdict.PARTLY),
        ({"parents": [{"conditions": [condition("Accepted", "True")]}] * 2}, StatusVerdict.ACCEPTED),
        ({"parents": [{"conditions": []}, {"conditions": [condition("Accepted", "False")]}]}, StatusVerdict.REFUSED),
    ],
)
def test_status_is_summed_up_by_its_worst_condition(stated: object, reported: StatusVerdict) -> None:
    """The worst of what it says."""
    assert verdict_of(json.dumps(stated)) is reported
