"""Services that another controller serves: left alone, unless something says that they are ours."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.desired import BALANCER, ResourceKey
from locallb.model.fields import JsonObject
from locallb.model.identities import ClusterName, ContextName, Home, Owner, Uid
from locallb.model.memory import AnyMemo
from locallb.model.reasons import Reason
from locallb.model.snapshot import Access, Claim, Snapshot
from locallb.outputs.output import OutputContext, published
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan

HOME = Home("local-lb", "dev", "/project")
CLUSTER = ClusterName("demo")
CLOUDS: JsonObject = {"ip": "203.0.113.7", "ipMode": "VIP"}
SERVING = {"type": "local-lb.dev/Serving", "status": "True", "reason": "Serves"}


def settings(**keys: object) -> Settings:
    return parse_settings({"sources": [{"kubernetes": {"name": "demo", "context": "demo"}}], **keys})


def service(
    *entries: JsonObject, conditions: tuple[JsonObject, ...] = (), name: str = "web", **spec: object
) -> JsonObject:
    """Write a Service with these entries in its status."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 8080, "nodePort": 30080}], **spec},
        "status": {"loadBalancer": {"ingress": list(entries)}, "conditions": list(conditions)},
    }


def snapshot(*documents: JsonObject, live: bool = True) -> Snapshot:
    """Return what a cluster with these Services is."""
    access = {CLUSTER: Access("/kubeconfig", ContextName("demo"))} if live else {}
    return Snapshot(HOME, services=parse_objects(CLUSTER, documents).services, access=access)


def reasons(plan: Plan) -> list[Reason]:
    return [rejection.problem.reason for rejection in plan.rejections]


@pytest.mark.parametrize("entry", [CLOUDS, {"hostname": "a1b2.elb.example.com"}, {"ip": "127.200.0.9"}])
def test_a_service_with_another_controllers_address_is_left_alone(entry: JsonObject) -> None:
    """By name or by address: it has no placement, and no output writes to it; the sentence has the remedy."""
    plan = make_plan(snapshot(service(entry)), settings())
    (rejection,) = plan.rejections
    assert (plan.placements, rejection.problem.reason) == ((), Reason.SERVED_BY_ANOTHER)
    assert not published(rejection, OutputContext(ResourceKey(BALANCER, str(rejection.key))))
    assert str(next(iter({**entry, "ipMode": ""}.values()))) in rejection.problem.message
    assert "local-lb:takeOver" in rejection.problem.message


@pytest.mark.parametrize(
    ("document", "keys"),
    [
        (service(CLOUDS), {"takeOver": True}),
        (service(CLOUDS, loadBalancerClass="local-lb.dev/mine"), {"classes": {"names": ["local-lb.dev/mine"]}}),
        (service(CLOUDS), {"pools": [{"name": "theirs", "addresses": ["203.0.113.0/24"]}]}),
        (service({"ip": "127.77.0.9"}, CLOUDS), {}),
        (service({"ip": "127.99.0.9"}, conditions=(SERVING,)), {}),
        (service({"ip": "127.99.0.9"}, conditions=({**SERVING, "status": "False", "reason": "NoBackends"},)), {}),
        (service({"ip": "127.0.0.1"}), {"portMapping": "loopback"}),
        (service(), {}),
        (service({}, {"ip": "nonsense"}, {"ip": 7}, {"hostname": 8}), {}),
    ],
)
def test_whatever_says_that_it_is_ours_is_believed(document: JsonObject, keys: JsonObject) -> None:
    """A key, a class, a pool, or an address and a condition of ours, which a lost state leaves behind."""
    assert Reason.SERVED_BY_ANOTHER not in reasons(make_plan(snapshot(document), settings(**keys)))


def test_a_service_that_got_nothing_of_us_may_belong_to_another() -> None:
    """Our condition says that there was no room for it; meanwhile another controller gave it an address."""
    refused = {**SERVING, "status": "False", "reason": "PoolExhausted"}
    plan = make_plan(snapshot(service(CLOUDS, conditions=(refused,))), settings())
    assert reasons(plan) == [Reason.SERVED_BY_ANOTHER]


def test_manifests_have_no_other_controller() -> None:
    """An exported status says what was served elsewhere; nothing is written there."""
    assert not reasons(make_plan(snapshot(service(CLOUDS), live=False), settings()))


@pytest.mark.parametrize("held", ["claims", "remembered"])
def test_a_service_that_this_stack_serves_stays_its_own(held: str) -> None:
    """By the state or by the ledger, whatever another controller adds to its status; another stack's claim is none."""
    read = snapshot(service(CLOUDS))
    key = read.services[0].key
    claim = Claim(ip_address("127.77.0.9"), Owner(HOME, key, Uid("u-web")))
    assert not reasons(make_plan(replace(read, **{held: (claim,)}), settings()))
    theirs = replace(claim, owner=replace(claim.owner, home=Home("local-lb", "other", "/project")))
    assert reasons(make_plan(replace(read, **{held: (theirs,)}), settings())) == [Reason.SERVED_BY_ANOTHER]


ENTRIES = st.lists(
    st.sampled_from([CLOUDS, {"hostname": "a.example"}, {"ip": "127.77.0.9"}, {"ip": "::1"}]), max_size=2
)
STEPS = st.lists(st.lists(ENTRIES, min_size=3, max_size=3), min_size=1, max_size=5)


@given(STEPS)
def test_plans_with_memory_leave_the_same_services_alone(steps: list[list[list[JsonObject]]]) -> None:
    """However statuses change; and those that are left alone make no difference to the others."""
    memory = AnyMemo()
    for step in steps:
        read = snapshot(*(service(*entries, name=f"web-{n}") for n, entries in enumerate(step)))
        plan = make_plan(read, settings(), memory)
        assert plan == make_plan(read, settings())
        alone = {rejection.key for rejection in plan.rejections}
        rest = replace(read, services=tuple(each for each in read.services if each.key not in alone))
        assert make_plan(rest, settings()).placements == plan.placements
