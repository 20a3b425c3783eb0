"""What is ordered for Gateways, and for Services behind them, in their plans."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from locallb.model.faults import ALL, NO_ORDER, Fault, Order, RequestFailure
from locallb.model.http_serving import HttpListener, HttpRoutes
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.model.objects import Discovery
from locallb.model.serving import ProxyTraits
from locallb.model.snapshot import HeldProxy
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support.gateway_objects import DEMO, JsonObject, gateway, gateway_class, route, service
from tests.support.ingress_objects import ingress, ingress_class, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.objects import node
from tests.support.planned_gateways import SETTINGS, snapshot

WEB, API = ObjectKey(DEMO, "shop", "web", ObjectKind.GATEWAY), ObjectKey(DEMO, "shop", "api")
FAULT = Fault("2999-01-01T00:00:00Z", status=RequestFailure(503, 1000))
OF_CONNECTIONS = Fault("2999-01-01T00:00:00Z", refuse=1000)


def planned(overrides: Mapping[ObjectKey, Order], *held: HeldProxy, annotated: str = "") -> Plan:
    """Plan a Gateway before a Service, in a cluster that is told."""
    annotations: JsonObject = {"annotations": {"local-lb.dev/fault": annotated}} if annotated else {}
    ported = service("api", {"port": 8080, "nodePort": 30080})
    observed = snapshot([gateway_class(), gateway(metadata=annotations), route(), ported, node()])
    return make_plan(replace(observed, overrides=overrides, proxies=held), SETTINGS)


def listener_of(plan: Plan) -> HttpListener:
    ((listener,),) = (proxy.proxy.http for proxy in plan.proxies)
    return listener


@pytest.mark.parametrize(
    ("held", "ordered", "may_fail"),
    [(None, False, True), (True, False, True), (False, False, False), (False, True, True), (True, True, True)],
)
def test_listeners_that_serve_stay_as_they_are_until_a_fault_is_ordered(
    held: bool | None,  # noqa: FBT001 - a case
    ordered: bool,  # noqa: FBT001 - likewise
    may_fail: bool,  # noqa: FBT001 - likewise
) -> None:
    """Those of earlier versions take none; all others take faults with their routes."""
    before = () if held is None else (HeldProxy(WEB, Discovery.EDS, 1, ProxyTraits(may_fail=held)),)
    made = listener_of(planned({WEB: Order(FAULT)} if ordered else {}, *before))
    assert (made.may_fail, made.fault) == (may_fail, FAULT if ordered else None)


def test_a_gateway_has_what_befalls_requests_and_its_conditions_tell_it() -> None:
    """Ordered by a command, which counts before an annotation; what befalls connections is nothing to it."""
    by_both = planned({WEB: Order(FAULT)}, annotated="status=418,until=2999-01-01T00:00:00Z")
    by_annotation = planned({}, annotated="status=418,until=2999-01-01T00:00:00Z")
    assert listener_of(by_both).fault == FAULT
    assert listener_of(by_annotation).fault == Fault("2999-01-01T00:00:00Z", status=RequestFailure(418))
    assert listener_of(planned({WEB: Order(OF_CONNECTIONS)})).fault is None
    (condition,) = conditions(by_both)
    assert (condition["type"], condition["status"]) == ("local-lb.dev/FaultOrdered", "True")
    assert "by a command: of requests 10% are answered 503" in condition["message"]
    assert conditions(planned({})) == []


STATUS = "status=418,until=2999-01-01T00:00:00Z"


def annotated(document: JsonObject, text: str = STATUS) -> JsonObject:
    return {**document, "metadata": {**document["metadata"], "annotations": {"local-lb.dev/fault": text}}}


def test_a_route_has_the_fault_of_its_annotation_and_its_gateway_tells_it() -> None:
    """It alone; where the Gateway has one that counts. A listener that takes none is changed for it."""
    ported, other = service("api", {"port": 8080, "nodePort": 30080}), route(name="other", hostnames=["b.test"])
    observed = snapshot([gateway_class(), gateway(), annotated(route(hostnames=["a.test"])), other, ported, node()])
    plan = make_plan(
        replace(observed, proxies=(HeldProxy(WEB, Discovery.EDS, 1, ProxyTraits(may_fail=False)),)), SETTINGS
    )
    made = listener_of(plan)
    (chain,) = made.chains
    assert isinstance(chain.serves, HttpRoutes)
    faults = {host.domains: route.fault for host in chain.serves.hosts for route in host.routes}
    assert faults == {("a.test",): Fault("2999-01-01T00:00:00Z", status=RequestFailure(418)), ("b.test",): None}
    assert (made.may_fail, made.fault) == (True, None)
    (condition,) = conditions(plan)
    assert f"{WEB}: HTTPRoute shop/route: a fault is ordered by its annotation" in condition["message"]
    (condition,) = conditions(make_plan(replace(observed, overrides={WEB: Order(FAULT)}), SETTINGS))
    assert "by a command" in condition["message"]


def test_an_ingress_has_the_fault_of_its_annotation_for_its_own_rules() -> None:
    """Another one at the same address has none; what orders nothing is told."""
    entries = [ingress(ingress_rule(path(to=name), host=f"{name}.test"), name=name) for name in ("api", "b", "c")]
    entries = [annotated(entries[0]), entries[1], annotated(entries[2], "refuse=1%,until=2999-01-01T00:00:00Z")]
    ports = {"port": 8080, "nodePort": 30080}
    plan = make_plan(
        snapshot([ingress_class(), *entries, *(service(name, ports) for name in ("api", "b", "c")), node()]), SETTINGS
    )
    (chain,) = listener_of(plan).chains
    assert isinstance(chain.serves, HttpRoutes)
    assert [host.domains[0] for host in chain.serves.hosts if any(route.fault for route in host.routes)] == ["api.test"]
    (placement,) = plan.placements
    (notice,) = placement.notices
    assert "Ingress shop/api: a fault is ordered by its annotation" in notice.message
    assert any("Ingress shop/c" in reported and "connections of Services only" in reported for reported in plan.notices)


def conditions(plan: Plan) -> list[dict[str, str]]:
    """Return the conditions of our own that the Gateway gets."""
    (placement,) = plan.placements
    assert placement.status
    stated: list[dict[str, str]] = json.loads(placement.status.status)["conditions"]
    return [each for each in stated if each["type"].startswith("local-lb.dev/")]


@pytest.mark.parametrize(
    ("overrides", "backends"),
    [
        ({}, 1),
        ({API: Order(drained=frozenset({"worker"}))}, 0),
        ({WEB: Order(drained=frozenset({ALL}))}, 0),
        ({WEB: Order(drained=frozenset({"other"}))}, 1),
        ({API: NO_ORDER}, 1),
    ],
)
def test_a_drain_holds_behind_gateways(overrides: Mapping[ObjectKey, Order], backends: int) -> None:
    """Of the Service, or of the Gateway's own."""
    ((upstream,),) = (proxy.proxy.upstreams for proxy in planned(overrides).proxies)
    assert len(upstream.backends) == backends


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("status=503,until=2999-01-01T00:00:00Z", ""),
        (
            "refuse=1%,status=503,until=2999-01-01T00:00:00Z",
            "orders refuse, hang and reset for connections of Services",
        ),
        ("status=503", "orders nothing, because until is a time such as"),
    ],
)
def test_fault_annotation_without_effect_is_reported(text: str, reported: str) -> None:
    """With what to write instead."""
    of_it = [notice for notice in planned({}, annotated=text).notices if "the annotation local-lb.dev/fault" in notice]
    assert [reported in notice for notice in of_it] == ([True] if reported else [])
