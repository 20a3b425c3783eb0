"""What a status comes to in one word: of the statuses that a plan has."""

from __future__ import annotations

import json

import pytest

from locallb.cli.watching.metrics import Metrics
from locallb.gateway.verdicts import Told, verdict_of
from locallb.watch.events import Planned
from tests.cli.test_watch_observers import sample
from tests.planning.test_gateway_statuses import cluster, plan_of


def test_each_object_of_a_plan_is_counted_by_what_it_is_told() -> None:
    """A Gateway with an odd listener partly, a route that nothing takes not at all."""
    metrics, plan = Metrics(dict), plan_of(*cluster())
    assert sample(metrics, "locallb_told_objects", kind="gateways", told="partly") is None
    metrics.listen(Planned(plan, (), 0.0, 0))
    counts = {
        (kind, told.value): sample(metrics, "locallb_told_objects", kind=kind, told=told.value)
        for kind in ("gateways", "gatewayclasses", "listenersets", "httproutes", "backendtlspolicies")
        for told in Told
    }
    assert {place: count for place, count in counts.items() if count} == {
        ("gateways", "partly"): 1,
        ("gatewayclasses", "accepted"): 1,
        ("listenersets", "accepted"): 1,
        ("httproutes", "accepted"): 1,
        ("httproutes", "refused"): 1,
        ("backendtlspolicies", "accepted"): 1,
    }


def condition(kind: str, status: str) -> dict[str, str]:
    """Write one."""
    return {"type": kind, "status": status, "reason": "", "message": ""}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"parents": []}, Told.ACCEPTED),
        ({"loadBalancer": {"ingress": []}}, Told.ACCEPTED),
        ({"conditions": [condition("Programmed", "False")]}, Told.REFUSED),
        ({"ancestors": [{"conditions": [condition("ResolvedRefs", "False")]}]}, Told.PARTLY),
        ({"parents": [{"conditions": [condition("PartiallyInvalid", "True")]}]}, Told.PARTLY),
        ({"listeners": [{"conditions": [condition("Accepted", "False")]}]}, Told.PARTLY),
        ({"parents": [{"conditions": [condition("Accepted", "True")]}] * 2}, Told.ACCEPTED),
        ({"parents": [{"conditions": []}, {"conditions": [condition("Accepted", "False")]}]}, Told.REFUSED),
    ],
)
def test_a_status_comes_to_one_word(said: object, told: Told) -> None:
    """The worst of what it says."""
    assert verdict_of(json.dumps(said)) is told
