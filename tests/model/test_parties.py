"""For whom operations wait: every type of every plan has a party, and what hangs is one of them, not all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from locallb.desired import desired
from locallb.model import desired as state_resource
from locallb.model.parties import DOCKER, LEDGER, NETLINK, UNKNOWN, party_of, room_of
from tests.support.desired_cases import CASES, plan_of


def resource(kind: str, /, **inputs: object) -> Any:  # noqa: ANN401 - a part of one
    return SimpleNamespace(type=kind, inputs=inputs, outputs={})


@pytest.mark.parametrize("case", CASES)
def test_every_resource_of_every_plan_has_a_party(case: str) -> None:
    """Otherwise one that hangs would hold up others of its kind."""
    custom = [one for group in desired(plan_of(case)).groups for one in group.members if one.outputs is None]

    for one in custom:
        party = party_of(resource(one.key.type, **one.inputs))
        assert party != UNKNOWN, one.key
        assert not party.endswith("/"), one.key


ACCESS = {"context": "demo", "kubeconfig": "/k"}
PARTIES = [
    (state_resource.ADDRESS, {"address": "127.77.0.1"}, LEDGER),
    (state_resource.CONFIG, {"proxy": "ab"}, "proxy/ab"),
    (state_resource.SERVICE_CONFIG, {"proxy": "ab"}, "proxy/ab"),
    (state_resource.REACHABLE, {"proxy": "ab"}, "check/ab"),
    (state_resource.SERVICE_CLAIM, {"access": ACCESS}, "cluster/demo of /k"),
    (state_resource.SERVED_CERTIFICATE, {"access": ACCESS, "file": "", "proxy": "ab"}, "cluster/demo of /k"),
    (state_resource.SERVED_CERTIFICATE, {"access": ACCESS, "file": "/f.yaml", "proxy": "ab"}, "proxy/ab"),
    (state_resource.DNS_NAME, {"server": "192.0.2.1", "port": 53}, "dns/192.0.2.1:53"),
    (state_resource.POD_ROUTES, {"container": ""}, NETLINK),
    (state_resource.RELAY, {"relay": "ab"}, "relay/ab"),
    (state_resource.POD_ROUTES, {"container": "c0ffee"}, DOCKER),
    (state_resource.SERVICE_CLAIM, {}, "cluster/ of "),
    ("other:index:Thing", {}, UNKNOWN),
]


@pytest.mark.parametrize(("kind", "inputs", "party"), PARTIES)
def test_a_party_follows_from_type_and_inputs(kind: str, inputs: dict[str, object], party: str) -> None:
    """Also of a state that lacks some."""
    assert party_of(resource(kind, **inputs)) == party


def test_what_is_handed_over_together_is_one_batch_at_a_time() -> None:
    """One push of a proxy's parts, one change of the ledger; others side by side."""
    assert [room_of(party).is_batch for party in (LEDGER, NETLINK, "proxy/ab", DOCKER, "check/ab", "dns/x:1")] == [
        *[True] * 3,
        *[False] * 3,
    ]
    assert room_of("proxy/ab").width == 1
