"""The zones in a cluster's CoreDNS, as the engine keeps them up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from locallb.kubernetes.api import live_object
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner
from locallb.model.snapshot import Access
from locallb.outputs.names import StubZones
from locallb.resources.properties import StubZonesInputs

COREFILE = ".:53 {\n    forward . 192.0.2.1\n}\n"
WANTED = StubZonesInputs(
    access=Access("/kubeconfig", ContextName("lab")),
    owner=Owner(Home("shop", "dev", "/srv/shop"), ObjectKey(ClusterName("lab"), "", "dns-zones")),
    zones=("shop.test 192.0.2.9:53",),
)


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    held = {"coredns": {"metadata": {"resourceVersion": "1"}, "data": {"Corefile": COREFILE}}}

    def patch(_access: Access, _namespace: str, name: str, body: Mapping[str, Any]) -> None:
        held[name]["data"].update(body["data"])

    monkeypatch.setattr(live_object, "config_map", lambda _access, _namespace, name: held.get(name))
    monkeypatch.setattr(live_object, "patch_config_map", patch)
    return held


def test_zones_follow_coredns_to_another_port(maps: dict[str, dict[str, Any]]) -> None:
    """Reading tells that something is to be done, and the update does it; then nothing is."""
    zones, data = StubZones(None), maps["coredns"]["data"]
    _, state = zones.create(WANTED)
    assert "shop.test:53 {" in data["Corefile"]
    assert zones.read(state) == state
    data["Corefile"] = data["Corefile"].replace(".:53 {", ".:1053 {")
    observed = zones.read(state)
    assert observed is not None
    assert observed.zones != WANTED.zones
    state = zones.update(observed, WANTED)
    assert "shop.test:1053 {" in data["Corefile"]
    assert "shop.test:53 {" not in data["Corefile"]
    assert zones.read(state) == state
    zones.delete(state)
    assert data["Corefile"] == COREFILE.replace(":53", ":1053")
