"""ListenerSets are told that they are programmed once their Gateway's proxy is proven to listen, however that comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from locallb.cli.targets import scope_of
from locallb.components.stack import declare
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.planning.planned import Plan
from locallb.resources.codec import Values
from locallb.resources.resource_type import ProviderError
from locallb.watch.updates import Batch
from tests.support.deployed_plans import _Kinds, deployed
from tests.support.gateway_objects import DEMO, JsonObject, api_object, gateway, gateway_class, listener
from tests.support.objects import node
from tests.support.planned_gateways import HOME, GatewayApi, learned, plan_of

WEB, MORE = ObjectKey(DEMO, "shop", "web", ObjectKind.GATEWAY), ObjectKey(DEMO, "shop", "more", ObjectKind.LISTENER_SET)
WHY = "127.77.0.1:8080 isn't served: the port is in use"


def documents(*, of: str = "web", generation: int = 1) -> list[JsonObject]:
    """Have a Gateway and a ListenerSet of a Gateway."""
    allowed = {"namespaces": {"from": "Same"}}
    more = api_object("ListenerSet", "more", spec={"parentRef": {"name": of}, "listeners": [listener("more", 8081)]})
    everything = [gateway_class(), gateway(listener("http", 8080), allowedListeners=allowed), more, node()]
    for one in everything[:3]:
        one["metadata"].update(uid=f"uid-{one['metadata']['name']}", generation=generation, resourceVersion="1")
    everything[0]["metadata"].pop("namespace")
    return everything


class Unproven:
    """Says of no proxy that it listens, for as long as it is asked not to."""

    def __init__(self) -> None:
        self.why = WHY

    def create(self, kinds: _Kinds, token: str, news: Values, *, preview: bool) -> tuple[str, dict[str, Any]]:
        if self.why and token.endswith(":Reachable"):
            raise ProviderError(self.why)
        return _CREATE(kinds, token, news, preview=preview)


_CREATE = _Kinds.create


@pytest.fixture
def unproven() -> Iterator[Unproven]:
    made = Unproven()

    def create(kinds: _Kinds, token: str, news: Values, *, preview: bool) -> tuple[str, dict[str, Any]]:
        return made.create(kinds, token, news, preview=preview)

    with mock.patch.object(_Kinds, "create", create):
        yield made


def programmed(api: GatewayApi, kind: str, name: str) -> str | None:
    """Return what an object says of that."""
    stated = (api.objects[kind, "shop", name].get("status") or {}).get("conditions", [])
    return {one["type"]: one["status"] for one in stated}.get("Programmed")


def test_listener_set_is_not_programmed_before_its_proxy_is_reachable(unproven: Unproven) -> None:
    """By a program of everything, as `pulumi up` and `locallb up` run it."""
    plan, api = plan_of(*documents()), GatewayApi.having(*documents())
    with deployed(Plan(), api) as (_, engine):
        assert not engine.up(lambda: declare(plan)).ok
        assert (programmed(api, "gateways", "web"), programmed(api, "listenersets", "more")) == (None, None)
        unproven.why = ""
        assert engine.up(lambda: declare(plan)).ok
        assert (programmed(api, "gateways", "web"), programmed(api, "listenersets", "more")) == ("True", "True")


@pytest.mark.parametrize("keys", [(MORE,), (WEB,), (WEB, MORE)])
def test_nor_by_the_loop_in_whichever_portions(keys: tuple[ObjectKey, ...], unproven: Unproven) -> None:
    """A ListenerSet alone has its Gateway's proof tried as well, and fails with it."""
    plan, api = plan_of(*documents()), GatewayApi.having(*documents())
    with deployed(Plan(), api) as (_, engine), learned(engine) as converger:
        outcome = converger.update(plan, converger.wanted(plan), Batch(keys))
        assert outcome.failed == dict.fromkeys(keys, WHY)
        outcome = converger.update(plan, converger.wanted(plan), Batch((MORE,)))
        assert outcome.failed == {MORE: WHY}
        assert programmed(api, "listenersets", "more") is None
        unproven.why = ""
        assert converger.update(plan, converger.wanted(plan), Batch((MORE,))).result.ok
        assert converger.update(plan, converger.wanted(plan), Batch((WEB,))).result.ok
        assert (programmed(api, "gateways", "web"), programmed(api, "listenersets", "more")) == ("True", "True")


def refused() -> list[JsonObject]:
    """Have the Gateway ask for what it doesn't get."""
    changed = documents(generation=2)
    changed[1]["spec"]["addresses"] = [{"type": "Hostname", "value": "a.test"}]
    return changed


AFTER = {
    "both are gone": [],
    "it is gone": [one for one in documents() if one["kind"] != "Gateway"],
    "it gets nothing": refused(),
    "the set is another's": [
        *(one for one in documents(of="other", generation=2) if one["kind"] != "Gateway"),
        gateway(listener("http", 8080), name="other", allowedListeners={"namespaces": {"from": "Same"}}),
    ],
}


@pytest.mark.parametrize("after", AFTER)
def test_removed_gateway_takes_along_listener_sets_that_waited_for_its_proof(after: str) -> None:
    """Otherwise the update would fail: a remaining resource refers to a removed one. Theirs has nothing to do then."""
    plan, api = plan_of(*documents()), GatewayApi.having(*documents())
    then = plan_of(*AFTER[after])
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        outcome = converger.update(then, converger.wanted(then), Batch((WEB,)))
        assert not outcome.failed
        api.requested.clear()
        assert not converger.update(then, converger.wanted(then), Batch((MORE,))).failed
        assert api.requested == []
        assert MORE not in converger.work(converger.wanted(then), ()).keys


def test_listener_set_that_only_needs_a_check_updates_no_gateway() -> None:
    """As at a start, where its Gateway may have been checked before."""
    plan, api = plan_of(*documents()), GatewayApi.having(*documents())
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        wanted = converger.wanted(plan)
        converger._checks.unchecked, converger._checks._doubtful = {MORE}, set()
        with mock.patch.object(engine, "updates") as updates:
            assert converger.update(plan, wanted, Batch((MORE,), refresh=True)).untouched == {MORE}
        assert not updates.return_value.begin.called


def test_a_listener_set_that_its_gateway_refuses_gets_its_status_at_once(unproven: Unproven) -> None:
    """It waits for nothing."""
    given = documents()
    given[1]["spec"].pop("allowedListeners")
    plan, api = plan_of(*given), GatewayApi.having(*given)
    with deployed(Plan(), api) as (_, engine):
        assert not engine.up(lambda: declare(plan)).ok
        assert (programmed(api, "gateways", "web"), programmed(api, "listenersets", "more")) == (None, "False")
    assert unproven.why


@pytest.mark.parametrize("after", AFTER)
def test_an_update_of_that_gateway_alone_takes_them_along_too(after: str) -> None:
    """As `locallb up --target` does it."""
    plan, api = plan_of(*documents()), GatewayApi.having(*documents())
    then = plan_of(*AFTER[after])
    with deployed(plan, api) as (_, engine):
        session = mock.Mock(home=HOME, resources=engine.resources)
        session.plan.return_value = None, then
        scope, _ = scope_of(session, ["web"], keep=True)
        result = engine.up(lambda: declare(then), scope=scope)
        assert result.ok, result.diagnostics
