"""Whose a Service is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from locallb.config.settings import Classes, Settings
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.objects import MalformedService, Service, ServicePort
from locallb.model.reasons import Problem, Reason
from locallb.planning.selection import is_ours

KEY = ObjectKey(ClusterName("demo"), "shop", "web")
NAMED = Classes(default=False, names=frozenset({"example.com/lb", ""}))


@pytest.mark.parametrize(
    ("load_balancer_class", "classes", "ours"),
    [
        (None, Classes(), True),
        ("example.com/lb", Classes(), False),
        ("", Classes(), False),
        (None, NAMED, False),
        ("example.com/lb", NAMED, True),
        ("", NAMED, True),
        ("example.com/other", NAMED, False),
        ("default", Classes(names=frozenset({"default", "kube-router"})), True),
    ],
)
def test_a_service_is_ours_by_its_class(load_balancer_class: str | None, classes: Classes, *, ours: bool) -> None:
    """One without a class is the default implementation's; one with a class belongs to who has that name."""
    service = Service(KEY, (ServicePort(80),), load_balancer_class=load_balancer_class)
    malformed = MalformedService(KEY, Problem(Reason.MALFORMED, "it is"), load_balancer_class=load_balancer_class)
    settings = Settings((), (), classes=classes)
    assert (is_ours(service, settings), is_ours(malformed, settings)) == (ours, ours)


@pytest.mark.parametrize(
    ("namespaces", "selector", "ours"),
    [
        ({"shop"}, {}, True),
        ({"other", "shop"}, {"team": "web"}, True),
        ({"other"}, {}, False),
        ((), {"team": "web", "tier": "edge"}, False),
        ((), {"team": ""}, False),
    ],
)
def test_a_stack_may_select_by_namespace_and_labels(
    namespaces: set[str], selector: Mapping[str, str], *, ours: bool
) -> None:
    """Every label must be there; one of the namespaces is enough; malformed ones likewise."""
    labels = {"team": "web", "more": "yes"}
    service = Service(KEY, (ServicePort(80),), labels=labels)
    malformed = MalformedService(KEY, Problem(Reason.MALFORMED, "it is"), labels=labels)
    settings = Settings((), (), namespaces=frozenset(namespaces), selector=selector)
    assert (is_ours(service, settings), is_ours(malformed, settings)) == (ours, ours)
