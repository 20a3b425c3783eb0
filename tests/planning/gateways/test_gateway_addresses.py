"""A Gateway keeps its address until it is deleted, also while none of its listeners can be served."""

from __future__ import annotations

import json

import pytest

from locallb.gateway.parsing import SECRET_REFERENCE
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement
from locallb.planning.service_rows import State, rows
from tests.support.gateway_objects import JsonObject, gateway, gateway_class, grant, listener
from tests.support.planned_gateways import SETTINGS, snapshot

CERT = {"kind": "Secret", "name": "cert", "namespace": "certs"}
HTTPS = gateway(listener("https", 8443, "HTTPS", tls={"certificateRefs": [CERT]}))
GRANT = grant("certs", kind="Gateway", what="Secret")


def _secret(problem: str = "") -> JsonObject:
    spec = {"problem": problem} if problem else {"digest": "ab" * 32}
    return {"metadata": {"name": "cert", "namespace": "certs"}, "spec": spec} | dict(
        map(_named, SECRET_REFERENCE.items())
    )


def _named(field: tuple[object, object]) -> tuple[str, object]:
    return str(field[0]), field[1]


def _placement(*documents: JsonObject) -> Placement:
    plan = make_plan(snapshot([gateway_class(), *documents]), SETTINGS)
    assert not plan.rejections
    (placement,) = plan.placements
    return placement


@pytest.mark.parametrize(
    "unusable", [[HTTPS, GRANT, _secret("its key is another one's")], [HTTPS, GRANT], [HTTPS, _secret()]]
)
def test_a_gateway_without_a_listener_that_can_be_served_keeps_its_address(unusable: list[JsonObject]) -> None:
    """A broken Secret, one that is gone, a grant that was withdrawn: clients are refused at the address meanwhile."""
    serving, waiting = _placement(HTTPS, GRANT, _secret()), _placement(*unusable)
    assert waiting.addresses == serving.addresses
    (port,) = waiting.ports
    assert (port.port.port, port.listeners) == (8443, ())
    assert port.problem
    assert port.problem.reason == "ListenersNotValid"


def test_such_a_gateway_is_degraded_and_its_statuses_say_why() -> None:
    """Neither malformed nor rejected: its listeners' own conditions have the reason, and the port isn't to blame."""
    plan = make_plan(snapshot([gateway_class(), HTTPS, GRANT]), SETTINGS)
    (row,) = rows(plan, {})
    assert (row.state, row.reason) == (State.PENDING, "ListenersNotValid")
    (placement,) = plan.placements
    assert placement.status
    status = json.loads(placement.status.status)
    (accepted,) = (each for each in status["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "ListenersNotValid")
    assert [each["value"] for each in status["addresses"]] == [str(placement.addresses[0])]
    assert "PortUnavailable" not in placement.status.status
