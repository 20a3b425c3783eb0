"""What objects of Gateway API in a running cluster are told: planned, declared, written, taken away.

Everything is the production's but the host and the API, which keeps objects in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from unittest import mock

import pytest
from msgspec.structs import replace

from locallb.components.stack import declare
from locallb.config.parsing import parse_settings
from locallb.gateway.status_patch import contains
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.servers import NoContextError, UnreachableError
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.identities import ObjectKind, Protocol
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import HostFacts
from locallb.outputs.status import GatewayStatus
from locallb.planning.planned import Placement, Plan, PlannedStatus, Rejection
from locallb.planning.statuses import outcome_of
from locallb.resources.codec import decode, encode
from locallb.resources.properties import GatewayStatusInputs
from locallb.resources.resource_type import grown
from tests.support.deployed_plans import ACCESS, deployed
from tests.support.gateway_objects import gateway, gateway_class, listener, route, service
from tests.support.goldens import Golden
from tests.support.ingress_objects import ingress, ingress_class, path, rule
from tests.support.objects import node
from tests.support.planned_gateways import CONFIG, OTHER, GatewayApi, cluster, plan_of, rewritten


def undated(text: str) -> str:
    """Leave out the lines that differ from run to run."""
    return "".join(line for line in text.splitlines(keepends=True) if "lastTransitionTime" not in line)


def test_a_stack_tells_every_object_and_takes_it_back(golden: Golden) -> None:
    """Others' conditions and parents stay where they are, before and after; nothing is written twice."""
    documents = cluster()
    plan, api = plan_of(*documents), GatewayApi.having(*documents)
    with deployed(plan, api) as (_, engine):
        reported = undated(api.statuses())
        writes = [one for one in api.requested if one.startswith("patch")]
        assert len(writes) == len(set(writes)) == 6
        assert engine.up(lambda: declare(plan)).ok
        assert [one for one in api.requested if one.startswith("patch")] == writes
        assert engine.destroy().ok
        golden.check("gateway-statuses", {"told.json": reported, "withdrawn.json": undated(api.statuses())})
    assert CONTROLLER not in api.statuses()
    assert OTHER in api.statuses()


def test_gateways_in_manifests_get_no_status() -> None:
    """Their plan has no status, and so the digests that it had before there were any."""
    plan = plan_of(*cluster(), live=False)
    assert plan.placements
    assert not plan.statuses
    assert not any(placement.status for placement in plan.placements)


def test_a_plan_that_is_made_again_is_the_same() -> None:
    """So that a loop has nothing to do."""
    assert plan_of(*cluster()) == plan_of(*reversed(cluster()))


OUTCOMES: Mapping[Reason, str] = {
    Reason.POOL_EXHAUSTED: "AddressNotAssigned",
    Reason.OUT_OF_POOL: "AddressNotUsable",
    Reason.HOST_LIMIT: "NoResources",
    Reason.PROXY_DOWN: "Pending",
    Reason.PORT_IN_USE: "Invalid",
    Reason.MALFORMED: "Invalid",
}


@pytest.mark.parametrize("reason", OUTCOMES)
def test_a_gateway_that_gets_nothing_says_why(reason: Reason) -> None:
    """In a reason of the specification's, whether it has addresses that aren't told or none."""
    (placement,) = plan_of(*cluster()).placements
    problem = Problem(reason, "why")
    rejected = outcome_of(Rejection(placement.key, problem))
    assert rejected == outcome_of(replace(placement, withdrawn=problem))
    assert (rejected.addresses, rejected.failure) == ((), (OUTCOMES[reason], "why"))


def test_a_port_that_cannot_be_had_is_in_the_status_of_its_listener() -> None:
    """The Gateway keeps its address and the listeners that are served."""
    (placement,) = plan_of(*cluster(), host=HostFacts(unprivileged_port_start=8081)).placements
    assert outcome_of(placement).ports.keys() == {(8080, Protocol.TCP)}
    assert outcome_of(placement).addresses == placement.addresses
    assert placement.status
    (first, *_) = json.loads(placement.status.status)["listeners"]
    assert {one["type"]: one["reason"] for one in first["conditions"]}["Accepted"] == "PortUnavailable"


def status_of(plan: Plan, kind: ObjectKind) -> PlannedStatus:
    """Return the first status of a kind."""
    of_gateways = [one.status for one in plan.placements if one.status]
    return next(one for one in (*of_gateways, *plan.statuses) if one.key.kind is kind)


def inputs_of(planned: PlannedStatus) -> GatewayStatusInputs:
    return decode(
        GatewayStatusInputs,
        {
            "access": encode(planned.access),
            "owner": encode(planned.owner),
            "status": planned.status,
            "generation": planned.generation,
        },
    )


KIND = [
    ObjectKind.GATEWAY,
    ObjectKind.HTTP_ROUTE,
    ObjectKind.LISTENER_SET,
    ObjectKind.GATEWAY_CLASS,
    ObjectKind.BACKEND_TLS_POLICY,
]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> GatewayApi:
    """Have an API server of the objects."""
    made = GatewayApi.having(*cluster())
    monkeypatch.setattr(live_object, "_at", lambda _access: made)
    RECENT.forget(ACCESS)
    return made


@pytest.mark.parametrize("kind", KIND)
def test_gateway_status_takes_one_read_and_one_write_and_no_write_when_unchanged(
    kind: ObjectKind, api: GatewayApi
) -> None:
    """The second time it is only read."""
    new = inputs_of(status_of(plan_of(*cluster()), kind))
    GatewayStatus(None).create(new)
    assert [one.split()[0] for one in api.requested] == ["get", "patch"]
    GatewayStatus(None).create(new)
    assert [one.split()[0] for one in api.requested] == ["get", "patch", "get"]


@pytest.mark.parametrize("kind", KIND)
def test_gateway_status_changed_during_the_write_is_read_again(kind: ObjectKind, api: GatewayApi) -> None:
    """What the other writer wrote stays."""
    planned = status_of(plan_of(*cluster()), kind)
    key = (kind.value, planned.key.namespace, planned.key.name)

    def interfere() -> None:
        api.before_patch = lambda: None
        before = api.objects[key]
        api.objects[key] = rewritten(before, {**before.get("status", {}), "theirs": 1})

    api.before_patch = interfere
    GatewayStatus(None).create(inputs_of(planned))
    assert [one.split()[0] for one in api.requested] == ["get", "patch", "get", "patch"]
    assert api.objects[key]["status"]["theirs"] == 1
    assert contains(api.objects[key], json.loads(planned.status), planned.generation)


@pytest.mark.parametrize("kind", KIND)
def test_an_object_that_is_gone_or_another_one_is_fine(kind: ObjectKind, api: GatewayApi) -> None:
    """Made, changed, deleted: nothing is written."""
    planned = status_of(plan_of(*cluster()), kind)
    new = inputs_of(planned)
    state = grown(GatewayStatus(None).state, new)
    key = (kind.value, planned.key.namespace, planned.key.name)
    api.objects[key]["metadata"]["uid"] = "another"
    for _ in range(2):
        GatewayStatus(None).create(new)
        GatewayStatus(None).update(state, new)
        GatewayStatus(None).delete(state)
        assert GatewayStatus(None).read(state) is None
        assert GatewayStatus(None).leaves_nothing(state)
        api.objects.pop(key, None)
    assert not any(one.startswith("patch") for one in api.requested)


@pytest.mark.parametrize("kind", KIND)
def test_foreign_change_of_a_gateway_status_is_found_and_repaired(kind: ObjectKind, api: GatewayApi) -> None:
    """By a refresh, which finds another status than the program wants."""
    planned = status_of(plan_of(*cluster()), kind)
    new = inputs_of(planned)
    assert GatewayStatus(None).leaves_nothing(grown(GatewayStatus(None).state, new))
    _, state = GatewayStatus(None).create(new)
    assert GatewayStatus(None).read(state) == state
    assert not GatewayStatus(None).leaves_nothing(state)
    key = (kind.value, planned.key.namespace, planned.key.name)
    api.objects[key] = rewritten(api.objects[key], {})
    observed = GatewayStatus(None).read(state)
    assert observed is not None
    assert GatewayStatus(None).diff(observed, new).changed == {"status"}
    assert GatewayStatus(None).update(observed, new) == state
    assert contains(api.objects[key], json.loads(planned.status), planned.generation)


def test_a_controller_that_took_over_is_not_written_over(api: GatewayApi) -> None:
    """What was written of a newer generation than ours is somebody else's by now."""
    planned = status_of(plan_of(*cluster()), ObjectKind.GATEWAY)
    _, state = GatewayStatus(None).create(inputs_of(planned))
    key = ("gateways", "shop", "web")
    newer = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "ours", "observedGeneration": 4}
    api.objects[key] = rewritten(api.objects[key], {"conditions": [newer]})
    GatewayStatus(None).delete(state)
    assert api.objects[key]["status"] == {"conditions": [newer]}


def test_a_cluster_that_is_gone_has_nothing_of_ours() -> None:
    """Its kubeconfig has no such context any more; one that doesn't answer may have."""
    state = grown(GatewayStatus(None).state, inputs_of(status_of(plan_of(*cluster()), ObjectKind.GATEWAY)))
    for fault, removed in ((NoContextError, True), (UnreachableError, False)):
        error = fault("why")
        with mock.patch.object(live_object, "_at", side_effect=error):
            assert GatewayStatus(None).leaves_nothing(state) == removed
            assert GatewayStatus(None).read(state) == state


def test_a_placement_without_status_is_no_gateway_of_a_cluster() -> None:
    """A Gateway of a running cluster has its status in its placement, with its uid and generation."""
    (placement,) = plan_of(*cluster()).placements
    assert isinstance(placement, Placement)
    assert placement.status
    assert (placement.status.owner, placement.status.generation) == (placement.owner, 3)


def test_a_gateway_and_an_ingress_tell_a_name_on_request() -> None:
    """A Gateway that of the template, however that is written, an Ingress its first host; nobody a wildcard."""
    hosted = [("a", "*.apps.test"), ("b", "shop.test"), ("c", "else.example")]
    ingresses = [ingress(rule(path(), host=host), name=name, class_name="local-lb") for name, host in hosted]
    of_gateway = gateway_class(), gateway(listener(hostname="web.test", port=8080)), route(), service(), node()
    dns = {"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}], "template": "{name}.{namespace}.{cluster}.Test."}
    for in_status in (True, False):
        settings = parse_settings(
            {**CONFIG, "dns": {**dns, "inStatus": in_status}, "ingress": {"http": 8081, "https": 8443}}
        )
        plan = plan_of(*of_gateway, ingress_class("local-lb"), *ingresses, settings=settings)
        reported = {status.key.name: json.loads(status.status) for status in plan.all_statuses}
        by_name = [one["value"] for one in reported["web"]["addresses"] if one["type"] == "Hostname"]
        assert by_name == (["web.shop.demo.test"] if in_status else [])
        entries = {name: reported[name]["loadBalancer"]["ingress"] for name, _ in hosted}
        assert {name: [one.get("hostname") for one in some] for name, some in entries.items()} == {
            "a": [None],
            "b": ["shop.test" if in_status else None],
            "c": [None],
        }
