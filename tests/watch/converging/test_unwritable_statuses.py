"""Statuses of Gateway API that may not be written: one sentence, few requests, and everything else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from locallb.cli.watching.board import EventBatch, RelayedEvent
from locallb.cli.watching.log import Narrator
from locallb.components.stack import declare
from locallb.engine.core.events import Result, Severity
from locallb.kubernetes.api.servers import ForbiddenError, KubeError
from locallb.kubernetes.api.writes import PAUSE, Unwritable, lacks_right
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.outputs import status
from locallb.planning.planned import Plan
from locallb.watch import updates as work
from locallb.watch.converge import Converger
from locallb.watch.events import Updated
from tests.support.deployed_plans import ACCESS, deployed
from tests.support.gateway_objects import DEMO, JsonObject, route
from tests.support.planned_gateways import GatewayApi, cluster, learned, plan_of

ROUTES = 30


@dataclass
class Guarded(GatewayApi):
    """An API that refuses statuses."""

    refuses: bool = False

    def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], kind: ObjectKind
    ) -> dict[str, Any] | None:
        """Refuse to patch it, as RBAC does."""
        if self.refuses:
            self.requested.append(f"patch {kind}/{name}")
            raise forbidden(f'cannot patch resource "{kind}/status"')
        return super().patch_status(namespace, name, patch, kind)


def forbidden(why: str) -> KubeError:
    """Make what a client raises for 403."""
    return ForbiddenError(f"server refuses patch (403: {why})")


def documents(generation: int) -> list[JsonObject]:
    """Have many routes, each in this version."""
    made = cluster()
    for number in range(ROUTES):
        made.append(route(name=f"r{number}", hostnames=["a.test"]))
        made[-1]["metadata"].update(uid=f"uid-{number}", resourceVersion="1")
    for one in made:
        one["metadata"]["generation"] = generation
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have a clock that stands still, and nothing known."""
    now = [0.0]
    monkeypatch.setattr(status, "UNWRITABLE", Unwritable(lambda: now[0]))
    return now


def complaints(result: Result) -> set[str]:
    return {one.message for one in result.diagnostics if one.severity is Severity.ERROR}


def test_a_missing_right_is_one_sentence_and_one_request_for_each_kind(clock: list[float]) -> None:
    """Until it is given: then everything is told with the next run after the pause."""
    plan, api = plan_of(*documents(3)), Guarded.having(*documents(3))
    assert isinstance(api, Guarded)
    after = plan_of(*documents(4))
    with deployed(plan, api) as (_, engine):
        api.refuses = True
        api.requested.clear()
        refused = engine.up(lambda: declare(after))
        assert not refused.ok
        (sentence,) = complaints(refused)
        assert "missing permission: patch" in sentence
        assert "deploy/rbac-gateways.yaml" in sentence
        kinds = [one.split("/")[0] for one in api.requested if one.startswith("patch")]
        assert len(kinds) < len(plan.statuses) / 2
        api.refuses = False
        api.requested.clear()
        assert complaints(engine.up(lambda: declare(after))) == {sentence}
        assert api.requested == []
        clock[0] = PAUSE
        assert engine.up(lambda: declare(after)).ok
        (parent,) = api.objects["httproutes", "shop", "r0"]["status"]["parents"]
        assert {one["observedGeneration"] for one in parent["conditions"]} == {4}


def test_the_log_of_the_loop_names_it_once(clock: list[float]) -> None:
    """However many updates fail for it; the Service that fails for a reason of its own is told."""
    del clock
    plan, api = plan_of(*documents(3)), Guarded.having(*documents(3))
    assert isinstance(api, Guarded)
    after, narrator = plan_of(*documents(4)), Narrator()
    with deployed(plan, api) as (_, engine), learned(engine) as converger:
        api.refuses = True
        lines = [line for keys in routes_of(after) for line in reported(narrator, converger, after, keys)]
    assert len([line for line in lines if "missing permission: patch" in line]) == 1
    other = ObjectKey(DEMO, "shop", "web")
    update = Updated((other,), 0.1, 0.1, {}, {other: "another reason"})
    (record,) = narrator.report_to(EventBatch((RelayedEvent(0.0, update),)), [])
    assert "another reason" in record.sentence


def routes_of(plan: Plan) -> list[tuple[ObjectKey, ...]]:
    """Return the routes of a plan, a few at a time."""
    keys = [one.key for one in plan.statuses if one.key.kind is ObjectKind.HTTP_ROUTE]
    return [tuple(keys[at : at + 8]) for at in range(0, len(keys), 8)]


def reported(narrator: Narrator, converger: Converger, plan: Plan, keys: tuple[ObjectKey, ...]) -> list[str]:
    """Return what a log says of an update of these."""
    outcome = converger.update(plan, converger.wanted(plan), work.Batch(keys))
    assert outcome.failed.keys() == set(keys)
    update = Updated(keys, 0.1, 0.1, {}, outcome.failed)
    return [record.sentence for record in narrator.report_to(EventBatch((RelayedEvent(0.0, update),)), [])]


def test_refusal_by_a_webhook_is_no_missing_right() -> None:
    """It concerns one object; missing rights have one sentence for each file of rights."""
    assert lacks_right(forbidden('cannot patch resource "gateways/status"'))
    assert not lacks_right(forbidden("admission webhook denied the request"))
    existing = Unwritable(lambda: 0.0)
    sentences = {
        existing.refused(ACCESS, kind) for kind in (ObjectKind.GATEWAY, ObjectKind.HTTP_ROUTE, ObjectKind.INGRESS)
    }
    assert len(sentences) == 2
    existing.written(ACCESS, ObjectKind.GATEWAY)
    assert not existing.why(ACCESS, ObjectKind.GATEWAY)
    assert existing.why(ACCESS, ObjectKind.HTTP_ROUTE)
