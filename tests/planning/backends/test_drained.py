"""Which backends are left where some are drained, by Node, Pod or address."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.model.faults import ALL, Down, Order
from locallb.model.objects import Via
from locallb.planning.backends import PortBackends, failover_backends, upstreams
from locallb.planning.endpoints import BackendIndex, Destination, Reach, eligible, names_of, names_of_endpoints
from tests.support.objects import DEMO, JsonObject, endpoint, endpoints, node, parsed, service

A, B = node("a", "10.0.0.1", "fd00::1"), node("b", "10.0.0.2", "fd00::2")
STRAIGHT = {"metadata": {"name": "web", "namespace": "shop", "annotations": {"local-lb.dev/backends": "pods"}}}


def pod(name: str, address: str, on: str) -> JsonObject:
    """Make an endpoint that is a Pod."""
    return {**endpoint(address, on), "targetRef": {"kind": "Pod", "name": name}}


LEAVING = {"ready": False, "serving": True, "terminating": True}
OLD = {"web-1": "10.1.0.1", "web-2": "10.1.0.2"}
PODS = endpoints(pod("web-1", "10.1.0.1", "a"), pod("web-2", "10.1.0.2", "a"), pod("web-3", "10.1.0.3", "b"))


def found(drained: set[str], *objects: JsonObject) -> tuple[PortBackends, ...]:
    """Find the backends of the one Service among the objects, of which some are drained."""
    result = parsed(*objects)
    (wanted,) = result.services
    ordered = replace(wanted, ordered=Order(drained=frozenset(drained)))
    return upstreams(ordered, BackendIndex.of(eligible(result.nodes)[0], result.slices))


def places(drained: set[str], *objects: JsonObject) -> list[str]:
    """Return the addresses that are left of the one port and family."""
    (entry,) = found(drained, *objects)
    return [str(backend.address) for backend in entry.backends]


@pytest.mark.parametrize(
    ("drained", "remaining"),
    [
        (set(), ["10.0.0.1", "10.0.0.2"]),
        ({"a"}, ["10.0.0.2"]),
        ({"10.0.0.2"}, ["10.0.0.1"]),
        ({"fd00::2"}, ["10.0.0.1"]),
        ({"nobody"}, ["10.0.0.1", "10.0.0.2"]),
        ({"a", "b"}, []),
        ({ALL}, []),
    ],
)
def test_nodes_are_left_out(drained: set[str], remaining: list[str]) -> None:
    """By any of their names, in both families."""
    assert places(drained, service(), A, B) == remaining


@pytest.mark.parametrize(
    ("drained", "remaining"),
    [
        ({"web-1"}, ["10.1.0.2", "10.1.0.3"]),
        ({"10.1.0.3"}, ["10.1.0.1", "10.1.0.2"]),
        ({"a"}, ["10.1.0.3"]),
        ({"a", "web-3"}, []),
        ({ALL}, []),
    ],
)
def test_endpoints_are_left_out(drained: set[str], remaining: list[str]) -> None:
    """Those of a Node with it."""
    assert places(drained, {**service(), **STRAIGHT}, PODS, A, B) == remaining


def test_a_drained_node_does_not_stand_by() -> None:
    """Behind pods that are reached straight."""
    (entry,) = found({"a"}, {**service(), **STRAIGHT}, PODS, A, B)
    assert [str(backend.address) for backend in entry.standby] == ["10.0.0.2"]


@pytest.mark.parametrize("drained", ["web-1", "10.1.0.1"])
def test_no_node_port_stands_by_where_a_pod_is_drained(drained: str) -> None:
    """Kubernetes would choose the pod there, also that one."""
    (entry,) = found({drained}, {**service(), **STRAIGHT}, PODS, A, B)
    assert ([str(backend.address) for backend in entry.backends], entry.standby) == (["10.1.0.2", "10.1.0.3"], ())


@pytest.mark.parametrize("drained", [{ALL}, {"b"}, {"web-3"}])
@pytest.mark.parametrize("straight", [True, False])
def test_terminating_pods_get_nothing_when_the_last_ready_pod_is_drained(drained: set[str], *, straight: bool) -> None:
    """Without any ready pod they would; here the port refuses instead."""
    leaving = [{**pod(name, address, "a"), "conditions": LEAVING} for name, address in OLD.items()]
    wanted = {**service(), **(STRAIGHT if straight else {})}
    (entry,) = found(drained, wanted, endpoints(*leaving, pod("web-3", "10.1.0.3", "b")), A, B)
    assert entry.backends == ()
    assert entry.problem is not None
    assert "all its backends are drained" in entry.problem.message
    assert places(set(), {**service(), **STRAIGHT}, endpoints(*leaving), A, B) == [*OLD.values()]


@pytest.mark.parametrize("drained", [set(), {"web-3"}, {"b"}])
def test_a_drain_does_not_change_how_pods_are_reached(drained: set[str]) -> None:
    """They are behind NodePorts as long as one of all isn't reached from here."""
    result = parsed(service(), PODS, A, B)
    first, last = int(ip_address("10.1.0.1")), int(ip_address("10.1.0.2"))
    index = BackendIndex.of(eligible(result.nodes)[0], result.slices)
    near = replace(index, reaches={DEMO: Reach((Destination(4, first, last, leads=True),))})
    (entry,) = upstreams(replace(result.services[0], ordered=Order(drained=frozenset(drained))), near)
    assert (bool(entry.backends), entry.via is Via.PODS) == (True, False)


@pytest.mark.parametrize("names", [{"web-1"}, {"10.1.0.1"}])
def test_no_node_port_stands_by_on_a_detour_around_a_pod(names: set[str]) -> None:
    """For the same reason."""
    result = parsed({**service(), **STRAIGHT}, PODS, A, B)
    order = Order(down=Down(frozenset(names), "2999-01-01T00:00:00Z"))
    index = BackendIndex.of(eligible(result.nodes)[0], result.slices)
    (entry,) = failover_backends(replace(result.services[0], ordered=order), index)
    assert (len(entry.backends), entry.standby) == (2, ())


def test_a_port_whose_backends_are_all_drained_says_so() -> None:
    """With the way back; one that had none anyhow says what it said."""
    (entry,) = found({ALL}, service(), A, B)
    assert entry.problem is not None
    reported = "all its backends are drained; `locallb drain demo/shop/web --undo` brings them back"
    assert entry.problem.message == f"demo/shop/web port 8080/TCP: {reported}"
    assert found({ALL}, service())[0].problem == found(set(), service())[0].problem


def test_the_names_of_backends_are_known() -> None:
    """An endpoint that is no Pod has an address only."""
    result = parsed(A, service(), endpoints(pod("web-1", "10.1.0.1", "a"), endpoint("10.1.0.9")))
    assert names_of(result.nodes) == {"a", "10.0.0.1", "fd00::1"}
    assert names_of_endpoints(result.slices) == {"web-1", "10.1.0.1", "10.1.0.9"}


def test_a_detour_is_there_where_backends_differ() -> None:
    """For TCP, without what is drained; it is empty where all are down."""
    ports = [{"port": 8080, "nodePort": 30080}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]
    result = parsed(service(ports=ports), A, B, node("c", "10.0.0.3"))
    index = BackendIndex.of(eligible(result.nodes)[0], result.slices)

    def found_where(down: set[str], drained: set[str]) -> list[list[str]]:
        order = Order(drained=frozenset(drained), down=Down(frozenset(down), "2999-01-01T00:00:00Z"))
        wanted = replace(result.services[0], ordered=order)
        return [[str(backend) for backend in entry.backends] for entry in failover_backends(wanted, index)]

    assert found_where({"a"}, set()) == [["10.0.0.2:30080", "10.0.0.3:30080"]]
    assert found_where({"a"}, {"b"}) == [["10.0.0.3:30080"]]
    assert found_where({"a", "b", "c"}, set()) == [[]]
    assert found_where({"a"}, {"a"}) == found_where({"nobody"}, set()) == []
    assert list(failover_backends(result.services[0], index)) == []
