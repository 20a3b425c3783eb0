"""Backends of a Gateway's ports in reports: those of the state are those of the plan that made it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.identities import ObjectKey, ObjectKind
from locallb.planning.plan import make_plan
from locallb.report.deployed import deployed_side
from locallb.report.sides import planned_side
from tests.support.gateway_objects import backend, gateway, gateway_class, route, rule, service
from tests.support.reports import declared
from tests.support.worlds import OWN, PLAIN, C, pods

SHARES = {"backends": [backend("api", weight=3), backend("next", weight=1)]}
MIRROR = {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": backend("copy")}}]}


@pytest.mark.parametrize("fields", [{}, SHARES, MIRROR, {**SHARES, **MIRROR}], ids=["one", "shares", "mirror", "both"])
def test_backends_of_a_state_are_those_of_its_plan(fields: dict[str, Any]) -> None:
    names = ("api", "next", "copy")
    services = [service(name, {"port": 8080, "name": "8080"}) for name in names]
    read = parse_objects(C, [gateway_class(), gateway(), *services, route(rule("/", **fields))])
    slices = tuple(pods(ObjectKey(C, "shop", name), f"10.244.1.{number}") for number, name in enumerate(names, 7))
    snapshot = replace(PLAIN, services=(), slices=slices, gateway_api=read.gateway_api)
    plan = make_plan(snapshot, OWN)
    key = ObjectKey(C, "shop", "web", ObjectKind.GATEWAY)
    ports = [
        side.balancers[key].ports
        for side in (deployed_side("state", declared(plan)), planned_side("manifests", snapshot, plan))
    ]
    (deployed,), (planned,) = ports
    assert deployed.backends == planned.backends != ()
