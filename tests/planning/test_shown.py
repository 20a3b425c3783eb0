"""What a load balancer shows of itself, and that it is what Envoy is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from locallb.cli.commands.host import _names
from locallb.cli.session import Session
from locallb.desired import desired
from locallb.host.resolvers import read_names
from locallb.model.desired import BALANCER
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.report.deployed import DeployedResource, deployed_side
from locallb.report.sides import planned_side
from tests.support.gateway_objects import JsonObject, gateway, gateway_class, listener, route, rule, service
from tests.support.planned_gateways import SETTINGS, snapshot
from tests.support.worlds import PLAIN
from tests.support.worlds import SETTINGS as WORLD_SETTINGS

PASSED = listener("tls", 443, "TLS", tls={"mode": "Passthrough"})
TO_HTTPS = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}
TLS_ROUTE = route({"backendRefs": [{"name": "api", "port": 8080}]}, kind="TLSRoute", hostnames=["b.test"])


def shown(plan: Plan) -> Mapping[str, object]:
    """Return the inputs of the only load balancer."""
    (root,) = (group.members[0] for group in desired(plan).groups if group.root.type == BALANCER)
    return root.inputs


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([gateway(listener("http", 80)), route(hostnames=["a.test"])], ("a.test", "80/TCP")),
        ([gateway(listener("http", 80)), route()], ("*", "80/TCP")),
        ([gateway(listener("http", 80)), route(rule("/", filters=[TO_HTTPS], backends=[]))], ("*", None)),
        ([gateway(PASSED), TLS_ROUTE], ("b.test", None)),
    ],
)
def test_hostnames_and_ports_without_tls_are_shown_and_read_back(
    objects: list[JsonObject], expected: tuple[str, str | None]
) -> None:
    """Texts, absent where there are none: both sides of a comparison have the same."""
    read = snapshot([gateway_class(), service(), *objects])
    plan = make_plan(read, SETTINGS)
    found = shown(plan)
    assert (found.get("hostnames"), found.get("withoutTls")) == expected
    (planned,) = planned_side("", read, plan).balancers.values()
    resources = [
        DeployedResource(each.key.type, each.key.name, each.inputs)
        for group in desired(plan).groups
        for each in group.members
    ]
    deployed = deployed_side("", resources).balancers[planned.key]
    assert (", ".join(planned.hostnames), ", ".join(planned.without_tls) or None) == expected
    assert (deployed.hostnames, deployed.without_tls) == (planned.hostnames, planned.without_tls)


def test_what_it_shows_is_read_back_as_lists_of_earlier_versions_are() -> None:
    """Addresses, ports and, where that is known, routes."""
    read = snapshot([gateway_class(), service(), gateway(listener("http", 80)), route(hostnames=["a.test"])])
    plan = make_plan(read, SETTINGS)
    (placement,) = plan.placements
    for inputs, routes in (
        (shown(plan), placement.routes),
        ({"addresses": [str(placement.addresses[0])], "ports": ["80/TCP"]}, None),
    ):
        claims = [
            DeployedResource(each.key.type, each.key.name, each.inputs)
            for group in desired(plan).groups
            for each in group.members
            if each.key.type != BALANCER
        ]
        side = deployed_side("", [DeployedResource(BALANCER, str(placement.key), inputs), *claims])
        (balancer,) = (each for each in side.balancers.values() if each.addresses)
        assert (balancer.addresses, balancer.routes) == (placement.addresses, routes)
        assert [port.label for port in balancer.ports] == ["80/TCP"]


def test_names_are_read_back_as_lists_of_earlier_versions_are() -> None:
    """For the file of hosts, which has what the state shows."""
    read = replace(PLAIN, services=PLAIN.services[:1])
    (placement,) = make_plan(read, WORLD_SETTINGS["names"]).placements
    assert placement.names
    before = [str(name) for name in placement.names]
    for names in (before, shown(make_plan(read, WORLD_SETTINGS["names"]))["names"]):
        stated = SimpleNamespace(inputs={"names": names}, outputs={})
        session = cast("Session", SimpleNamespace(resources=lambda stated=stated: [stated]))
        assert _names(session) == read_names(before) != {}
