"""A Kubernetes object becomes a Service by the API's defaults, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from locallb.kubernetes.object_parsing import parse_objects
from locallb.kubernetes.service_parsing import malformed, read_service
from locallb.model.identities import Family, ObjectKey, Protocol
from locallb.model.objects import (
    BackendChoice,
    FamilyPolicy,
    IngressEntry,
    ProxyProtocol,
    Service,
    ServicePort,
    TrafficPolicy,
)
from locallb.model.reasons import Reason
from tests.support.objects import DEMO, JsonObject, parsed, service

ANNOTATION = "local-lb.dev/addresses"
RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
FIELD = f'metadata.annotations["{ANNOTATION}"]'


def only(thing: JsonObject) -> Service:
    result = parsed(thing)
    assert not result.malformed
    assert not result.notices
    (service,) = result.services
    return service


def annotated(name: str, value: object, **spec: object) -> JsonObject:
    return service(meta={"annotations": {name: value}}, **spec)


def test_a_bare_service_gets_the_defaults_of_the_api() -> None:
    """TCP, Cluster, IPv4, SingleStack, no affinity, the namespace `default`."""
    read = only(service(namespace=None, ports=[{"port": 80}]))
    assert read == Service(ObjectKey(DEMO, "default", "web"), (ServicePort(80),))
    assert read.ports[0].protocol is Protocol.TCP
    assert read.traffic_policy is TrafficPolicy.CLUSTER
    assert read.families == (Family.IPV4,)


def test_an_app_protocol_that_is_no_text_refuses_nothing() -> None:
    """Only links are made by it."""
    assert only(service(ports=[{"port": 80, "appProtocol": ["http"]}])).ports == (ServicePort(80),)


def test_every_field_that_matters_is_read() -> None:
    """As `kubectl get -o json` writes them."""
    thing = service(
        meta={
            "uid": "6c1d", "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-03T03:04:05Z",
            "labels": {"app": "web"}, "annotations": {"note": ""},
        },
        ports=[
            {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080, "targetPort": "web", "appProtocol": "x"},
            {"name": "dns", "port": 80, "protocol": "UDP", "nodePort": 30081, "targetPort": 53},
            {"name": "sig", "port": 81, "protocol": "SCTP", "targetPort": 0},
        ],
        sessionAffinity="ClientIP", externalTrafficPolicy="Local", healthCheckNodePort=32000,
        loadBalancerClass="example.com/lb", loadBalancerIP="127.77.0.5", ipFamilyPolicy="RequireDualStack",
        ipFamilies=["IPv6", "IPv4"], loadBalancerSourceRanges=["fd00::/8", "10.1.2.3/8"],
    )  # fmt: skip
    thing["status"] = {"loadBalancer": {"ingress": [{"ip": "127.77.0.5", "ipMode": "Proxy"}]}}
    assert only(thing) == Service(
        key=ObjectKey(DEMO, "shop", "web"),
        ports=(
            ServicePort(80, Protocol.TCP, "http", 30080, "web", app_protocol="x"),
            ServicePort(80, Protocol.UDP, "dns", 30081, 53),
            ServicePort(81, Protocol.SCTP, "sig"),
        ),
        uid="6c1d",  # type: ignore[arg-type]  # a NewType is noise here
        created="2026-01-02T03:04:05Z",
        families=(Family.IPV6, Family.IPV4),
        family_policy=FamilyPolicy.REQUIRE_DUAL,
        requested=(ip_address("127.77.0.5"),),
        source_ranges=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        client_ip_affinity=True,
        traffic_policy=TrafficPolicy.LOCAL,
        health_check_node_port=32000,
        load_balancer_class="example.com/lb",
        deleting=True,
        labels={"app": "web"},
        annotations={"note": ""},
        ingress=(IngressEntry(ip_address("127.77.0.5")),),
    )


@pytest.mark.parametrize(
    ("spec", "families", "policy"),
    [
        ({}, "4", "SingleStack"),
        ({"ipFamilies": None, "ipFamilyPolicy": ""}, "4", "SingleStack"),
        ({"ipFamilies": ["IPv6"]}, "6", "SingleStack"),
        ({"clusterIPs": ["fd00::1"]}, "6", "SingleStack"),
        ({"clusterIP": "fd00::1"}, "6", "SingleStack"),
        ({"clusterIP": "", "clusterIPs": ["rubbish", None, "10.0.0.1"]}, "4", "SingleStack"),
        ({"clusterIPs": ["fd00::1", "10.0.0.1"]}, "64", "RequireDualStack"),
        ({"ipFamilies": ["IPv4", "IPv6"]}, "46", "RequireDualStack"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "46", "RequireDualStack"),
        ({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}, "64", "RequireDualStack"),
        ({"ipFamilyPolicy": "PreferDualStack"}, "46", "PreferDualStack"),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}, "64", "PreferDualStack"),
        ({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"], "clusterIPs": ["10.0.0.1"]}, "4",
         "PreferDualStack"),
    ],
)  # fmt: skip
def test_families_are_completed_as_an_api_server_would(spec: JsonObject, families: str, policy: str) -> None:
    """Named ones, else those of the cluster IPs, else IPv4; a cluster that gave one address has one family."""
    read = only(service(**spec))
    assert "".join(family[-1] for family in read.families) == families
    assert read.family_policy == policy


@pytest.mark.parametrize(
    ("thing", "addresses"),
    [
        (service(loadBalancerIP=""), []),
        (service(loadBalancerIP="127.77.0.5"), ["127.77.0.5"]),
        (annotated(ANNOTATION, "127.77.0.5"), ["127.77.0.5"]),
        (annotated(ANNOTATION, " fd00::5 , 127.77.0.5, "), ["127.77.0.5", "fd00::5"]),
        (annotated(ANNOTATION, ""), []),
        (annotated(ANNOTATION, "fd00:0::5", loadBalancerIP="127.77.0.5"), ["127.77.0.5", "fd00::5"]),
        (annotated(ANNOTATION, "127.77.0.5,127.77.0.5", loadBalancerIP="127.77.0.5"), ["127.77.0.5"]),
    ],
)
def test_addresses_can_be_asked_for_one_a_family(thing: JsonObject, addresses: list[str]) -> None:
    """By the field, by the annotation, or by both where they agree."""
    assert [str(address) for address in only(thing).requested] == addresses


@pytest.mark.parametrize(
    ("thing", "networks"),
    [
        (service(loadBalancerSourceRanges=[]), []),
        (service(loadBalancerSourceRanges=["10.9.9.9/8", " 10.0.0.0/8"]), ["10.0.0.0/8"]),
        (annotated(RANGES, "fd00::1/64, 127.0.0.1/32"), ["127.0.0.1/32", "fd00::/64"]),
        (annotated(RANGES, " "), []),
        (annotated(RANGES, "10.0.0.0/8", loadBalancerSourceRanges=["127.0.0.0/8"]), ["127.0.0.0/8"]),
    ],
)
def test_source_ranges_come_from_the_field_or_else_the_annotation(thing: JsonObject, networks: list[str]) -> None:
    """With bits beyond the prefix cut off, each once and sorted."""
    assert [str(network) for network in only(thing).source_ranges] == networks


def test_invalid_status_is_ignored() -> None:
    """Any user may have written it."""
    for rubbish in ("x", {"loadBalancer": 1}, {"loadBalancer": {"ingress": [None, {"ip": 4}, {"hostname": "h"}, 7]}}):
        assert only({**service(), "status": rubbish}).ingress == ()


PORT = {"port": 80}
BAD: list[tuple[JsonObject, str]] = [
    (service(ports=[]), "spec.ports is empty; a LoadBalancer needs at least one port"),
    (service(ports=None), "spec.ports is empty; a LoadBalancer needs at least one port"),
    (service(ports="80"), 'spec.ports is "80"; give a list'),
    (service(ports=[80]), "spec.ports[0] is 80; give an object"),
    (service(ports=[{}]), "spec.ports[0].port is missing; use a number from 1 to 65535"),
    (service(ports=[PORT, {"port": 0}]), "spec.ports[1].port is 0; use a number from 1 to 65535"),
    (service(ports=[{"port": 65536}]), "spec.ports[0].port is 65536; use a number from 1 to 65535"),
    (service(ports=[{"port": "80"}]), 'spec.ports[0].port is "80"; use a number from 1 to 65535'),
    (service(ports=[{"port": True}]), "spec.ports[0].port is true; use a number from 1 to 65535"),
    (service(ports=[{"port": 80.0}]), "spec.ports[0].port is 80.0; use a number from 1 to 65535"),
    (service(ports=[{"port": 80, "nodePort": -1}]), "spec.ports[0].nodePort is -1; use a number from 0 to 65535"),
    (service(ports=[{"port": 80, "targetPort": []}]),
     "spec.ports[0].targetPort is a list of 0 items; use a number from 0 to 65535"),
    (service(ports=[{"port": 80, "targetPort": "Web Port"}]),
     'spec.ports[0].targetPort is "Web Port"; use at most 63 lower-case letters, digits and inner hyphens'),
    (service(ports=[{"port": 80, "protocol": "tcp"}]), 'spec.ports[0].protocol is "tcp"; use TCP or UDP or SCTP'),
    (service(ports=[{"port": 80, "protocol": 6}]),
     "spec.ports[0].protocol is 6; give a text, in quotes if it looks like something else"),
    (service(ports=[PORT, PORT]), "spec.ports[1] repeats port 80/TCP of spec.ports[0]; give it another port"),
    (service(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]),
     'spec.ports[1] repeats the name "a" of spec.ports[0]; give it another name'),
    (service(ipFamilies=["IPv5"]), 'spec.ipFamilies[0] is "IPv5"; use IPv4 or IPv6'),
    (service(ipFamilies="IPv4"), 'spec.ipFamilies is "IPv4"; give a list'),
    (service(ipFamilies=["IPv4", "IPv4"]), "spec.ipFamilies has IPv4 and IPv4; name each family once"),
    (service(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="SingleStack"),
     "spec.ipFamilyPolicy is SingleStack with two families; use PreferDualStack or name one family"),
    (service(ipFamilyPolicy="DualStack"),
     'spec.ipFamilyPolicy is "DualStack"; use SingleStack or PreferDualStack or RequireDualStack'),
    (service(externalTrafficPolicy="local"), 'spec.externalTrafficPolicy is "local"; use Cluster or Local'),
    (service(sessionAffinity="Cookie"), 'spec.sessionAffinity is "Cookie"; use None or ClientIP'),
    (service(loadBalancerIP="127.77.0.256"), 'spec.loadBalancerIP is "127.77.0.256"; give an IPv4 or IPv6 address'),
    (service(loadBalancerIP=5),
     "spec.loadBalancerIP is 5; give a text, in quotes if it looks like something else"),
    (service(loadBalancerIP="fe80::1%eth0"), 'spec.loadBalancerIP is "fe80::1%eth0"; give an IPv4 or IPv6 address'),
    (annotated(ANNOTATION, "127.77.0.5,web"), f'{FIELD} is "web"; give an IPv4 or IPv6 address'),
    (annotated(ANNOTATION, "127.77.0.5,127.77.0.6"),
     f"{FIELD} asks for 127.77.0.5 and 127.77.0.6; ask for one IPv4 address"),
    (annotated(ANNOTATION, "127.77.0.6", loadBalancerIP="127.77.0.5"),
     f"{FIELD} asks for 127.77.0.6, but spec.loadBalancerIP asks for 127.77.0.5; ask for one IPv4 address"),
    (annotated(ANNOTATION, 5), f"{FIELD} is 5; put it in quotes"),
    (service(meta={"labels": {1: "x"}}), "metadata.labels has the key 1; put it in quotes"),
    (service(meta={"labels": ["a"]}), "metadata.labels is a list of 1 item; give an object"),
    (service(loadBalancerSourceRanges=["10.0.0.1"]),
     'spec.loadBalancerSourceRanges[0] has "10.0.0.1"; give a CIDR such as 10.0.0.0/8 or fd00::/8'),
    (service(loadBalancerSourceRanges=["10.0.0.0/33"]),
     'spec.loadBalancerSourceRanges[0] has "10.0.0.0/33"; give a CIDR such as 10.0.0.0/8 or fd00::/8'),
    (service(loadBalancerSourceRanges=["10.0.0.0/255.0.0.0"]),
     'spec.loadBalancerSourceRanges[0] has "10.0.0.0/255.0.0.0"; give a CIDR such as 10.0.0.0/8 or fd00::/8'),
    (annotated(RANGES, "10.0.0.0/8,x"),
     f'metadata.annotations["{RANGES}"] has "x"; give a CIDR such as 10.0.0.0/8 or fd00::/8'),
    (annotated("local-lb.dev/backends", "Pods"),
     'metadata.annotations["local-lb.dev/backends"] is "Pods"; use auto, pods or nodePorts, or remove the annotation'),
    (annotated("local-lb.dev/proxy-protocol", "2"),
     'metadata.annotations["local-lb.dev/proxy-protocol"] is "2"; use v1 or v2, or remove the annotation'),
    (annotated("local-lb.dev/proxy-protocol", ""),
     'metadata.annotations["local-lb.dev/proxy-protocol"] is ""; use v1 or v2, or remove the annotation'),
]  # fmt: skip


@pytest.mark.parametrize(("thing", "sentence"), BAD)
def test_a_service_that_makes_no_sense_is_reported_in_one_sentence(thing: JsonObject, sentence: str) -> None:
    """With the Service, the value and the remedy; others are parsed all the same."""
    result = parsed(thing, service("good"))
    (bad,) = result.malformed
    assert bad.key == ObjectKey(DEMO, "shop", "web")
    assert bad.problem.reason is Reason.MALFORMED
    assert bad.problem.message == f"demo/shop/web: {sentence}"
    assert [service.key.name for service in result.services] == ["good"]


def test_annotations_choose_the_discovery_of_backends_and_the_proxy_protocol() -> None:
    """Spaces around a word don't matter."""
    assert only(annotated("local-lb.dev/backends", " nodePorts ")).backends is BackendChoice.NODE_PORTS
    assert only(annotated("local-lb.dev/proxy-protocol", "v1")).proxy_protocol is ProxyProtocol.V1
    assert (only(service()).backends, only(service()).proxy_protocol) == (None, None)


LABELS = "use at most 63 lower-case letters, digits and inner hyphens"
NAMES: list[tuple[JsonObject, str]] = [
    (service(None), "demo/shop/(no name): metadata.name is missing; give the Service a name"),
    (service(""), "demo/shop/(no name): metadata.name is missing; give the Service a name"),
    (service(7), "demo/shop/(no name): metadata.name is 7; give a text, in quotes if it looks like something else"),
    (service("Web"), f'demo/shop/Web: metadata.name is "Web"; {LABELS}'),
    (service("web\n"), rf'demo/shop/web\n: metadata.name is "web\n"; {LABELS}'),
    (service("../../etc"), f'demo/shop/../../etc: metadata.name is "../../etc"; {LABELS}'),
    (service("a" * 64),
     f'demo/shop/{"a" * 60}… (64 characters): metadata.name is "{"a" * 60}… (64 characters)"; {LABELS}'),
    (service(namespace="shop.eu"), f'demo/shop.eu/web: metadata.namespace is "shop.eu"; {LABELS}'),
    (service(namespace=["x"]), ("demo/default/web: metadata.namespace is a list of 1 item; "
     "give a text, in quotes if it looks like something else")),
]  # fmt: skip


@pytest.mark.parametrize(("thing", "sentence"), NAMES)
def test_a_name_must_be_a_dns_label(thing: JsonObject, sentence: str) -> None:
    """It becomes part of the names of resources; the sentence shows as much of it as is printable."""
    (bad,) = parsed(thing).malformed
    assert bad.problem.message == sentence
    assert str(bad.key).isprintable()


@pytest.mark.parametrize("metadata", [None, "web", ["web"], 5])
def test_a_service_without_metadata_is_reported_as_well(metadata: object) -> None:
    """It has no name, but it is there."""
    (bad,) = parsed({**service(), "metadata": metadata}).malformed
    assert bad.key == ObjectKey(DEMO, "default", "(no name)")


@pytest.mark.parametrize("name", ["a", "web-2", "2web", "a" * 63])
def test_names_of_both_rfcs_are_good(name: str) -> None:
    """Kubernetes 1.34 relaxed Service names from RFC 1035 to RFC 1123."""
    assert only(service(name)).key.name == name


@pytest.mark.parametrize("spec", [None, True, 7, "x", [], {}, [None], {"a": {}}, {"type": "LoadBalancer"}])
def test_a_service_is_read_by_itself_as_among_others(spec: object) -> None:
    """Never an exception, whatever its spec is; a refusal has the same key."""
    document: Mapping[Any, Any] = {**service(), "spec": spec}
    read, among = read_service(DEMO, document), parse_objects(DEMO, [document])
    assert [*among.services, *among.malformed] == [each for each in (read.wanted, read.malformed) if each]
    assert malformed(DEMO, document, "why").key == ObjectKey(DEMO, "shop", "web")
