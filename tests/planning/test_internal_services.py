"""Services of other types than LoadBalancer: served where the stack selects them, without a word to their cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.model.identities import ContextName, Home
from locallb.model.objects import ServiceType
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.service_rows import rows
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
    read = parsed(*objects)
    return make_plan(
        Snapshot(HOME, read.services, read.malformed, read.nodes, read.slices, access=ACCESS, internal=read.internal),
        settings,
    )


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
