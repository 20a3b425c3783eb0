"""A mix of Kubernetes objects is sorted into Services, Nodes and slices; nothing makes the parser raise."""

from __future__ import annotations

import random
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.kubernetes.object_parsing import Parsed, ParseMemory, parse_objects
from locallb.model.identities import Family, ObjectKey, Protocol
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, Node
from tests.support.objects import DEMO, JsonObject, endpoint, endpoints, node, parsed, service

OTHERS: list[Any] = [
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "b"}},
    {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "k"}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": None},
    {"replicaCount": 1},
    {"kind": ["Service"]},
    service("internal", type="ClusterIP"),
    service("outside", type="NodePort"),
    service("typeless", type=None),
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headless"}, "spec": {"clusterIP": "None"}},
    {"apiVersion": "v1", "kind": "Service"},
    None,
    "text",
    17,
    [service("in-a-bare-sequence")],
]


def test_other_kinds_and_types_are_ignored() -> None:
    """They are neither kept nor told about; Services of other types are set aside, for stacks that select them."""
    assert replace(parsed(*OTHERS), internal=()) == Parsed()


def test_services_nodes_and_slices_are_kept() -> None:
    """Each as its own type."""
    result = parsed(service(), node("a", "10.0.0.1", "fd00::1"), endpoints(endpoint(ready=None)))
    assert [service.key.name for service in result.services] == ["web"]
    assert result.nodes == (Node(DEMO, "a", (ip_address("10.0.0.1"), ip_address("fd00::1")), hostname="a"),)  # type: ignore[arg-type]  # a NewType is noise here
    assert result.slices == (
        EndpointSlice(
            ObjectKey(DEMO, "shop", "web"),
            Family.IPV4,
            (EndpointPort(9376, Protocol.TCP),),
            (Endpoint((ip_address("10.0.0.7"),), ready=True, node="worker"),),  # type: ignore[arg-type]  # likewise
        ),
    )
    assert result.notices == ()


def test_a_nodes_taints_labels_and_deletion_are_read() -> None:
    """They decide whether it may be a backend."""
    meta = {"labels": {"a": "b"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    (read,) = parsed(node(meta=meta, taints=[{"key": "k", "effect": "NoSchedule"}])).nodes
    assert (read.labels, read.taints, read.deleting) == ({"a": "b"}, ("k",), True)


@pytest.mark.parametrize(("ready", "counts"), [(True, True), (None, True), (False, False)])
def test_an_unknown_readiness_counts_as_ready(ready: bool | None, counts: bool) -> None:  # noqa: FBT001 - a table
    """As the API demands of consumers."""
    (endpoint_slice,) = parsed(endpoints(endpoint(ready=ready))).slices
    assert endpoint_slice.endpoints[0].ready is counts


def test_an_endpoint_drains_while_it_is_terminating_and_serves() -> None:
    """Terminating alone isn't enough: it may have ended already."""
    drains = []
    for conditions in ({"serving": True, "terminating": True}, {"terminating": True}, {"serving": True}):
        (endpoint_slice,) = parsed(endpoints({"addresses": ["10.0.0.7"], "conditions": conditions})).slices
        drains.append(endpoint_slice.endpoints[0].draining)
    assert drains == [True, False, False]


def test_external_ips_of_services_of_any_type_are_kept() -> None:
    """Also of Services that are nobody's load balancer; what isn't an address is left out."""
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"externalIPs": ["10.0.0.2"]}}
    result = parsed(service(externalIPs=["fd00::2", "nonsense", 7]), other)
    assert result.external_ips == {ip_address("10.0.0.2"), ip_address("fd00::2")}
    assert len(result.services) == 1


def test_slices_without_service_or_with_names_are_ignored() -> None:
    """Without the label, or with the address type FQDN, kube-proxy passes them over as well."""
    assert parsed(endpoints(service=""), endpoints(family="FQDN")) == Parsed()


def listed(kind: str, version: str, *items: object) -> JsonObject:
    """Make a list as the API does."""
    return {"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": ""}, "items": list(items)}


def test_lists_of_every_kind_and_depth_are_opened() -> None:
    """`kubectl get` prints v1 List, the API itself typed ones whose items may lack their kind."""
    bare = {key: value for key, value in service("c").items() if key not in {"kind", "apiVersion"}}
    result = parsed(
        listed("List", "v1", service("a"), listed("List", "v1", service("b"), *OTHERS)),
        listed("ServiceList", "v1", bare),
        listed("NodeList", "v1", node()),
        listed("EndpointSliceList", "discovery.k8s.io/v1", endpoints()),
        listed("SecretList", "v1", service("hidden")),
        {"apiVersion": "v1", "kind": "List", "items": None},
    )
    assert [service.key.name for service in result.services] == ["a", "b", "c"]
    assert (len(result.nodes), len(result.slices), result.notices) == (1, 1, ())


def test_a_list_that_contains_itself_ends() -> None:
    """An API never makes one; a parser must not hang on it."""
    loop: dict[str, Any] = {"apiVersion": "v1", "kind": "List"}
    loop["items"] = [loop, service()]
    result = parsed(loop)
    assert result.notices == ("demo: a List is left out: it has lists nested too deeply; give a plain list of objects",)
    assert len(result.services) == 1


NOTICES: list[tuple[JsonObject, str]] = [
    (listed("List", "v1") | {"items": "x"},
     'a List is left out: it has items that are "x"; give a plain list of objects'),
    ({**service(), "apiVersion": None}, "Service shop/web is left out: apiVersion is missing; use v1"),
    ({**service(), "apiVersion": "v2"}, 'Service shop/web is left out: apiVersion is "v2"; use v1'),
    ({**endpoints(), "apiVersion": "discovery.k8s.io/v1beta1"},
     'EndpointSlice shop/web-abc is left out: apiVersion is "discovery.k8s.io/v1beta1"; use discovery.k8s.io/v1'),
    (service(type="Loadbalancer"),
     'Service shop/web is left out: spec.type is "Loadbalancer"; write LoadBalancer to give it an address'),
    ({**service(), "spec": "LoadBalancer"},
     'Service shop/web is left out: spec is "LoadBalancer"; give an object such as {type: LoadBalancer}'),
    (node("n", "10.0.0"), 'Node n is left out: status.addresses[0].address is "10.0.0"; give an IPv4 or IPv6 address'),
    (node(meta={"labels": {"x": True}}), 'Node worker is left out: metadata.labels["x"] is true; put it in quotes'),
    (node(""), "Node (no name) is left out: metadata.name is missing; give the Node a name"),
    (endpoints({"addresses": []}),
     "EndpointSlice shop/web-abc is left out: endpoints[0].addresses is empty; give the endpoint an address"),
    (endpoints(endpoint("fd00::1")),
     ("EndpointSlice shop/web-abc is left out: "
     "endpoints[0].addresses[0] is fd00::1 in a slice of IPv4; give an IPv4 address")),
    (endpoints({"addresses": ["10.0.0.1"], "conditions": {"ready": "yes"}}),
     'EndpointSlice shop/web-abc is left out: endpoints[0].conditions.ready is "yes"; write true or false'),
    (endpoints(ports=[{"port": 99999}]),
     "EndpointSlice shop/web-abc is left out: ports[0].port is 99999; use a number from 0 to 65535"),
]  # fmt: skip


@pytest.mark.parametrize(("thing", "sentence"), NOTICES)
def test_skipped_objects_that_may_matter_are_reported(thing: JsonObject, sentence: str) -> None:
    """In a notice, because there is no Service that could carry it."""
    result = parsed(thing)
    assert result.notices == (f"demo: {sentence}",)
    assert (result.services, result.malformed, result.nodes, result.slices) == ((), (), (), ())


def test_first_of_two_services_of_one_name_counts() -> None:
    """The second is told, under the same name."""
    result = parsed(service(ports=[{"port": 80}]), service(ports=[{"port": 81}]), service(namespace="other"))
    assert [str(service.ports[0]) for service in result.services if service.key.namespace == "shop"] == ["80/TCP"]
    (bad,) = result.malformed
    assert bad.problem.message == (
        "demo/shop/web: this source has another Service of that name, which counts; remove or rename one"
    )


def test_first_of_two_nodes_or_slices_of_one_name_counts() -> None:
    """The second is told in a notice."""
    result = parsed(node("n", "10.0.0.1"), node("n", "10.0.0.2"), endpoints(endpoint()), endpoints())
    assert [str(node.addresses[0]) for node in result.nodes] == ["10.0.0.1"]
    assert [len(endpoint_slice.endpoints) for endpoint_slice in result.slices] == [1]
    assert result.notices == (
        "demo: EndpointSlice shop/web-abc is left out: it is there twice and the first counts; remove one",
        "demo: Node n is left out: it is there twice and the first counts; remove one",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations", "spec.type",
    "spec.ports", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.clusterIPs", "spec.loadBalancerSourceRanges",
    "spec.loadBalancerIP", "spec.taints", "status.addresses", "status.loadBalancer", "metadata", "spec", "status",
    "endpoints", "ports", "addressType", "apiVersion", "items",
]  # fmt: skip


def spoiled(thing: JsonObject, path: str, value: object) -> JsonObject:
    """Put `value` in place of one field."""
    head, _, rest = path.partition(".")
    inner = thing.get(head)
    return {**thing, head: spoiled(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


@given(st.lists(JSON, max_size=4))
def test_no_data_whatever_makes_the_parser_raise(data: list[object]) -> None:
    """It comes from files that anybody may have written."""
    parse_objects(DEMO, data)


@given(
    st.sampled_from([service(), node(), endpoints(endpoint()), listed("List", "v1", service())]),
    st.lists(st.tuples(st.sampled_from(FIELDS), JSON), min_size=1, max_size=3),
)
def test_no_field_whatever_makes_the_parser_raise(thing: JsonObject, spoilings: list[tuple[str, object]]) -> None:
    """A spoiled object is parsed or told, and every sentence is one printable line."""
    for path, value in spoilings:
        thing = spoiled(thing, path, value)
    result = parsed(thing)
    for sentence in (*result.notices, *(malformed.problem.message for malformed in result.malformed)):
        assert sentence.isprintable()
        assert len(sentence) < 2500


MIX = [
    *(service(f"s{number}") for number in range(4)),
    service("bad", ports=[]),
    node("a", "10.0.0.1"),
    node("b", "10.0.0.2"),
    node("c", "nowhere"),
    endpoints(endpoint(), name="e1", service="s1"),
    endpoints(endpoint(), name="e2", service="s2"),
]


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_objects_doesnt_matter(shuffler: random.Random) -> None:
    """Equal inputs give equal results, as long as every name is there once."""
    shuffled = list(MIX)
    shuffler.shuffle(shuffled)
    assert parsed(*shuffled) == parsed(*MIX)


def test_unknown_local_lb_annotation_is_reported() -> None:
    """Misspelt, it would have no effect without a word; the Service is served all the same."""
    stated = parsed(service(meta={"annotations": {"local-lb.dev/address": "127.77.0.5", "other.dev/address": "x"}}))
    (notice,) = stated.notices
    assert notice.startswith("demo/shop/web: the annotation local-lb.dev/address is unknown; use local-lb.dev/")
    assert len(stated.services) == 1


SAME_AGAIN = [
    service(),
    service(spec={"externalTrafficPolicy": "Local"}),
    service(spec={"externalIPs": ["10.0.0.9"]}),
    service("web"),
    service("broken", ports="many"),
    node("a"),
    node("a"),
    endpoints(endpoint()),
    listed("Service", "v1", service("in-a-list"), service("web")),
    {"apiVersion": "v2", "kind": "Node", "metadata": {"name": "a"}},
    *OTHERS,
]


@given(st.lists(st.lists(st.integers(0, len(SAME_AGAIN) - 1), max_size=6), max_size=6))
@example([[0, 5], [5, 5]])
def test_the_very_same_objects_are_understood_as_before(history: list[list[int]]) -> None:
    """Whatever came and went between, and also where one object stands there twice."""
    existing = ParseMemory()
    for numbers in history:
        objects = [SAME_AGAIN[number] for number in numbers]
        assert parse_objects(DEMO, objects, existing) == parse_objects(DEMO, objects)
