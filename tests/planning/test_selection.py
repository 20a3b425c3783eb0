"""Whose a Service is."""

from __future__ import annotations

import pytest

from locallb.planning.model import ClusterName, Service, ServiceKey, ServicePort
from locallb.planning.selection import is_ours
from locallb.planning.settings import Classes

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
    ],
)
def test_a_service_is_ours_by_its_class(load_balancer_class: str | None, classes: Classes, *, ours: bool) -> None:
    """One without a class is the default implementation's; one with a class belongs to who has that name."""
    service = Service(
        ServiceKey(ClusterName("demo"), "shop", "web"), (ServicePort(80),), load_balancer_class=load_balancer_class
    )
    assert is_ours(service, classes) is ours
