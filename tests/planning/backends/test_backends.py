"""Where the connections of a port may go, and why nowhere."""

from __future__ import annotations

import random
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import Family
from locallb.model.reasons import Problem, Reason
from locallb.model.serving import ConnectCheck, HttpCheck
from locallb.model.snapshot import Snapshot
from locallb.planning.backends import PortBackends, upstreams
from locallb.planning.endpoints import BackendIndex, eligible
from tests.support.objects import DEMO, JsonObject, endpoint, endpoints, node, parsed, service
from tests.support.strategies import HOME

DUAL: JsonObject = {"ipFamilies": ["IPv4", "IPv6"]}
LOCAL: JsonObject = {"externalTrafficPolicy": "Local"}
A, B = node("a", "10.0.0.1", "fd00::1"), node("b", "10.0.0.2", "fd00::2")
NO_NODE_PORT: JsonObject = {"ports": [{"port": 8080, "targetPort": 9000}]}


def found(*objects: JsonObject) -> tuple[PortBackends, ...]:
    """Find the backends of the one Service among the objects."""
    result = parsed(*objects)
    (service,) = result.services
    return upstreams(service, BackendIndex.of(eligible(result.nodes)[0], result.slices))


def backends(*objects: JsonObject) -> list[list[str]]:
    """Write the backends of each port and family."""
    return [[str(backend) for backend in entry.backends] for entry in found(*objects)]


def why_none(*objects: JsonObject) -> str:
    """Return the sentence of the one port and family, which has no backend."""
    (entry,) = found(*objects)
    assert entry.backends == ()
    assert entry.health is None
    assert entry.problem is not None
    assert entry.problem.reason is Reason.NO_BACKENDS
    head = "demo/shop/web port 8080/TCP: "
    assert entry.problem.message.startswith(head)
    return entry.problem.message.removeprefix(head)


def test_each_nodes_node_port_is_a_backend_in_its_family() -> None:
    """The listener's family and the backend's are the same."""
    assert backends(service(**DUAL), B, A) == [
        ["10.0.0.1:30080", "10.0.0.2:30080"],
        ["[fd00::1]:30080", "[fd00::2]:30080"],
    ]


def test_every_port_and_family_has_an_entry_in_the_order_of_the_service() -> None:
    """TCP is checked by connecting, UDP isn't checked."""
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
        {"name": "web", "port": 80, "nodePort": 30080},
    ]
    entries = found(service(ports=ports, **DUAL), A)
    assert [(str(port_backends.port), port_backends.family, port_backends.health) for port_backends in entries] == [
        ("53/UDP", "IPv4", None),
        ("53/UDP", "IPv6", None),
        ("80/TCP", "IPv4", ConnectCheck()),
        ("80/TCP", "IPv6", ConnectCheck()),
    ]
    assert all(port_backends.problem is None for port_backends in entries)


def test_nodes_that_share_an_address_are_one_backend() -> None:
    """As Nodes of a test, all at 127.0.0.1."""
    assert backends(service(), node("x"), node("y")) == [["127.0.0.1:30080"]]


def test_nodes_and_slices_of_others_dont_count() -> None:
    """Neither another cluster's nor another Service's."""
    mine, others = parsed(service(), A), parsed(endpoints(endpoint(), service="other"))
    foreign = parsed(B).nodes[0]
    nodes = [*mine.nodes, *(type(foreign)("elsewhere", foreign.name, foreign.addresses) for _ in "x")]  # type: ignore[arg-type]  # a NewType is noise here
    (entry,) = upstreams(mine.services[0], BackendIndex.of(nodes, others.slices))
    assert [str(backend) for backend in entry.backends] == ["10.0.0.1:30080"]


@pytest.mark.parametrize("spec", [{}, LOCAL])
def test_without_slices_the_endpoints_are_unknown_and_every_node_serves(spec: JsonObject) -> None:
    """Manifests rarely have EndpointSlices; whoever wrote them wants traffic."""
    assert backends(service(**spec), A, B) == [["10.0.0.1:30080", "10.0.0.2:30080"]]


def test_with_a_ready_endpoint_every_node_serves_under_policy_cluster() -> None:
    """kube-proxy forwards from any Node."""
    assert backends(service(), A, B, endpoints(endpoint(node_name="b"))) == [["10.0.0.1:30080", "10.0.0.2:30080"]]


def test_under_policy_local_only_nodes_with_a_ready_endpoint_serve() -> None:
    """The others would drop the traffic."""
    slices = [
        endpoints(endpoint(node_name="a", ready=False), endpoint("10.0.0.8", "b"), name="one"),
        endpoints(endpoint("10.0.0.9", None), name="two"),
    ]
    assert backends(service(**LOCAL), A, B, *slices) == [["10.0.0.2:30080"]]


def test_under_policy_local_each_port_has_its_own_endpoints() -> None:
    """A named targetPort may exist in some pods only."""
    ports = [{"name": name, "port": port, "nodePort": 30000 + port} for name, port in (("x", 80), ("y", 81))]
    slices = [
        endpoints(endpoint(node_name="a"), name="one", ports=[{"name": "x", "port": 1}]),
        endpoints(endpoint(node_name="b"), name="two", ports=[{"name": "y", "port": 2}]),
    ]
    assert backends(service(ports=ports, **LOCAL), A, B, *slices) == [["10.0.0.1:30080"], ["10.0.0.2:30081"]]


def test_without_a_node_port_the_endpoints_themselves_serve() -> None:
    """By the slice's port, else the target port, else the Service's; by an endpoint's first address; no Node needed."""
    two = {"addresses": ["10.0.0.8", "10.0.0.9"]}
    direct = service(**NO_NODE_PORT)
    assert backends(direct, endpoints(endpoint(), two)) == [["10.0.0.7:9376", "10.0.0.8:9376"]]
    assert backends(direct, endpoints(endpoint(), ports=[{"name": ""}])) == [["10.0.0.7:9000"]]
    named = service(ports=[{"port": 8080, "targetPort": "web"}])
    assert backends(named, endpoints(endpoint(), ports=[{}])) == [["10.0.0.7:8080"]]


def draining(address: str, node_name: str) -> JsonObject:
    """Make an endpoint that is terminating and still serves."""
    return {
        "addresses": [address],
        "conditions": {"ready": False, "serving": True, "terminating": True},
        "nodeName": node_name,
    }


def test_terminating_endpoints_serve_as_long_as_none_is_ready() -> None:
    """As kube-proxy does it: the last pod drains, and no client is refused before it is gone."""
    old, new = draining("10.0.0.7", "a"), endpoint("10.0.0.8", "b")
    assert backends(service(**LOCAL), A, B, endpoints(old)) == [["10.0.0.1:30080"]]
    assert backends(service(**LOCAL), A, B, endpoints(old, new)) == [["10.0.0.2:30080"]]
    assert backends(service(), A, B, endpoints(old)) == [["10.0.0.1:30080", "10.0.0.2:30080"]]


BOTH = frozenset(Family)


def checked(families: frozenset[Family], *objects: JsonObject) -> tuple[PortBackends, ...]:
    """Find the backends where kube-proxy's health port answers in `families`."""
    result = parsed(*objects)
    (service,) = result.services
    snapshot = Snapshot(HOME, slices=result.slices, health_ports={DEMO: families})
    return upstreams(service, BackendIndex.within(snapshot, eligible(result.nodes)[0]))


def test_where_kube_proxy_answers_its_health_port_is_asked() -> None:
    """For TCP and UDP alike: whether the Node forwards, not whether the application takes a connection."""
    ports = [{"name": "d", "port": 53, "protocol": "UDP", "nodePort": 30053}, {"name": "w", "port": 80, "nodePort": 1}]
    entries = checked(BOTH, service(ports=ports, **DUAL), A)
    assert {port_backends.health for port_backends in entries} == {HttpCheck(10256)}
    assert {backend.checked_at for port_backends in entries for backend in port_backends.backends} == {None}


def test_a_health_port_of_one_family_answers_for_the_other() -> None:
    """The Node is asked by an address on which it answers; a Node that has none by the one that it has."""
    nodes = [A, node("c", "fd00::3")]
    four, six = checked(frozenset({Family.IPV4}), service(**DUAL), *nodes)
    assert [backend.checked_at for backend in four.backends] == [None]
    assert [str(backend.checked_at) for backend in six.backends] == ["10.0.0.1", "None"]


def test_under_policy_local_the_health_check_node_port_is_asked_and_the_other_nodes_stand_by() -> None:
    """So that traffic follows a pod that moves before anybody has planned again."""
    web = service(**LOCAL, healthCheckNodePort=32000)
    (entry,) = checked(BOTH, web, A, B, endpoints(endpoint(node_name="b")))
    assert ([str(backend) for backend in entry.backends], entry.health) == (["10.0.0.2:30080"], HttpCheck(32000))
    assert [str(backend) for backend in entry.standby] == ["10.0.0.1:30080"]
    (last,) = checked(BOTH, web, A, B, endpoints(draining("10.0.0.7", "b")))
    assert (len(last.backends), last.health, last.standby) == (1, HttpCheck(32000), ())
    (unknown,) = checked(BOTH, web, A, B)
    assert (len(unknown.backends), unknown.health, unknown.standby) == (2, HttpCheck(32000), ())


def test_where_kube_proxy_is_replaced_a_connection_must_do() -> None:
    """Nothing tells of endpoints on other Nodes, so none stands by."""
    web = service(**LOCAL, healthCheckNodePort=32000)
    (entry,) = checked(frozenset(), web, A, B, endpoints(endpoint(node_name="b")))
    assert (entry.health, entry.standby) == (ConnectCheck(), ())
    (direct,) = checked(BOTH, service(**NO_NODE_PORT), A, endpoints(endpoint()))
    assert direct.health == ConnectCheck()


def test_endpoints_without_a_route_are_no_backends() -> None:
    """Without a nodePort only those near count; where there is none, the port says so."""
    result = parsed(service(**NO_NODE_PORT), endpoints(endpoint("10.244.1.7"), endpoint("172.18.0.3")))
    bridge = BackendIndex({}, {result.services[0].key: result.slices}, routed=(ip_network("172.18.0.0/16"),))
    (entry,) = upstreams(result.services[0], bridge)
    assert [str(backend) for backend in entry.backends] == ["172.18.0.3:9376"]
    (none,) = upstreams(result.services[0], BackendIndex({}, bridge.slices, routed=()))
    assert none.problem == Problem(
        Reason.UNREACHABLE,
        "demo/shop/web port 8080/TCP: it has no nodePort, and this host has no route to its 2 IPv4 endpoints, such as "
        "10.244.1.7:9376; let local-lb:podRoutes host make the route, or give the port a nodePort",
    )


def managed(slice_: JsonObject, by: str = "endpointslice-controller.k8s.io") -> JsonObject:
    """Make the slice one that a controller writes."""
    labels = {**slice_["metadata"]["labels"], "endpointslice.kubernetes.io/managed-by": by}
    return {**slice_, "metadata": {**slice_["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"name": ""}, [{"name": "w", "port": 80, "targetPort": 8080}]),
        ({"name": "w"}, [{"name": "http", "port": 80, "targetPort": 8080}]),
        ({"name": "w"}, [{"port": 8080}]),
        ({"name": ""}, [{"name": "w", "port": 80, "targetPort": 8080}, {"name": "x", "port": 81, "targetPort": 9090}]),
    ],
)
def test_a_port_that_gets_another_name_keeps_its_backends(before: JsonObject, after: list[JsonObject]) -> None:
    """Until the slices have the name as well: the pods are at the same number. Other ports have none yet."""
    ports = [{**port, "nodePort": 30000 + number} for number, port in enumerate(after)]
    slice_ = managed(endpoints(endpoint(), ports=[{**before, "port": 8080}]))
    assert [bool(each) for each in backends(service(ports=ports), A, slice_)] == [True, False][: len(after)]


@pytest.mark.parametrize(
    ("before", "after", "retained"),
    [
        ([""], ["w"], [True]),
        (["w"], ["http"], [True]),
        (["w"], [""], [True]),
        (["w", "x"], ["http", "x"], [True, True]),
        (["w", "x"], ["http", "metrics"], [False, False]),
        (["w"], ["w", "x"], [True, False]),
        (["w"], ["http", "x"], [False, False]),
        (["w", "x"], ["http"], [False]),
    ],
)
def test_a_port_with_a_named_target_keeps_its_backends_if_its_name_alone_changes(
    before: list[str], after: list[str], retained: list[bool]
) -> None:
    """Until the slices have the name as well. A port that is added, or one of several, could be any of them."""
    ports = [
        {"name": name, "port": 80 + n, "targetPort": f"t{n}", "nodePort": 30080 + n} for n, name in enumerate(after)
    ]
    slices = managed(endpoints(endpoint(), ports=[{"name": name, "port": 8080 + n} for n, name in enumerate(before)]))
    assert [bool(each) for each in backends(service(ports=ports), A, slices)] == retained
    assert not any(backends(service(ports=ports[:1]), A, managed(slices, "mine"))) or before[0] == after[0]


def test_ports_of_slices_match_by_name_alone_once_one_has_it_or_where_no_controller_follows() -> None:
    """As kube-proxy has it: the number is one of the pods', or the user's mistake."""
    one = service(ports=[{"name": "w", "port": 80, "targetPort": 8080, "nodePort": 30080}])
    older = endpoints(endpoint(), name="older", ports=[{"name": "", "port": 8080}])
    newer = managed(endpoints(endpoint(ready=False), name="newer", ports=[{"name": "w", "port": 8080}]))
    assert [bool(each) for each in backends(one, A, managed(older))] == [True]
    for slices in ([managed(older), newer], [older], [managed(older, "mine")]):
        assert backends(one, A, *slices) == [[]]


NO_NODE = "the cluster has no Node that may be a backend; add one, or look at deletions, taints and labels of Nodes"


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([service()], NO_NODE),
        ([service(), node(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], NO_NODE),
        ([service(ipFamilies=["IPv6"]), node("x"), node("y")],
         "none of 2 Nodes has an IPv6 InternalIP; give one or leave IPv6 out"),
        ([service(), A, endpoints()], "it has no IPv4 endpoint; look at its pods and selector"),
        ([service(), A, endpoints(endpoint(ready=False))],
         "none of its 1 IPv4 endpoint is ready; look at its pods and selector"),
        ([service(), A, endpoints(endpoint("fd00::7"), family="IPv6")],
         "it has no IPv4 endpoint; look at its pods and selector"),
        ([service(), A, endpoints(endpoint(), ports=[{"name": "x", "port": 1}])],
         "no EndpointSlice has a TCP port without a name; look at its targetPort"),
        ([service(ports=[{"name": "w", "port": 8080, "nodePort": 1}]), A, endpoints(endpoint())],
         'no EndpointSlice has a TCP port named "w"; look at its targetPort'),
        ([service(**NO_NODE_PORT), A],
         ("it has no nodePort and no EndpointSlice with IP addresses is known (addressType FQDN isn't served); "
         "give it a nodePort or the Service its EndpointSlices")),
        ([service(**LOCAL), A, endpoints(endpoint(node_name="b"), endpoint("10.0.0.8", None))],
         ("externalTrafficPolicy is Local and none of its 2 ready endpoints is on a Node that may be a backend; "
         "use Cluster, or let its pods run on such a Node")),
        ([service(), A, endpoints({"addresses": ["10.0.0.7"], "conditions": {"ready": False, "terminating": True}})],
         "none of its 1 IPv4 endpoint is ready; look at its pods and selector"),
    ],
)  # fmt: skip
def test_a_port_without_backends_says_why(objects: list[JsonObject], why: str) -> None:
    """In one sentence with a remedy: the listener is left out, the address stays."""
    assert why_none(*objects) == why


MIX = [
    service(ports=[{"name": "", "port": 8080}, {"name": "n", "port": 81, "nodePort": 30081}], **DUAL),
    A,
    B,
    *(endpoints(endpoint(f"10.0.1.{n}"), endpoint(f"10.0.1.{n + 1}"), name=f"e{n}") for n in range(4)),
    endpoints(endpoint("fd00::7"), name="six", family="IPv6", ports=[{"name": "n", "port": 9}]),
]


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_objects_doesnt_matter(shuffler: random.Random) -> None:
    """Backends come sorted and each once, so that equal clusters give equal bytes for Envoy."""
    shuffled = list(MIX)
    shuffler.shuffle(shuffled)
    assert found(*shuffled) == found(*MIX)
