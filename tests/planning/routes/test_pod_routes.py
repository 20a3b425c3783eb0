"""Which routes lead to pods, and which are not made: tables, and the law that nobody else's network is ever taken."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName, Home, NodeName
from locallb.model.memory import Memo
from locallb.model.objects import Node
from locallb.model.ranges import AddressRange
from locallb.model.routes import POD_PROTOCOL, Diversion, HostAddresses, HostRoute, PodRoute
from locallb.model.serving import Listener
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.texts import metric_of
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.pod_routes import routes_of
from locallb.sources.snapshot import holding
from tests.support.objects import JsonObject, endpoint, endpoints, parsed, service
from tests.support.objects import node as node_object

HOME = Home("local-lb", "dev", "/somewhere")
BRIDGE = HostRoute(ip_network("172.18.0.0/16"), "unicast", "br-kind")
DEFAULT = HostRoute(ip_network("0.0.0.0/0"), "unicast", "eth0", ip_address("192.0.2.1"))
HALF = HostRoute(ip_network("128.0.0.0/1"), "unicast", "tun0")


def node(name: str, address: str, *ranges: str, cluster: str = "c") -> Node:
    networks = tuple(map(ip_network, ranges))
    return Node(ClusterName(cluster), NodeName(name), (ip_address(address),), pod_cidrs=networks)


WORKER = node("worker", "172.18.0.3", "10.244.1.0/24")


def settings(**changes: object) -> Settings:
    """Return a configuration with routes in this host's table."""
    sources = [{"kubernetes": {"name": "c"}}]
    return parse_settings({"sources": sources, "podRoutes": "host", **changes})


def of_shoot(*pod_paths: str, nodes: tuple[Node, ...] = (WORKER,)) -> tuple[list[str], str]:
    """Return the routes that are made for a cluster whose Nodes are reached by these, and what is told."""
    existing = {ClusterName("c"): tuple(map(PodRoute.parse, pod_paths))}
    host = HostFacts(addresses=HostAddresses(routes=(BRIDGE,)), may_route=True)
    return told_of(Snapshot(HOME, nodes=nodes, host=host, node_routes=existing), settings())


def told_of(snapshot: Snapshot, given_settings: Settings) -> tuple[list[str], str]:
    """Return the routes that are made, and what is told."""
    plan = routes_of(snapshot, given_settings)
    return [f"{name}: {route}" for name, some in plan.routes.items() for route in some], "\n".join(plan.notices)


def planned(
    *routes: HostRoute, nodes: tuple[Node, ...] = (WORKER,), given_settings: Settings | None = None, may: bool = True
) -> tuple[list[str], str]:
    """Return the routes that are made on a host with these, and what is told."""
    host = HostFacts(addresses=HostAddresses(routes=(BRIDGE, *routes)), may_route=may)
    return told_of(Snapshot(HOME, nodes=nodes, host=host), given_settings or settings())


def route(
    destination: str, gateway: str = "172.18.0.9", *, table: int = 254, protocol: int = 0, metric: int = 0
) -> HostRoute:
    return HostRoute(ip_network(destination), "unicast", "eth9", ip_address(gateway), table, protocol, metric)


MADE = ["c: 10.244.1.0/24 via 172.18.0.3"]


@pytest.mark.parametrize(
    "harmless",
    [
        (),
        (DEFAULT, HALF),
        (route("10.244.2.0/24"),),
        (route("10.244.1.0/24", "172.18.0.3"),),
        (route("10.244.1.0/24", "172.18.0.8", protocol=POD_PROTOCOL, metric=metric_of(HOME)),),
    ],
    ids=["nothing", "default routes", "a neighbour", "the same way", "ours, by a Node that is gone"],
)
def test_pod_route_without_conflict_is_planned_silently(harmless: tuple[HostRoute, ...]) -> None:
    """It is made, and there is nothing to tell."""
    assert planned(*harmless) == (MADE, "")


@pytest.mark.parametrize(
    "other",
    [
        route("10.0.0.0/8"),
        route("10.244.1.0/24"),
        route("10.244.1.7/32"),
        route("10.244.1.0/24", table=51820),
        route("10.244.1.0/24", "172.18.0.9", protocol=POD_PROTOCOL, metric=7),
    ],
    ids=["wider", "the same", "narrower", "another table", "another stack's"],
)
def test_a_network_of_another_owner_is_left_to_them(other: HostRoute) -> None:
    """The sentence names the cluster, both routes and what to do."""
    made, reported = planned(other)
    assert made == []
    assert reported.startswith("c: the route 10.244.1.0/24 via 172.18.0.3 to its pods isn't made: ")
    assert str(other.destination) in reported
    assert reported.endswith("or use local-lb:podRoutes container, with which each proxy has routes of its own")


@pytest.mark.parametrize("destination", ["10.0.0.0/8", "10.244.1.0/24", "10.244.1.64/26"])
def test_no_pod_route_is_made_inside_a_blackhole_route(destination: str) -> None:
    """It may be meant for a VPN that is down; default routes don't count, of whatever type."""
    retained = HostRoute(ip_network(destination), "blackhole")
    host = HostFacts(addresses=HostAddresses(routes=(BRIDGE,)), may_route=True)
    plan = routes_of(Snapshot(HOME, nodes=(WORKER,), host=replace(host, routes=(BRIDGE, retained))), settings())
    assert dict(plan.routes) == {}
    assert f"{destination} is kept from leading anywhere" in "".join(plan.notices)
    halves = replace(host, routes=(BRIDGE, HostRoute(ip_network("0.0.0.0/0"), "unreachable")))
    assert routes_of(Snapshot(HOME, nodes=(WORKER,), host=halves), settings()).notices == ()


@pytest.mark.parametrize(
    ("ranges", "terms"),
    [
        ("0.0.0.0/0", "no network of pods"),
        ("10.0.0.0/7", "no network of pods"),
        ("127.0.1.0/24", "no network of pods"),
        ("169.254.0.0/24", "no network of pods"),
        ("8.8.8.0/24", "is public"),
        ("172.18.3.0/24", "172.18.0.0/16"),
    ],
)
def test_a_cluster_cannot_take_what_is_no_network_of_pods(ranges: str, terms: str) -> None:
    """Whatever its Nodes say."""
    made, reported = planned(nodes=(node("worker", "172.18.0.3", ranges),))
    assert made == []
    assert terms in reported


def test_a_node_out_of_reach_is_no_gateway() -> None:
    """The kernel would refuse it."""
    made, reported = planned(nodes=(node("worker", "192.0.2.9", "10.244.1.0/24"),))
    assert made == []
    assert "192.0.2.9 is in no network" in reported


def test_a_node_that_is_this_host_and_a_family_without_network_need_none() -> None:
    """And nothing is said of them."""
    six = node("six", "fd00::3", "fd44::/64")
    host = HostFacts(addresses=HostAddresses(own=((ip_address("172.18.0.3"), "br-kind"),), routes=(BRIDGE,)))
    plan = routes_of(Snapshot(HOME, nodes=(WORKER, six), host=host), settings())
    assert (dict(plan.routes), plan.notices) == ({}, ())


def test_named_ranges_count_instead_and_may_be_public() -> None:
    """They lead to the first Node."""
    named = settings(sources=[{"kubernetes": {"name": "c", "podCIDRs": ["10.42.0.0/16", "9.9.0.0/16"]}}])
    made, reported = planned(nodes=(node("z", "172.18.0.9", "10.244.9.0/24"), WORKER), given_settings=named)
    assert made == ["c: 9.9.0.0/16 via 172.18.0.3", "c: 10.42.0.0/16 via 172.18.0.3"]
    assert reported == ""


def test_pod_range_of_two_clusters_stays_with_the_one_that_has_the_route() -> None:
    """Without a route it goes to the first cluster by name."""
    other = node("worker", "172.18.0.4", "10.244.1.0/24", cluster="a")
    assert planned(nodes=(WORKER, other))[0] == ["a: 10.244.1.0/24 via 172.18.0.4"]
    held = route("10.244.1.0/24", "172.18.0.3", protocol=POD_PROTOCOL, metric=metric_of(HOME))
    made, reported = planned(held, nodes=(WORKER, other))
    assert made == MADE
    assert reported.startswith("a: ")


def test_pod_routes_need_the_setting_and_the_right() -> None:
    """Off is the default."""
    off = replace(settings(), pod_routes=PodRouting.OFF)
    assert planned(given_settings=off) == ([], "")
    made, reported = planned(may=False)
    assert made == []
    assert "may change no routes" in reported


def test_nodes_that_are_pods_get_routes_and_pods_behind_them_none() -> None:
    """Also while the cluster says nothing of its Nodes; the same rules hold for them."""
    assert of_shoot("10.0.7.2/32 via 172.18.0.3") == (["c: 10.0.7.2/32 via 172.18.0.3"], "")
    assert of_shoot("10.0.7.2/32 via 172.18.0.3", nodes=())[0]
    assert of_shoot() == ([], "")
    made, reported = of_shoot("8.8.8.8/32 via 172.18.0.3", "10.0.7.2/32 via 192.0.2.9")
    assert made == []
    assert "is public" in reported


def gained(*routes: HostRoute, pod_paths: tuple[str, ...] = (), **changes: object) -> tuple[str, ...]:
    """Return what is told of a stack without routes of ours, whose Service has a NodePort on a Node with pods."""
    services = parsed(service(), endpoints(endpoint("10.244.1.7"))).services
    demo = replace(WORKER, cluster=services[0].key.cluster)
    own = AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255"))
    host = HostFacts(addresses=HostAddresses((own,), routes=(BRIDGE, *routes)), routes=(BRIDGE, *routes))
    existing = {demo.cluster: tuple(map(PodRoute.parse, pod_paths))} if pod_paths else {}
    snapshot = Snapshot(HOME, services=services, nodes=(demo,), host=host, node_routes=existing)
    sources = [{"kubernetes": {"name": "demo"}}]
    return make_plan(snapshot, parse_settings({"sources": sources, **changes})).left_out


def test_pod_routes_are_suggested_only_where_they_could_be_made() -> None:
    """With the key to set; not where there are some, where none could be made, and where NodePorts are chosen."""
    (reported,) = gained()
    assert reported.startswith("demo: connections go by NodePorts")
    assert "local-lb:podRoutes host" in reported
    assert gained(podRoutes="host") == ()
    assert gained(backends="nodePorts") == ()
    assert gained(route("10.244.0.0/16")) == ()
    assert gained(route("10.244.1.0/24", "172.18.0.3")) == ()


@pytest.mark.parametrize(
    ("nodes", "reported"),
    [
        ({}, "local-lb:podRoutes host"),
        ({"kubeconfig": "k"}, "local-lb:podRoutes container, with local-lb:network publish,"),
    ],
)
def test_routes_are_proposed_as_they_may_be_had(nodes: JsonObject, reported: str) -> None:
    """Whoever does as told isn't told that it is a mistake, as `host` is where somebody else says where Nodes are."""
    kubernetes = {"name": "demo", "nodes": nodes}
    (sentence,) = gained(pod_paths=("10.0.7.2/32 via 172.18.0.3",), sources=[{"kubernetes": kubernetes}])
    assert f"to which this host has no routes; {reported} makes them" in sentence


@pytest.mark.parametrize("shared", ["per-service", "shared"])
@pytest.mark.parametrize("backends", ["auto", "pods", "nodePorts"])
def test_clients_are_held_however_backends_are_reached(shared: str, backends: str) -> None:
    """A pod that is replaced and a NodePort that kube-proxy opens anew both refuse for about a second."""
    (listener,) = listeners_of(make_plan(reached_by_node_ports(), settings_of(shared, backends=backends)))
    assert listener.patient


@pytest.mark.parametrize("shared", ["per-service", "shared"])
def test_listeners_that_serve_stay_as_they_are(shared: str) -> None:
    """Another listener would end the open connections of the one before it, which an earlier version made so."""
    snapshot, settings = reached_by_node_ports(), settings_of(shared)
    held = holding(snapshot, make_plan(snapshot, settings))
    before = replace(
        held,
        proxies=tuple(replace(each, traits=replace(each.traits, patient=False)) for each in held.proxies),
        assignments=tuple(each._replace(patient=False) for each in held.assignments),
    )
    assert before != held
    assert [listener.patient for listener in listeners_of(make_plan(before, settings))] == [False]


def reached_by_node_ports() -> Snapshot:
    """Return a cluster with a Service to whose only pod this host has no route."""
    result = parsed(service(), node_object(), endpoints(endpoint("10.244.1.7")))
    return Snapshot(HOME, services=result.services, nodes=result.nodes, slices=result.slices)


def settings_of(shared: str, **changes: object) -> Settings:
    """Return settings with own or shared proxies."""
    return parse_settings({"sources": [{"kubernetes": {"name": "demo"}}], "proxies": shared, **changes})


def listeners_of(plan: Plan) -> list[Listener]:
    own = [proxy.proxy.listeners for proxy in plan.proxies]
    parts = [placement.part.part.listeners for placement in plan.placements if placement.part]
    return [listener for listeners in (*own, *parts) for listener in listeners]


@pytest.mark.parametrize("sources", [[{"manifests": "m", "name": "c"}], [{"kind": "all"}], [{"gardener": {}}]])
def test_ranges_are_named_for_a_cluster_of_any_source(sources: list[JsonObject]) -> None:
    """They lead to its first Node; what a source says of its own cluster counts first."""
    named = {"podCIDRs": {"c": ["10.42.0.0/16", "fd42::/56"]}}
    routes, reported = planned(given_settings=settings(sources=sources, **named))
    assert (routes, reported) == (["c: 10.42.0.0/16 via 172.18.0.3"], "")
    own = [{"kubernetes": {"name": "c", "podCIDRs": ["10.43.0.0/16"]}}]
    assert planned(given_settings=settings(sources=own, **named))[0] == ["c: 10.43.0.0/16 via 172.18.0.3"]


networks = st.builds(
    lambda number, bits: IPv4Network((10 << 24 | number >> (32 - bits) << (32 - bits) & 0xFFFFFF, bits)),
    st.integers(0, 0xFFFFFF),
    st.integers(10, 30),
)


NODES = st.lists(st.tuples(networks, st.integers(1, 9)), max_size=4).map(
    lambda drawn: tuple(node(f"n{i}", f"172.18.1.{number}", str(pods)) for i, (pods, number) in enumerate(drawn))
)
ROUTES = st.lists(networks, max_size=3).map(lambda drawn: (BRIDGE, *(route(str(network)) for network in drawn)))
DIVERSIONS = st.lists(st.builds(Diversion, networks, st.just("a VPN"), st.booleans()), max_size=2).map(tuple)
SNAPSHOTS = st.builds(
    lambda nodes, routes, diversions, *, may: Snapshot(
        HOME,
        nodes=nodes,
        host=HostFacts(addresses=HostAddresses(routes=routes), routes=routes, diversions=diversions, may_route=may),
    ),
    NODES,
    ROUTES,
    DIVERSIONS,
    may=st.booleans(),
)
KEYS = st.sampled_from([settings(), settings(podRoutes="container", runtime="docker", network="publish"),
                        settings(sources=[{"kubernetes": {"name": "c", "podCIDRs": ["10.0.0.0/9"]}}])])  # fmt: skip


@given(st.lists(SNAPSHOTS, min_size=1, max_size=3), st.lists(KEYS, min_size=1, max_size=2), st.data())
def test_remembered_routes_equal_freshly_planned_ones(
    snapshots: list[Snapshot], keys: list[Settings], data: st.DataObject
) -> None:
    """Whatever changes in between."""
    memo = Memo[Any]()
    for _ in range(6):
        snapshot, chosen = data.draw(st.sampled_from(snapshots)), data.draw(st.sampled_from(keys))
        assert make_plan(snapshot, chosen, memo).routes == make_plan(snapshot, chosen).routes


@given(st.lists(networks, max_size=6), st.lists(networks, max_size=6))
def test_no_route_that_is_made_meets_another_one(pods: list[IPv4Network], others: list[IPv4Network]) -> None:
    """Whatever pods and others have; and what meets none of others' or an earlier one is made."""
    nodes = tuple(node(f"n{i}", f"172.18.1.{i}", str(network)) for i, network in enumerate(pods))
    host = HostFacts(addresses=HostAddresses(routes=(BRIDGE, *(route(str(network)) for network in others))))
    made = routes_of(Snapshot(HOME, nodes=nodes, host=host), settings()).routes.get(ClusterName("c"), ())
    for way in made:
        assert not any(way.destination.overlaps(other) for other in others)
    free = {network for network in pods if not any(network.overlaps(other) for other in others)}
    assert {way.destination for way in made} == free


@given(networks, st.ip_addresses(v=4))
def test_a_route_is_read_as_it_is_printed(network: IPv4Network, gateway: object) -> None:
    """In state and reports."""
    route = PodRoute(network, ip_address(str(gateway)))
    assert PodRoute.parse(str(route)) == route
