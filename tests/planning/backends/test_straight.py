"""Straight to pods: when connections go to a port's endpoints themselves, and what stands by."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.identities import ContextName, Family
from locallb.model.objects import BackendChoice, Via
from locallb.model.reasons import Reason
from locallb.model.routes import LOCAL_TABLE, Diversion, HostRoute, PodRoute
from locallb.model.serving import ConnectCheck, HttpCheck
from locallb.model.snapshot import Access, HostFacts, Snapshot
from locallb.planning.backends import PortBackends, upstreams
from locallb.planning.endpoints import BackendIndex, eligible, reach_of
from locallb.planning.plan import make_plan
from tests.planning.node_routes import BRIDGE, DEFAULT, by
from tests.support.objects import DEMO, JsonObject, endpoint, endpoints, node, parsed, service
from tests.support.strategies import HOME

A, B = node("a", "172.18.0.2", "fd00::2"), node("b", "172.18.0.3", "fd00::3")
WIDE = HostRoute(ip_network("10.0.0.0/8"), "unicast", "eth0")
LOCAL: JsonObject = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
UDP_PORT: JsonObject = {"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}
UDP_SLICE = ({"name": "", "port": 5353, "protocol": "UDP"},)
BOTH = frozenset(Family)


def found(
    *objects: JsonObject, routes: tuple[HostRoute, ...] = (), ports: frozenset[Family] = BOTH, **keys: object
) -> PortBackends:
    """Find the backends of the one port and family of the one Service, with these keys in the stack."""
    result = parsed(*objects)
    host = HostFacts(routes=routes, routed=tuple(route.destination for route in routes if route.is_way))
    snapshot = Snapshot(HOME, nodes=result.nodes, slices=result.slices, health_ports={DEMO: ports}, host=host)
    (web,) = result.services
    (entry,) = upstreams(web, BackendIndex.within(snapshot, eligible(result.nodes)[0], settings(**keys)))
    return entry


def settings(**keys: object) -> Settings:
    return parse_settings({"sources": [{"manifests": "demo"}], **keys})


def terms(entry: PortBackends) -> tuple[list[str], list[str]]:
    return [str(backend) for backend in entry.backends], [str(backend) for backend in entry.standby]


POD, OTHER = endpoint("10.244.0.7", "a"), endpoint("10.244.1.7", "b")
PODS = (["10.244.0.7:9376"], ["172.18.0.2:30080", "172.18.0.3:30080"])
NODE_PORTS = (["172.18.0.2:30080", "172.18.0.3:30080"], list[str]())
ROUTED = by("172.18.0.2", "10.244.0.0/24")


def test_with_a_route_by_a_node_connections_go_to_pods_and_node_ports_stand_by() -> None:
    """Pods are asked themselves, Nodes whether their kube-proxy is there."""
    entry = found(service(), A, B, endpoints(POD), routes=ROUTED)
    assert terms(entry) == PODS
    assert (entry.via is Via.PODS, entry.health) == (True, ConnectCheck())
    assert {(backend.checked_at, backend.checked_port) for backend in entry.backends} == {(None, 0)}
    assert {(backend.checked_at, backend.checked_port) for backend in entry.standby} == {(None, 10256)}


@pytest.mark.parametrize(
    ("routes", "straight"),
    [
        ((), False),
        ((BRIDGE, DEFAULT), False),
        ((BRIDGE, HostRoute(ip_network("0.0.0.0/1"), "unicast", "tun0", ip_address("172.18.0.2"))), False),
        ((BRIDGE, HostRoute(ip_network("10.0.0.0/8"), "unicast", "tun0")), False),
        ((BRIDGE, HostRoute(ip_network("10.244.0.0/16"), "unicast", "docker0")), False),
        (by("172.19.0.2", "10.244.0.0/24"), False),
        (by("172.18.0.3", "10.244.0.0/16"), True),
        ((*ROUTED, HostRoute(ip_network("10.244.0.0/25"), "blackhole")), False),
        ((*ROUTED, HostRoute(ip_network("10.244.0.0/25"), "unicast", "wg0")), False),
        ((*ROUTED, HostRoute(ip_network("10.244.0.0/24"), "unicast", "br-x", ip_address("172.19.0.2"))), False),
        ((*ROUTED, HostRoute(ip_network("10.244.0.128/25"), "blackhole")), True),
        ((HostRoute(ip_network("172.18.0.2/32"), "local", "eth0", table=LOCAL_TABLE), DEFAULT), False),
        ((HostRoute(ip_network("172.18.0.2/32"), "local", "eth0", table=LOCAL_TABLE),
          HostRoute(ip_network("10.244.0.0/24"), "unicast", "cni0")), True),
        ((HostRoute(ip_network("172.18.0.2/32"), "local", "lo", table=LOCAL_TABLE),
          HostRoute(ip_network("10.244.0.0/24"), "unicast", "cni0")), False),
    ],
    ids=["none", "default", "half of the default", "VPN", "Docker's bridge", "another cluster's Node", "a Node",
         "blackhole", "VPN within", "two ways", "blackhole elsewhere", "a Node itself without a route", "a Node itself",
         "a Node's address on lo"],
)  # fmt: skip
def test_only_a_route_that_leads_to_the_cluster_counts(routes: tuple[HostRoute, ...], *, straight: bool) -> None:
    """Never because some route or other has the pods' numbers: somebody else may be there."""
    entry = found(service(), A, B, endpoints(POD), routes=routes)
    assert (entry.via is Via.PODS, terms(entry)) == (straight, PODS if straight else NODE_PORTS)


@pytest.mark.parametrize(
    ("diverted", "yields", "straight"),
    [
        ("0.0.0.0/0", False, False),
        ("0.0.0.0/0", True, True),
        ("10.0.0.0/8", False, False),
        ("10.0.0.0/8", True, True),
        ("10.244.0.0/25", True, False),
        ("10.244.0.0/24", True, True),
        ("10.244.0.128/25", False, True),
    ],
)
def test_pods_that_a_routing_rule_diverts_are_not_reached_directly(
    diverted: str, *, yields: bool, straight: bool
) -> None:
    """Whatever routes there are, unless the rule comes after the main table's longer prefixes."""
    reach = reach_of(parsed(A, B).nodes, ROUTED, (Diversion(ip_network(diverted), "a VPN", yields),))
    assert reach.has(ip_address("10.244.0.7")) is straight


def test_pods_in_the_nodes_own_network_are_reached() -> None:
    """As those with hostNetwork, or of a CNI that gives them addresses there."""
    assert (
        found(service(), A, endpoints(endpoint("172.18.0.2"), endpoint("172.18.7.1")), routes=(BRIDGE,)).via is Via.PODS
    )


@pytest.mark.parametrize(
    ("routes", "straight"),
    [
        ((WIDE,), False),
        ((WIDE, HostRoute(ip_network("10.244.0.0/16"), "unicast", "eth0", ip_address("10.1.0.2"))), True),
        ((WIDE, HostRoute(ip_network("10.244.0.0/24"), "unicast", "eth0", ip_address("10.1.0.2"))), True),
        ((WIDE, HostRoute(ip_network("10.244.0.0/25"), "unicast", "eth0", ip_address("10.1.0.2"))), True),
        ((WIDE, HostRoute(ip_network("10.244.0.0/24"), "unicast", "eth0")), False),
        ((WIDE, HostRoute(ip_network("10.1.0.2/32"), "local", "eth0", table=LOCAL_TABLE)), True),
    ],
    ids=["none", "a wider one", "one", "a narrower one", "a network without Nodes", "a Node itself"],
)
def test_a_network_with_nodes_has_none_of_the_pods_that_only_nodes_pass_on(
    routes: tuple[HostRoute, ...], *, straight: bool
) -> None:
    """A Node in 10.0.0.0/8 that this host is in, too: nobody there answers for the pods' numbers, or somebody else."""
    passing = node("a", "10.1.0.2")
    passing["spec"] = {"podCIDR": "10.244.0.0/24"}
    entry = found(service(), passing, endpoints(POD), routes=routes)
    assert (entry.via is Via.PODS) == straight


def test_without_a_route_to_the_cluster_everything_is_as_it_was() -> None:
    """The same backends and the same checks, whatever other routes there are."""
    for objects in ([service()], [service(**LOCAL)]):
        some = (*objects, A, B, endpoints(POD))
        assert found(*some, routes=(BRIDGE, DEFAULT)) == found(*some, routes=(), backends="nodePorts")
        assert isinstance(found(*some, routes=(DEFAULT,)).health, HttpCheck)


def test_port_goes_to_pods_only_if_every_endpoint_has_a_route() -> None:
    """The kind of check stays the same, so switching to pods and back is a push of endpoints."""
    some = service(), A, B, endpoints(POD, OTHER)
    partly = found(*some, routes=ROUTED)
    wholly = found(*some, routes=by("172.18.0.2", "10.244.0.0/24", "10.244.1.0/24"))
    assert (partly.via is Via.PODS, terms(partly)) == (False, NODE_PORTS)
    assert (wholly.via is Via.PODS, terms(wholly)) == (True, (["10.244.0.7:9376", "10.244.1.7:9376"], NODE_PORTS[0]))
    assert partly.health == wholly.health == ConnectCheck()
    assert found(*some[:3], endpoints(POD, endpoint("10.244.1.7", "b", ready=False)), routes=ROUTED).via is Via.PODS


@pytest.mark.parametrize(
    ("stack", "annotation", "routes", "straight"),
    [
        ("auto", None, ROUTED, True),
        ("nodePorts", None, ROUTED, False),
        ("pods", None, (DEFAULT,), True),
        ("auto", "nodePorts", ROUTED, False),
        ("nodePorts", "auto", ROUTED, True),
        ("nodePorts", "pods", (), True),
        ("pods", "nodePorts", ROUTED, False),
    ],
)
def test_stack_and_service_choose(
    stack: str, annotation: str | None, routes: tuple[HostRoute, ...], *, straight: bool
) -> None:
    """The Service's word counts before the stack's; `pods` doesn't ask for a route."""
    meta = {"annotations": {"local-lb.dev/backends": annotation}} if annotation else {}
    entry = found(service(meta=meta), A, B, endpoints(POD), routes=routes, backends=stack)
    assert (entry.via is Via.PODS, terms(entry)) == (straight, PODS if straight else NODE_PORTS)


def test_without_endpoint_slices_node_ports_serve_whatever_is_chosen() -> None:
    """Nobody knows any pod."""
    entry = found(service(), A, B, routes=ROUTED, backends="pods")
    assert (terms(entry), entry.health) == (NODE_PORTS, HttpCheck(10256))


def ranged(name: str, address: str, *networks: str) -> JsonObject:
    """Make a Node with ranges of pods."""
    made = node(name, address)
    made["spec"] = {"podCIDRs": [*networks]}
    return made


RANGED = ranged("a", "172.18.0.2", "10.244.0.0/24"), ranged("b", "172.18.0.3", "10.244.1.0/24")
BOTH_ROUTED = (*by("172.18.0.2", "10.244.0.0/24"), by("172.18.0.3", "10.244.1.0/24")[-1])


def awaits(
    *nodes: JsonObject,
    routes: tuple[HostRoute, ...] = BOTH_ROUTED,
    ours: tuple[PodRoute, ...] = (),
    listed: bool = True,
    **keys: object,
) -> bool:
    """Return whether a Service without EndpointSlices gets no backends yet; otherwise it has its NodePorts."""
    result = parsed(service(), *nodes)
    snapshot = Snapshot(HOME, nodes=result.nodes, health_ports={DEMO: BOTH}, host=HostFacts(routes=routes))
    given = settings(**keys), {DEMO: ours} if ours else {}, {DEMO} if listed else set()
    within = BackendIndex.within(snapshot, eligible(result.nodes)[0], *given)
    (web,) = result.services
    for index in (within, replace(within.of_cluster(DEMO), slices=within.slices)):
        (entry,) = upstreams(web, index)
        assert terms(entry) == (([], []) if entry.problem else NODE_PORTS)
        assert entry.problem is None or entry.problem.reason is Reason.NO_BACKENDS
    return entry.problem is not None


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({}, True),
        ({"backends": "pods"}, True),
        ({"backends": "nodePorts"}, False),
        ({"listed": False}, False),
        ({"routes": by("172.18.0.2", "10.244.0.0/24")}, False),
        ({"routes": (BRIDGE, DEFAULT)}, False),
        ({"runtime": "docker", "network": "publish"}, False),
    ],
    ids=[
        "reached",
        "pods",
        "NodePorts wanted",
        "manifests or no right to read them",
        "one Node's pods",
        "no route",
        "a container's network",
    ],
)
def test_endpoint_slices_are_waited_for_where_all_pods_are_reached(given: dict[str, Any], *, waits: bool) -> None:
    """Each Service of a running cluster gets some at once; kube-proxy opens a NodePort a second after it is known."""
    assert awaits(*RANGED, **given) is waits


def test_endpoint_slices_are_waited_for_by_routes_of_ours() -> None:
    """By those that are planned for each Node, and for ranges that the stack names where Nodes have none."""
    routes = tuple(
        PodRoute(ip_network(network), ip_address(gateway))
        for network, gateway in (("10.244.0.0/24", "172.18.0.2"), ("10.244.1.0/24", "172.18.0.3"))
    )
    assert awaits(*RANGED, routes=(BRIDGE, DEFAULT), ours=routes)
    assert not awaits(*RANGED, routes=(BRIDGE, DEFAULT), ours=routes[:1])
    assert awaits(A, B, routes=(BRIDGE, DEFAULT), ours=routes)
    assert not awaits(A, B, routes=BOTH_ROUTED)
    to_node = PodRoute(ip_network("172.18.0.2/32"), ip_address("172.18.7.7"))
    assert not awaits(A, B, routes=(BRIDGE, DEFAULT), ours=(to_node,))


@pytest.mark.parametrize(
    ("live", "others", "waits"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["a running cluster", "manifests", "slices that may not be read"],
)
def test_plan_of_a_new_service_never_begins_with_node_ports_that_pods_replace(
    *, live: bool, others: bool, waits: bool
) -> None:
    """An API server has a slice for itself, so none at all means that they can't be read."""
    of_api = endpoints(endpoint("172.18.0.9"), name="kubernetes", service="kubernetes")
    web = endpoints(POD)
    pod_paths = []
    for slices in ([], [web]):
        read = parsed(service(), *RANGED, *([of_api] if others else []), *slices)
        existing = Snapshot(
            HOME, read.services, nodes=read.nodes, slices=read.slices, host=HostFacts(routes=BOTH_ROUTED)
        )
        access = {DEMO: Access("/nowhere", ContextName("c"))} if live else {}
        (placement,) = make_plan(replace(existing, access=access), settings()).placements
        pod_paths.append(placement.ports[0].via)
    assert pod_paths == [None if waits else Via.NODE_PORTS, Via.PODS]


def test_node_without_a_range_of_pods_hinders_waiting() -> None:
    """Its pods may be out of reach, and then the NodePorts are what serves."""
    assert not awaits(RANGED[0], B)


def test_endpoint_slices_are_waited_for_in_the_families_in_which_pods_are_reached() -> None:
    """IPv6 pods without a route leave IPv4 ones alone."""
    dual = [
        ranged("a", "172.18.0.2", "10.244.0.0/24", "fd00:10:244::/64"),
        ranged("b", "172.18.0.3", "10.244.1.0/24", "fd00:10:244:1::/64"),
    ]
    assert awaits(*dual)
    assert not awaits(*dual, routes=(BRIDGE, DEFAULT))
    six = service(ipFamilies=["IPv6"])
    read = parsed(six, *dual)
    snapshot = Snapshot(HOME, nodes=read.nodes, host=HostFacts(routes=BOTH_ROUTED))
    index = BackendIndex.within(snapshot, read.nodes, settings(), listed={DEMO})
    (entry,) = upstreams(read.services[0], index)
    assert "EndpointSlice" not in str(entry.problem)


def test_backends_pods_also_uses_the_default_route() -> None:
    """Otherwise a port without nodePort is Unreachable."""
    some = service(ports=[{"port": 80}]), A, endpoints(POD)
    assert found(*some, routes=(DEFAULT,), backends="pods").via is Via.PODS
    problem = found(*some, routes=(DEFAULT,)).problem
    assert problem
    assert problem.reason is Reason.UNREACHABLE


def test_under_policy_local_all_pods_serve_and_all_nodes_stand_by() -> None:
    """The policy is about NodePorts: theirs answer only where an endpoint is, which a connection finds out."""
    entry = found(service(**LOCAL), A, B, endpoints(POD), routes=ROUTED)
    assert (terms(entry), entry.health) == (PODS, ConnectCheck())
    assert {backend.checked_port for backend in (*entry.backends, *entry.standby)} == {0}
    (a, b) = (found(service(**LOCAL), A, B, endpoints(POD, OTHER), routes=ROUTED) for _ in "ab")
    assert (a, a.health, a.via) == (b, ConnectCheck(), Via.NODE_PORTS)


def test_pods_on_nodes_that_may_be_no_backends_serve() -> None:
    """A label or taint is about the Node's NodePorts."""
    tainted = node("a", "172.18.0.2", taints=[{"key": "ToBeDeletedByClusterAutoscaler"}])
    entry = found(service(**LOCAL), tainted, B, endpoints(POD), routes=ROUTED)
    assert terms(entry) == (["10.244.0.7:9376"], [])
    assert found(service(), tainted, endpoints(POD), routes=ROUTED).via is Via.PODS


def test_udp_pods_are_as_healthy_as_their_nodes_kube_proxy() -> None:
    """A connection would say nothing about them, and kube-proxy of the Node tells that it lives."""
    for spec, check in ((UDP_PORT, HttpCheck(10256)), ({**UDP_PORT, **LOCAL}, HttpCheck(32000))):
        entry = found(service(**spec), A, B, endpoints(POD, ports=UDP_SLICE), routes=ROUTED)
        assert (entry.via is Via.PODS, entry.health) == (True, check)
        assert [(str(backend.checked_at), backend.checked_port) for backend in entry.backends] == [
            ("172.18.0.2", 10256)
        ]
    unknown = found(service(**UDP_PORT), A, endpoints(endpoint("10.244.0.7", None), ports=UDP_SLICE), routes=ROUTED)
    assert [(backend.checked_at, backend.checked_port) for backend in unknown.backends] == [(None, None)]


def test_pod_routes_are_used_per_address_family() -> None:
    """IPv6 pods without a route leave IPv4 ones alone."""
    result = parsed(
        service(ipFamilies=["IPv4", "IPv6"]), A, B, endpoints(POD), endpoints(endpoint("fd00:10:244::7", "a"),
        name="six", family="IPv6"),
    )  # fmt: skip
    six = HostRoute(ip_network("fd00:10:244::/64"), "unicast", "br-kind", ip_address("fd00::2"))
    for routes, expected in ((ROUTED, [True, False]), ((*ROUTED, six), [True, True])):
        snapshot = Snapshot(HOME, nodes=result.nodes, slices=result.slices, host=HostFacts(routes=routes))
        index = BackendIndex.within(snapshot, result.nodes, settings())
        assert [port_backends.via is Via.PODS for port_backends in upstreams(result.services[0], index)] == expected


def test_containers_with_a_network_of_their_own_dont_have_this_hosts_routes() -> None:
    """With published ports Envoy runs behind another table of routes."""
    entry = found(service(), A, B, endpoints(POD), routes=ROUTED, runtime="docker", network="publish")
    assert (entry.via is Via.PODS, terms(entry)) == (False, NODE_PORTS)


def draining(address: str) -> JsonObject:
    """Make an endpoint that is terminating and still serves."""
    conditions = {"ready": False, "serving": True, "terminating": True}
    return {"addresses": [address], "conditions": conditions, "nodeName": "a"}


def test_kube_proxys_rules_hold_for_pods() -> None:
    """Ready ones; while none is, those that drain (KEP-1669); publishNotReadyAddresses says ready; named ports."""
    assert terms(found(service(), A, endpoints(draining("10.244.0.8")), routes=ROUTED))[0] == ["10.244.0.8:9376"]
    both = endpoints(draining("10.244.0.8"), POD)
    assert terms(found(service(), A, both, routes=ROUTED))[0] == ["10.244.0.7:9376"]
    named = service(ports=[{"name": "w", "port": 80, "targetPort": "web", "nodePort": 30080}])
    slices = [
        endpoints(POD, name="old", ports=[{"name": "w", "port": 8080}]),
        endpoints(endpoint("10.244.0.9", "a"), name="new", ports=[{"name": "w", "port": 8081}]),
    ]
    assert terms(found(named, A, *slices, routes=ROUTED))[0] == ["10.244.0.7:8080", "10.244.0.9:8081"]
    none = found(service(), A, endpoints(endpoint("10.244.0.7", ready=False)), routes=ROUTED)
    assert none.problem
    assert none.problem.reason is Reason.NO_BACKENDS


def test_reach_of_equal_nodes_and_routes_is_computed_once() -> None:
    """A thousand Services ask for it at every change; an identical object is compared at no cost."""
    nodes = parsed(A, B).nodes
    assert reach_of(nodes, ROUTED) is reach_of(parsed(A, B).nodes, by("172.18.0.2", "10.244.0.0/24"))
    assert reach_of(nodes, ROUTED) != reach_of(nodes, (BRIDGE,))


def test_this_hosts_own_addresses_are_nobodys_pods() -> None:
    """Whoever may write EndpointSlices would have connections from this host to itself."""
    own = HostRoute(ip_network("172.18.0.1/32"), "local", "br-kind", table=LOCAL_TABLE)
    assert found(service(), A, endpoints(endpoint("172.18.0.1")), routes=(BRIDGE, own)).via is not Via.PODS


ADDRESSES = st.integers(0, 255).map(lambda n: f"10.244.{n % 2}.{n}")
ROUTES = st.lists(
    st.builds(
        HostRoute,
        st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "10.244.0.0/24", "10.244.1.0/24", "10.244.0.0/16"]).map(ip_network),
        st.sampled_from(["unicast", "blackhole"]),
        st.sampled_from(["br-kind", "tun0", "eth0"]),
        st.sampled_from([None, ip_address("172.18.0.2"), ip_address("192.0.2.1")]),
    ),
    max_size=5,
)


@given(st.lists(ADDRESSES, min_size=1, max_size=4), ROUTES, st.sampled_from(BackendChoice))
def test_node_ports_are_never_lost_and_pods_are_all_or_none(
    pods: list[str], routes: list[HostRoute], choice: BackendChoice
) -> None:
    """Whatever routes there are, NodePorts serve or stand by, and by `auto` each pod is reached by the rules above."""
    slices = endpoints(*(endpoint(pod, "a") for pod in pods))
    entry = found(service(), A, B, slices, routes=tuple(routes), backends=choice.value)
    assert {str(backend) for backend in (*entry.backends, *entry.standby)} >= set(NODE_PORTS[0])
    reach = reach_of(parsed(A, B).nodes, routes)
    reached = all(reach.has(ip_address(pod)) for pod in pods)
    assert (entry.via is Via.PODS) == {"auto": reached, "pods": True, "nodePorts": False}[choice]
    if entry.via is Via.PODS:
        assert {str(backend.address) for backend in entry.backends} == set(pods)
    assert found(service(), A, B, slices, routes=tuple(reversed(routes)), backends=choice.value) == entry
