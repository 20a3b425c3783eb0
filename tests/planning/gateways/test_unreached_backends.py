"""Gateways and Ingresses whose backends this host has no route to: degraded, with the remedy, never just serving."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from locallb.kubernetes.events import ENSURED, ingress_events, placement_events
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.reasons import Reason
from locallb.model.routes import HostRoute
from locallb.model.snapshot import HostFacts
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement
from locallb.planning.service_rows import Observation, Row, State, rows
from tests.planning.node_routes import by
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    backend,
    gateway,
    gateway_class,
    listener,
    route,
    rule,
    service,
)
from tests.support.ingress_objects import ingress, ingress_class, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.objects import endpoint, endpoints, node
from tests.support.planned_gateways import SETTINGS, snapshot

NODES = [node("a", "172.18.0.2"), node("b", "172.18.0.3")]
POD = endpoint("10.244.1.7", "b")
REMEDY = "let local-lb:podRoutes host make the route, or give the port a nodePort"


def placed(*documents: JsonObject, routes: tuple[HostRoute, ...] = ()) -> Placement:
    """Plan what has one address, on a host with these routes."""
    everything = [*documents, *NODES]
    read = parse_objects(DEMO, everything)
    host = HostFacts(routes=routes, routed=tuple(route.destination for route in routes if route.is_way))
    plan = make_plan(replace(snapshot(everything), slices=read.slices, host=host), SETTINGS)
    assert not plan.rejections
    (placement,) = plan.placements
    return placement


def row(placement: Placement) -> Row:
    """Return its row of the table, all its listeners bound."""
    listening = frozenset(listener.name for port in placement.ports for listener in port.listeners)
    plan = make_plan(snapshot([]), SETTINGS)
    (shown,) = rows(replace(plan, placements=(placement,)), {placement.proxy: Observation(listening)})
    return shown


def slices_of(name: str) -> JsonObject:
    """Return the EndpointSlice of a Service on port 8080."""
    return endpoints(POD, service=name, ports=[{"port": 8080, "protocol": "TCP"}])


GATEWAY = [gateway_class(), gateway(listener("http", 8080)), route(), service()]
INGRESS = [ingress_class(), ingress(ingress_rule(path())), service()]


@pytest.mark.parametrize("documents", [GATEWAY, INGRESS], ids=["gateway", "ingress"])
def test_backends_without_a_route_make_it_degraded(documents: list[JsonObject]) -> None:
    """It listens, and answers 503; the table and its events give the Service and the remedy."""
    placement = placed(*documents, slices_of("api"))
    assert all(port.listeners for port in placement.ports)
    shown = row(placement)
    assert (shown.state, shown.reason) == (State.DEGRADED, Reason.UNREACHABLE)
    assert "demo/shop/api" in shown.message
    assert REMEDY in shown.message
    (warning,) = [event.note for event in placement_events(placement) if event.type == "Warning"]
    assert warning.startswith("Unreachable: demo/shop/api")


@pytest.mark.parametrize("documents", [GATEWAY, INGRESS], ids=["gateway", "ingress"])
@pytest.mark.parametrize(
    ("routes", "changed"),
    [
        pytest.param(by("172.18.0.3", "10.244.1.0/24"), service(), id="routes to pods"),
        pytest.param((), service("api", {"port": 8080, "nodePort": 30080}), id="NodePorts"),
    ],
)
def test_backends_with_a_way_to_them_serve(
    documents: list[JsonObject], routes: tuple[HostRoute, ...], changed: JsonObject
) -> None:
    """By routes to their pods, or by NodePorts."""
    placement = placed(*documents[:-1], changed, slices_of("api"), routes=routes)
    assert row(placement).state is State.SERVING
    assert not placement.unreached


def test_backends_that_are_not_there_at_all_do_not_degrade_a_gateway() -> None:
    """A Service without endpoints answers 503, as it does in the cluster."""
    assert row(placed(*GATEWAY)).state is State.SERVING


def test_only_the_port_whose_routes_lead_there_is_degraded() -> None:
    """The other port of the Gateway serves on."""
    far = route(rule(backends=[backend("far")]), name="far", parentRefs=[{"name": "web", "sectionName": "b"}])
    near = route(name="near", parentRefs=[{"name": "web", "sectionName": "a"}])
    services = [service("api", {"port": 8080, "nodePort": 30080}), service("far")]
    both = gateway(listener("a", 8080), listener("b", 8081))
    placement = placed(gateway_class(), both, near, far, *services, slices_of("far"), slices_of("api"))
    shown = row(placement)
    assert shown.state is State.DEGRADED
    assert [port.state for port in shown.ports] == [State.SERVING, State.DEGRADED]


def test_udp_port_without_a_route_to_its_backends_says_why_it_is_closed() -> None:
    """No listener: datagrams would be lost in silence."""
    udp = service("api", {"port": 8080, "protocol": "UDP"})
    datagrams = endpoints(POD, service="api", ports=[{"port": 8080, "protocol": "UDP"}])
    to = route({"backendRefs": [backend()]}, kind="UDPRoute")
    placement = placed(gateway_class(), gateway(listener("dns", 8080, "UDP")), to, udp, datagrams)
    (port,) = placement.ports
    assert not port.listeners
    assert port.problem
    assert port.problem.reason is Reason.UNREACHABLE


def test_each_ingress_is_told_of_its_own_backends() -> None:
    """The one whose Services all are out of reach isn't said to be served; the other one is."""
    far = ingress(ingress_rule(path(to="far"), host="far.test"), name="far")
    near = ingress(ingress_rule(path(), host="near.test"), name="near")
    part = ingress(ingress_rule(path(), path("/far", to="far"), host="part.test"), name="part")
    services = [service("api", {"port": 8080, "nodePort": 30080}), service("far")]
    placement = placed(ingress_class(), far, near, part, *services, slices_of("far"), slices_of("api"))
    reported = {news.key.name: ingress_events(news) for news in placement.news}
    assert [event.reason for event in reported["near"]] == [ENSURED]
    (only,) = reported["far"]
    assert REMEDY in only.note
    assert [event.type for event in reported["part"]] == ["Normal", "Warning"]
