"""Ports whose backends take no connection: degraded with the remedy, wherever a state is shown."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.reasons import Reason
from locallb.model.routes import HostRoute
from locallb.model.snapshot import HostFacts
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement
from locallb.planning.service_rows import Observation, Row, State, rows
from tests.planning.node_routes import BRIDGE, DEFAULT
from tests.support.gateway_objects import DEMO, JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.gateway_objects import service as cluster_service
from tests.support.objects import node, service
from tests.support.planned_gateways import snapshot

NODES = [node("a", "172.18.0.2", "fd00::2"), node("b", "172.18.0.3", "fd00::3")]
SIX = HostRoute(ip_network("fd00::/64"), "unicast", "br-kind")


def placed(*documents: JsonObject, routes: tuple[HostRoute, ...] = (BRIDGE, DEFAULT)) -> Placement:
    """Plan what has one placement, on a host with these routes."""
    everything = [*documents, *NODES]
    read = parse_objects(DEMO, everything)
    host = HostFacts(routes=routes, routed=tuple(route.destination for route in routes if route.is_way))
    pools = [{"name": "default", "addresses": ["127.77.0.0/27", "fd00:77::/120"]}]
    settings = parse_settings({"sources": [{"manifests": "demo"}], "pools": pools})
    observed = replace(snapshot(everything, live=False), services=read.services, slices=read.slices, host=host)
    (placement,) = make_plan(observed, settings).placements
    return placement


def row(placement: Placement, healthy: Mapping[str, bool]) -> Row:
    """Return its row of the table, all its listeners bound and these backends answering."""
    listening = frozenset(listener.name for port in placement.ports for listener in port.listeners)
    plan = replace(
        make_plan(snapshot([]), parse_settings({"sources": [{"manifests": "demo"}]})), placements=(placement,)
    )
    (shown,) = rows(plan, {placement.proxy: Observation(listening, healthy=healthy)})
    return shown


TWO = service(ports=[{"port": 8080, "nodePort": 30080}, {"port": 8081, "nodePort": 30081}])
DUAL = service(ipFamilies=["IPv4", "IPv6"])


@pytest.mark.parametrize(
    ("document", "healthy", "states"),
    [
        (service(), {}, [State.SERVING]),
        (service(), {"tcp-8080-ipv4": True}, [State.SERVING]),
        (service(), {"tcp-8080-ipv4": False}, [State.DEGRADED]),
        (service(), {"another": False}, [State.SERVING]),
        (TWO, {"tcp-8080-ipv4": True, "tcp-8081-ipv4": False}, [State.SERVING, State.DEGRADED]),
        (DUAL, {"tcp-8080-ipv4": True, "tcp-8080-ipv6": False}, [State.DEGRADED]),
        (DUAL, {"tcp-8080-ipv4": True, "tcp-8080-ipv6": True}, [State.SERVING]),
    ],
    ids=["not checked", "one answers", "none answers", "another's", "one port of two", "a family", "both families"],
)
def test_port_serves_where_a_backend_of_each_address_takes_connections(
    document: JsonObject, healthy: Mapping[str, bool], states: list[State]
) -> None:
    """By its proxy's checks; UDP without a check serves as long as it is there."""
    shown = row(placed(document, routes=(BRIDGE, DEFAULT, SIX)), healthy)
    assert [port.state for port in shown.ports] == states
    assert shown.state is max(states, key=lambda state: state is State.DEGRADED)
    if State.DEGRADED in states:
        assert shown.reason == Reason.BACKENDS_DOWN
        assert "none of its 2 backends, such as " in shown.message or "its backend " in shown.message
        assert "start what listens there" in shown.message


@pytest.mark.parametrize(
    ("routes", "reason", "remedy"),
    [
        ((BRIDGE, DEFAULT), Reason.BACKENDS_DOWN, "start what listens there"),
        ((DEFAULT,), Reason.UNREACHABLE, "let local-lb:podRoutes api connect through the API server"),
    ],
    ids=["a route to the Nodes", "none but the default route"],
)
def test_silent_nodes_without_a_route_of_their_own_are_told_to_be_unreachable(
    routes: tuple[HostRoute, ...], reason: Reason, remedy: str
) -> None:
    """A default route may lead there, so they are no problem while they answer."""
    placement = placed(service(), routes=routes)
    assert row(placement, {"tcp-8080-ipv4": True}).state is State.SERVING
    shown = row(placement, {"tcp-8080-ipv4": False})
    assert (shown.state, shown.reason) == (State.DEGRADED, reason)
    assert remedy in shown.message


@pytest.mark.parametrize(
    ("answers", "state"), [((True, False), State.SERVING), ((False, False), State.DEGRADED)], ids=["one", "none"]
)
def test_gateway_is_degraded_where_no_backend_of_a_port_answers(answers: tuple[bool, bool], state: State) -> None:
    """A single application that is down is for its own route to tell: the others of the Gateway serve."""
    ports = {"port": 8080, "nodePort": 30080}, {"port": 8080, "nodePort": 30081}
    services = [cluster_service(name, port) for name, port in zip(("api", "more"), ports, strict=True)]
    to_both = route(rule(backends=[backend("api")]), rule(backends=[backend("more")]))
    placement = placed(gateway_class(), gateway(listener("http", 8080)), to_both, *services)
    names = placement.ports[0].upstreams
    shown = row(placement, dict(zip(names, answers, strict=True)))
    assert shown.state is state
    assert shown.reason == ("" if state is State.SERVING else Reason.BACKENDS_DOWN)
