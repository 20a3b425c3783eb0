"""What the status of an Ingress says of ours: whoever wrote it, nothing raises, and what differs is named."""

from __future__ import annotations

import pytest

from locallb.gateway.status_patch import ObservedRouteStatus, observed_statuses, reported_kind
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.model.identities import ObjectKey, ObjectKind
from tests.support.gateway_objects import DEMO
from tests.support.ingress_objects import ingress, ingress_class, path, rule

KEY = ObjectKey(DEMO, "shop", "web", ObjectKind.INGRESS)
ENTRY = {"ip": "127.0.0.9", "ports": [{"port": 80, "protocol": "TCP"}]}
WANTED = {"loadBalancer": {"ingress": [ENTRY]}}


@pytest.mark.parametrize(
    ("status", "differing"),
    [
        (WANTED, ()),
        ({**WANTED, "theirs": 1}, ()),
        ({}, ("loadBalancer",)),
        (None, ("loadBalancer",)),
        ({"loadBalancer": {}}, ("loadBalancer",)),
        ({"loadBalancer": 7}, ("loadBalancer",)),
        ({"loadBalancer": {"ingress": "127.0.0.9"}}, ("loadBalancer",)),
        ({"loadBalancer": {"ingress": [ENTRY, {"ip": "192.0.2.1"}]}}, ("loadBalancer",)),
        (7, ("loadBalancer",)),
    ],
)
def test_changed_ingress_status_fields_are_named(status: object, differing: tuple[str, ...]) -> None:
    """Only what is ours counts."""
    ((key, observed_status),) = observed_statuses(DEMO, {**ingress(rule(path())), "status": status}, ROUTED_KINDS)
    assert key == KEY
    assert observed_status.differences(WANTED, 1) == differing


def test_ingress_classes_are_not_observed() -> None:
    """Neither is anybody woken for them, nor for Ingresses of a version that isn't read."""
    assert observed_statuses(DEMO, ingress_class(), ROUTED_KINDS) == ()
    assert observed_statuses(DEMO, {**ingress(), "apiVersion": "extensions/v1beta1"}, ROUTED_KINDS) == ()
    assert (reported_kind("IngressClass"), reported_kind("Ingress")) == (None, ObjectKind.INGRESS)
    assert observed_statuses(DEMO, ingress(rule(path())), ROUTED_KINDS) == ((KEY, ObservedRouteStatus()),)
