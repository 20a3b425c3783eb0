"""The loop and what objects of Gateway API are told: a root each, updated by itself, repaired once after a start."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from locallb.gateway.status_patch import observed_statuses
from locallb.kubernetes.object_parsing import AnyStatus
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.planning.planned import Plan
from locallb.watch.converge import Converger
from locallb.watch.updates import Batch, Work
from tests.support.deployed_plans import deployed
from tests.support.gateway_objects import DEMO, JsonObject
from tests.support.planned_gateways import GatewayApi, cluster, learned, plan_of, rewritten

LATER = 1e9
"""Long after every update."""
LOST = ObjectKey(DEMO, "shop", "lost", ObjectKind.HTTP_ROUTE)


def work(converger: Converger, plan: Plan) -> Work:
    return converger.work(converger.wanted(plan), ())


def with_lost(**spec: object) -> list[JsonObject]:
    documents = cluster()
    lost = next(one for one in documents if one["metadata"]["name"] == "lost")
    lost["spec"].update(spec)
    lost["metadata"]["generation"] = 4
    return documents


def test_a_start_finds_every_status_applied() -> None:
    """And checks each once, as it does load balancers."""
    plan = plan_of(*cluster())
    with deployed(plan, GatewayApi.having(*cluster())) as (_, engine), learned(engine) as converger:
        assert converger.applied == converger.wanted(plan)
        found = work(converger, plan)
        assert found.keys == found.unchecked
        assert {status.key for status in plan.statuses} < set(found.unchecked)


@pytest.mark.parametrize("change", ["another generation", "gone"])
def test_a_route_that_changes_is_one_update_and_one_write(change: str) -> None:
    """Of itself alone; a route that nothing takes any more says nothing of ours."""
    plan, api = plan_of(*cluster()), GatewayApi.having(*cluster())
    spec: JsonObject = {"hostnames": ["b.test"]} if change != "gone" else {"parentRefs": []}
    after = plan_of(*with_lost(**spec))
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        api.requested.clear()
        found = work(converger, after)
        assert found.reported + found.removed == (LOST,)
        assert converger.update(after, converger.wanted(after), Batch((LOST,))).result.ok
        assert api.requested == ["patch httproutes/lost"]
        assert work(converger, after).urgent is False
        assert bool(api.objects["httproutes", "shop", "lost"]["status"]["parents"]) == (change != "gone")


def test_status_that_others_changed_before_the_start_is_repaired() -> None:
    """By the check of everything that a start makes."""
    plan, api = plan_of(*cluster()), GatewayApi.having(*cluster())
    with deployed(plan, api) as (_, engine):
        key = ("httproutes", "shop", "lost")
        stated = api.objects[key]["status"]
        api.objects[key] = rewritten(api.objects[key], {"parents": []})
        with learned(engine) as converger:
            assert converger.update(plan, converger.wanted(plan), Batch((LOST,), refresh=True)).result.ok
        assert len(api.objects[key]["status"]["parents"]) == len(stated["parents"]) == 1


def stated(api: GatewayApi) -> Mapping[ObjectKey, AnyStatus]:
    """Return what all objects say, as a follower knows it."""
    return dict(each for one in api.objects.values() for each in observed_statuses(DEMO, one))


KEYS = [
    (("httproutes", "shop", "lost"), LOST, "parents"),
    (("gateways", "shop", "web"), ObjectKey(DEMO, "shop", "web", ObjectKind.GATEWAY), "listeners"),
    (("listenersets", "shop", "more"), ObjectKey(DEMO, "shop", "more", ObjectKind.LISTENER_SET), "listeners"),
    (("backendtlspolicies", "shop", "tls"), ObjectKey(DEMO, "shop", "tls", ObjectKind.BACKEND_TLS_POLICY), "ancestors"),
    (("gatewayclasses", "", "local"), ObjectKey(DEMO, "", "local", ObjectKind.GATEWAY_CLASS), "conditions"),
]


@pytest.mark.parametrize(("at", "key", "field"), KEYS)
def test_status_that_others_change_during_the_loop_is_repaired_by_one_update(
    at: tuple[str, str, str], key: ObjectKey, field: str
) -> None:
    """Of that object alone, with one write; correct statuses are not touched, nor unknown ones."""
    plan, api = plan_of(*cluster()), GatewayApi.having(*cluster())
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        assert converger.differing(stated(api), plan, (), LATER) == ({}, None)
        before = api.objects[at]["status"]
        api.objects[at] = rewritten(api.objects[at], {**before, field: []})
        assert converger.differing(stated(api), plan, (), LATER)[0] == {key: (field,)}
        assert converger.differing(stated(api), plan, (DEMO,), LATER)[0] == {}
        assert converger.differing({}, plan, (), LATER)[0] == {}
        api.requested.clear()
        assert converger.update(plan, converger.wanted(plan), Batch((key,), refresh=True)).result.ok
        assert [one for one in api.requested if one.startswith("patch")] == [f"patch {at[0]}/{at[2]}"]
        assert api.objects[at]["status"].keys() == before.keys()
        assert converger.differing(stated(api), plan, (), LATER)[0] == {}


def test_a_gateway_that_gets_nothing_is_looked_after_as_well() -> None:
    """Its status says why."""
    documents = cluster()
    documents[1]["spec"]["addresses"] = [{"type": "Hostname", "value": "a.test"}]
    plan, api = plan_of(*documents), GatewayApi.having(*documents)
    (rejection,) = plan.rejections
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        assert converger.differing(stated(api), plan, (), LATER) == ({}, None)
        at = ("gateways", "shop", "web")
        api.objects[at] = rewritten(api.objects[at], {})
        assert set(converger.differing(stated(api), plan, (), LATER)[0]) == {rejection.key}
