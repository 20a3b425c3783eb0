"""The listener that answers for names, in Envoy's words."""

from __future__ import annotations

import json
from ipaddress import ip_address

import pytest

from locallb.envoy.listeners import name_listener
from locallb.model.serving import NameListener, ServedName


@pytest.mark.parametrize(("requested", "given"), [(1, "30s"), (29, "30s"), (30, "30s"), (60, "60s")])
def test_no_ttl_makes_envoy_refuse_the_table(requested: int, given: str) -> None:
    """Less than 30 s would: all names of the stack, for one annotation of one Service."""
    served = ServedName("web.test", (ip_address("127.77.0.1"),), requested)
    listener = name_listener(NameListener(ip_address("127.0.0.77"), 5300, (served,)))
    assert f'"answer_ttl": "{given}"' in json.dumps(listener)
