"""A DNS provider is one file and one line: names are configured, planned, written, found again and removed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings, SettingsError
from locallb.dns import provider
from locallb.dns.owner_ids import owner_id
from locallb.dns.records import NameRequest, assign
from locallb.engine.state.resource import ResourceState
from locallb.model.desired import BALANCER, DNS_NAME, ResourceKey
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, ProxyName, Uid
from locallb.model.parties import party_of
from locallb.orphans import orphaned_names
from locallb.outputs.names import OUTPUT, DnsName
from locallb.outputs.output import OutputContext
from locallb.planning.planned import Placement, Plan
from locallb.resources.codec import decode, encode, recall
from locallb.resources.properties import DnsNameInputs, DnsNameState
from locallb.resources.resource_type import ProviderError
from tests.dns import shelf

NAME, KEY = "web.lab.example", ObjectKey(ClusterName("c"), "n", "web")
CONTEXT = OutputContext(ResourceKey(BALANCER, str(KEY)))
FOREIGN = {"A foreign.lab.example": [60, "192.0.2.1"]}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the provider's line in the registry."""
    line = type(provider.PROVIDERS["rfc2136"])("tests.dns.shelf", shelf.EXAMPLE, shelf.KEYS, ("path",))
    monkeypatch.setattr(provider, "PROVIDERS", {**provider.PROVIDERS, "shelf": line})
    monkeypatch.setattr("locallb.config.dns.PROVIDERS", provider.PROVIDERS)


def settings_of(**more: object) -> Settings:
    """Configure a stack with a zone on the shelf."""
    zone = {"zone": "lab.example", "shelf": {"server": "127.0.0.1:5399", "path": "zone.json", **more}}
    return parse_settings({"sources": [{"manifests": "m"}], "dns": {"zones": [zone]}})


def planned(root: Path, *addresses: str) -> Placement:
    """Plan a load balancer with a name."""
    dns = settings_of().dns
    assert dns is not None
    names = assign([NameRequest(KEY, (NAME,), addresses, 60)], dns)
    owner = Owner(Home("local-lb", "dev", str(root)), KEY, Uid("u"))
    return Placement(owner, (), (), ProxyName("p"), names=names.given[KEY])


def inputs_of(placement: Placement) -> DnsNameInputs:
    """Return the inputs of its only name, as an engine passes them on."""
    (resource,) = OUTPUT.resources(placement, CONTEXT)
    new = decode(DnsNameInputs, resource.inputs)
    assert encode(new) == {**resource.inputs, "owner": encode(new)["owner"]}
    assert party_of(ResourceState("urn", DNS_NAME, custom=True, inputs=encode(new))) == "dns/zone.json"
    return new


@pytest.mark.usefixtures("registered")
def test_a_provider_in_one_file_gets_names_and_gives_them_back(tmp_path: Path) -> None:
    """They are added, read, repaired, found without a state, and removed; what others have stays."""
    file = tmp_path / "zone.json"
    file.write_text(json.dumps(FOREIGN))
    kind, placement = DnsName(tmp_path), planned(tmp_path, "127.0.0.1", "fd00::1")
    _, state = kind.create(inputs_of(placement))
    there = json.loads(file.read_text())
    assert there[f"A {NAME}"] == [60, "127.0.0.1"]
    assert there.keys() >= {f"AAAA {NAME}", f"TXT a-{NAME}", f"TXT aaaa-{NAME}", *FOREIGN}
    state = recall(DnsNameState, encode(state))
    assert kind.read(state) == state
    plan = Plan((placement,))
    before = OUTPUT.stamp(plan)
    assert OUTPUT.stamp(plan) == before
    file.write_text(json.dumps({**there, f"A {NAME}": [60, "192.0.2.9"]}))
    assert OUTPUT.stamp(plan) != before
    assert kind.read(state) != state
    state = kind.update(state, inputs_of(planned(tmp_path, "127.0.0.2")))
    assert {place for place in json.loads(file.read_text()) if NAME in place} == {f"A {NAME}", f"TXT a-{NAME}"}
    home = placement.owner.home
    assert not list(orphaned_names(home, settings_of(), tmp_path, {NAME}))
    (found,) = orphaned_names(home, settings_of(), tmp_path, ())
    assert (found.name, found.marker.owner) == (NAME, owner_id(home))
    found.let_go()
    assert json.loads(file.read_text()) == FOREIGN
    assert kind.leaves_nothing(state)
    kind.delete(state)


@pytest.mark.usefixtures("registered")
def test_names_of_others_and_failures_are_reported_by_zone_and_server(tmp_path: Path) -> None:
    """Neither is changed, and a server that can't be asked proves nothing."""
    kind, new = DnsName(tmp_path), inputs_of(planned(tmp_path, "127.0.0.1"))
    with pytest.raises(ClientError, match=r"^zone lab\.example at zone\.json has no file .*zone\.json; create"):
        kind.create(new)
    (tmp_path / "zone.json").write_text(json.dumps({f"A {NAME}": [60, "192.0.2.1"]}))
    with pytest.raises(ProviderError, match=r"stack's to change: zone lab\.example at zone\.json has"):
        kind.create(new)
    away = planned(tmp_path / "elsewhere", "127.0.0.1")
    assert OUTPUT.stamp(Plan((away,))) == ({("lab.example", away.names[0].zone.server): None}, {})


@pytest.mark.usefixtures("registered")
def test_a_name_is_replaced_where_the_provider_writes_elsewhere(tmp_path: Path) -> None:
    """It is removed there, by the state, and written here; another value of a key that is no place is an update."""
    for name in ("zone.json", "moved.json"):
        (tmp_path / name).write_text(json.dumps(FOREIGN))
    kind = DnsName(tmp_path)
    _, state = kind.create(inputs_of(planned(tmp_path, "127.0.0.1")))
    moved = replace(inputs_of(planned(tmp_path, "127.0.0.1")), options=("path=moved.json",), place="moved.json")
    differing = kind.diff(state, moved)
    assert differing.changed & differing.replacing == {"place"}
    assert party_of(ResourceState("urn", DNS_NAME, custom=True, inputs=encode(moved))) == "dns/moved.json"
    kind.delete(state)
    kind.create(moved)
    assert json.loads((tmp_path / "zone.json").read_text()) == FOREIGN
    assert f"A {NAME}" in json.loads((tmp_path / "moved.json").read_text())
    keyed = replace(inputs_of(planned(tmp_path, "127.0.0.1")), options=("path=zone.json", "key=other"))
    differing = kind.diff(state, keyed)
    assert differing.changed == {"options"}
    assert not differing.changed & differing.replacing


@pytest.mark.usefixtures("registered")
def test_keys_of_a_provider_are_its_own() -> None:
    """Others' are refused, with those that it has."""
    with pytest.raises(SettingsError, match=r"shelf\.tsig: no such key; the keys are server, path, owner, takeOver"):
        settings_of(tsig="k")
    with pytest.raises(SettingsError, match=r"shelf\.path: must be a text, not 7; write the file that has the zone"):
        settings_of(path=7)


WRITTEN = {
    "marked": "local-lb-0123456789ab",
    "mark": "",
    "name": NAME,
    "owner": {
        "cluster": "c",
        "name": "web",
        "namespace": "n",
        "project": "local-lb",
        "root": "/p",
        "stack": "dev",
        "uid": "u",
    },
    "port": 53,
    "records": ["A 127.0.0.1"],
    "server": "127.0.0.1",
    "takes": "",
    "tsig": "keys/lab.key",
    "ttl": 60,
    "zone": "lab.example",
}
"""A name's properties as states had them before there were other providers than `rfc2136`."""


def test_a_name_in_an_earlier_state_stays_as_it_is(tmp_path: Path) -> None:
    """Its properties are read and written unchanged, and the same name is no difference."""
    zone = {"zone": "lab.example", "rfc2136": {"server": "127.0.0.1", "tsig": "keys/lab.key"}}
    dns = parse_settings({"sources": [{"manifests": "m"}], "dns": {"zones": [zone]}}).dns
    assert dns is not None
    given = assign([NameRequest(KEY, (NAME,), ("127.0.0.1",), 60)], dns).given[KEY]
    owner = Owner(Home("local-lb", "dev", "/p"), KEY, Uid("u"))
    (resource,) = OUTPUT.resources(Placement(owner, (), (), ProxyName("p"), names=given), CONTEXT)
    state = recall(DnsNameState, WRITTEN)
    assert encode(state) == WRITTEN
    assert DnsName(tmp_path).diff(state, decode(DnsNameInputs, resource.inputs)).changed == frozenset()


def test_a_state_with_an_unknown_provider_is_kept_and_reported() -> None:
    """Another version wrote it, which alone can change the name."""
    state = recall(DnsNameState, {**WRITTEN, "provider": "other"})
    kind = DnsName(None)
    assert kind.read(state) == state
    assert not kind.leaves_nothing(state)
    with pytest.raises(ClientError, match=r"there is no DNS provider other in this version; use the version that"):
        kind.delete(state)
