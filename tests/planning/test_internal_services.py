"""Services of other types than LoadBalancer: served where the stack selects them, without a word to their cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.model.identities import ContextName, Home
from locallb.model.objects import ServiceType
from locallb.model.snapshot import Access
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.refused import EnvoyRefusal, RefusedObjects, content_of
from locallb.planning.service_rows import rows
from locallb.sources.snapshot import with_objects
from tests.support.objects import DEMO, endpoint, endpoints, node, parsed, service

HOME = Home("p", "s", "/p")
ACCESS = {DEMO: Access("/kubeconfig", ContextName("demo"))}
LOCAL: dict[str, Any] = {"zones": [{"zone": "cluster.local", "embedded": "127.0.0.77:5300"}], "template": False}


def internal(name: str, kind: str | None = "ClusterIP", **spec: object) -> dict[str, Any]:
    """Make a Service of another type, without a NodePort."""
    given: dict[str, Any] = {"type": kind, "ports": [{"port": 8080}], **spec}
    return service(name, **given)


def plan_of(*objects: object, **config: object) -> Plan:
    """Plan these objects of a running cluster."""
    pools = [{"name": "p", "addresses": ["127.77.0.0/27"]}]
    settings = parse_settings({"sources": [{"kubernetes": {"name": "demo"}}], "pools": pools, **config})
    return make_plan(replace(with_objects(HOME, [parsed(*objects)], settings.services), access=ACCESS), settings)


def served(plan: Plan) -> list[str]:
    """Return the names of what gets addresses."""
    return sorted(placement.key.name for placement in plan.placements)


OBJECTS = (service("lb"), internal("a"), internal("b", None), internal("np", "NodePort"), node())
SLICE = endpoints(endpoint(), service="a")


@pytest.mark.parametrize(
    ("services", "names"),
    [
        (None, ["lb"]),
        ({}, ["a", "b", "lb"]),
        ({"types": ["NodePort"]}, ["lb", "np"]),
        ({"types": ["ClusterIP", "NodePort"]}, ["a", "b", "lb", "np"]),
        ({"types": ["ClusterIP"], "namespaces": ["other"]}, ["lb"]),
        ({"types": ["ClusterIP"], "selector": {"x": "y"}}, ["lb"]),
    ],
)
def test_a_stack_serves_the_types_that_it_selects(services: object, names: list[str]) -> None:
    """None by default; a Service without a type is of type ClusterIP, as the API says."""
    plan = plan_of(*OBJECTS, SLICE, **({} if services is None else {"services": services}))
    assert served(plan) == names


def test_nothing_is_written_about_them() -> None:
    """Neither of one that is served nor of one that is refused; those of type LoadBalancer are written to as ever."""
    wish = {"annotations": {"local-lb.dev/addresses": "10.9.9.9"}}
    plan = plan_of(service("lb"), internal("a"), internal("b", meta=wish), SLICE, node(), services={})
    access = {placement.key.name: placement.access for placement in plan.placements}
    access |= {rejection.key.name: rejection.access for rejection in plan.rejections}
    assert access == {"lb": ACCESS[DEMO], "a": None, "b": None}
    assert [rejection.key.name for rejection in plan.rejections] == ["b"]


def test_what_cannot_be_served_is_left_alone() -> None:
    """Without ports, with another type, or malformed: nobody requested it."""
    odd = internal("odd", ports=[{"port": 0}])
    plan = plan_of(internal("x", "ExternalName"), internal("y", ports=[]), odd, services={})
    assert (plan.placements, plan.rejections) == ((), ())


def test_a_headless_service_has_one_address() -> None:
    """For all its pods, as any other."""
    plan = plan_of(internal("a", clusterIP="None"), SLICE, node(), services={}, backends="pods")
    (placement,) = plan.placements
    assert len(placement.addresses) == 1
    assert [len(port.listeners) for port in placement.ports] == [1]


def test_names_of_the_cluster_are_given_in_its_zone() -> None:
    """To Services of every type, once the stack answers for that zone, and not otherwise."""
    plan = plan_of(*OBJECTS, SLICE, services={}, dns=LOCAL)
    names = {placement.key.name: [name.name for name in placement.names] for placement in plan.placements}
    assert names == {name: [f"{name}.shop.svc.cluster.local"] for name in ("a", "b", "lb")}
    elsewhere = {"zones": [{"zone": "local", "embedded": "127.0.0.77:5300"}], "template": False}
    plan = plan_of(*OBJECTS, services={}, dns=elsewhere)
    assert [placement.names for placement in plan.placements] == [(), (), ()]


def test_a_headless_service_of_both_families_has_an_address_of_those_that_pools_have() -> None:
    """The API lets each without a selector require both."""
    dual: dict[str, Any] = {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    plan = plan_of(internal("a", **dual), SLICE, node(), services={}, backends="pods")
    assert [len(placement.addresses) for placement in plan.placements] == [1]


def test_each_pod_with_a_hostname_of_a_headless_service_has_an_address() -> None:
    """With the Service's ports, its own endpoint alone, and its name in the cluster; a pod without one has none."""
    pods = [{**endpoint(f"10.1.0.{number}"), "hostname": f"web-{number}"} for number in (1, 2)]
    slice_ = endpoints(*pods, endpoint("10.1.0.3"), service="web")
    ports = [{"port": 80, "targetPort": 8080, "name": "http"}, {"port": 81, "targetPort": 8081, "name": "more"}]
    slice_["ports"] = [{"name": "http", "port": 8080}, {"name": "more", "port": 8081}]
    web = internal("web", clusterIP="None", ports=ports)
    plan = plan_of(web, slice_, node(), services={}, backends="pods", dns=LOCAL)
    upstreams = {
        each.proxy.name: {upstream.name: upstream for upstream in each.proxy.upstreams} for each in plan.proxies
    }
    backends = {
        placement.key.name: [list(port.backends(upstreams[placement.proxy])) for port in placement.ports]
        for placement in plan.placements
    }
    assert backends["web-1.web"] == [["10.1.0.1:8080"], ["10.1.0.1:8081"]]
    assert backends["web-2.web"] == [["10.1.0.2:8080"], ["10.1.0.2:8081"]]
    assert backends.keys() == {"web", "web-1.web", "web-2.web"}
    names = [name.name for placement in plan.placements for name in placement.names]
    assert names == [f"{name}.shop.svc.cluster.local" for name in ("web", "web-1.web", "web-2.web")]
    assert {placement.access for placement in plan.placements} == {None}
    assert served(plan_of(internal("web"), slice_, node(), services={}, backends="pods")) == ["web"]


def test_one_that_envoy_refuses_is_singled_out() -> None:
    """The others are served, and nothing is written about it either."""
    settings = parse_settings({"sources": [{"kubernetes": {"name": "demo"}}], "services": {}})
    objects = parsed(internal("a"), internal("b"), SLICE, node())
    snapshot = replace(with_objects(HOME, [objects], settings.services), access=ACCESS)
    (refused,) = (each for each in snapshot.services if each.key.name == "a")
    refusal = EnvoyRefusal(str(refused.key), content_of(refused), "no")
    plan = make_plan(RefusedObjects().of(snapshot, (refusal,)), settings)
    assert served(plan) == ["b"]
    assert [(each.key.name, each.access) for each in plan.rejections] == [("a", None)]


def test_short_names_are_those_that_pods_use() -> None:
    """`name.namespace` for all, and `name` for the chosen namespace, once the stack answers for names of a cluster."""
    plan = plan_of(*OBJECTS, SLICE, services={}, dns={**LOCAL, "shortNames": "shop"})
    names = {placement.key.name: [name.name for name in placement.names] for placement in plan.placements}
    assert names["a"] == ["a", "a.shop", "a.shop.svc.cluster.local"]
    plan = plan_of(*OBJECTS, SLICE, services={}, dns={**LOCAL, "shortNames": "other"})
    assert [name.name for name in plan.placements[0].names] == ["a.shop", "a.shop.svc.cluster.local"]
    zones = [{"zone": "test", "embedded": "127.0.0.77:5300"}]
    with pytest.raises(SettingsError, match="no embedded server has the names of a cluster"):
        plan_of(dns={"zones": zones, "shortNames": "shop"})


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(list(ServiceType)), min_size=1),
    st.sets(st.sampled_from(["ClusterIP", "NodePort"])),
)
def test_no_address_has_two_owners(types: dict[str, ServiceType], wanted: set[str]) -> None:
    """Whatever the types are; and what isn't selected changes nothing of the rest."""
    objects = [internal(name, kind.value) for name, kind in types.items()]
    plan = plan_of(*objects, services={"types": sorted(wanted)})
    addresses = [address for placement in plan.placements for address in placement.addresses]
    assert len(set(addresses)) == len(addresses)
    assert served(plan) == sorted(name for name, kind in types.items() if kind.value in {*wanted, "LoadBalancer"})
    selected = [one for one in objects if one["spec"]["type"] in {*wanted, "LoadBalancer"}]
    assert plan.placements == plan_of(*selected, services={"types": sorted(wanted)}).placements
    assert [row.key.name for row in rows(plan, {})] == served(plan)
