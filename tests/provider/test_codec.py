"""Typed properties: what is written is read back, as the schema says it, and as earlier versions wrote it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, ObjectKind, Owner, Uid
from locallb.model.reasons import Condition, EntryName, Event, Ingress, IngressPort
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields, owner_from
from locallb.provider.generate import SCHEMA
from locallb.resources.codec import CodecError, decode, encode, form_of, recall
from locallb.resources.properties import ServiceClaimInputs

texts = st.text(max_size=5)
homes = st.builds(Home, texts, texts, texts)
keys = st.builds(ObjectKey, texts.map(ClusterName), texts, texts, st.sampled_from(ObjectKind))
owners = st.builds(Owner, homes, keys, texts.map(Uid))
OWNER = Owner(Home("p", "s", "/r"), ObjectKey(ClusterName("c"), "n", "web"), Uid("u"))
GATEWAY = Owner(OWNER.home, OWNER.service._replace(kind=ObjectKind.GATEWAY), OWNER.uid)


@given(owner=owners)
def test_an_owner_is_read_back_from_what_is_written(owner: Owner) -> None:
    """By the program's converter and by the provider's, which write the same."""
    claim = ServiceClaimInputs(Access("/k", ContextName("c")), owner)
    assert encode(claim) == {"access": {"kubeconfig": "/k", "context": "c"}, "owner": owner_fields(owner)}
    assert decode(ServiceClaimInputs, json.loads(json.dumps(encode(claim)))) == claim
    assert owner_from(owner_fields(owner)) == owner


def test_a_service_is_written_as_before_there_were_other_kinds() -> None:
    """States, ledgers and labels of all versions are read, and stay as they are."""
    before = {"project": "p", "stack": "s", "root": "/r", "cluster": "c", "namespace": "n", "name": "web", "uid": "u"}
    assert list(owner_fields(OWNER).items()) == list(before.items())
    assert owner_from(before) == OWNER
    assert owner_fields(GATEWAY) == {**before, "kind": "gateways"}


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"kind": "pods"}, ("owner.kind", f"must be {' or '.join(ObjectKind)}, not 'pods'")),
        ({"kind": 5}, ("owner.kind", "must be a string, not a number")),
        ({"uid": 5}, ("owner.uid", "must be a string, not a number")),
        ({"colour": "red"}, ("owner.colour", "isn't a property of Owner")),
    ],
)
def test_invalid_owner_is_refused_by_property(change: dict[str, object], failure: tuple[str, str]) -> None:
    """Each property by its path; from a state it is read all the same."""
    given = {"access": {"kubeconfig": "/k", "context": "c"}, "owner": {**owner_fields(OWNER), **change}}
    with pytest.raises(CodecError) as caught:
        decode(ServiceClaimInputs, given)
    assert caught.value.failures == (failure,)
    assert recall(ServiceClaimInputs, given).owner.service == OWNER.service


def test_an_entry_without_a_name_is_written_as_ever() -> None:
    """States of earlier versions have none; with one it is there, and read again."""
    plain = Ingress("127.77.0.5", "Proxy", ())
    assert encode(plain) == {"ip": "127.77.0.5", "mode": "Proxy", "ports": []}
    named = replace(plain, named=EntryName("shop.test"))
    assert [decode(Ingress, encode(each)) for each in (plain, named)] == [plain, named]


def test_the_schema_has_the_models_fields() -> None:
    """Types of the schema that the model has are those of the model."""
    types = json.loads(SCHEMA.read_text(encoding="utf-8"))["types"]
    for kind in (Access, Ingress, IngressPort, Condition, Event):
        assert types[f"locallb:index:{kind.__name__}"]["properties"].keys() == set(form_of(kind).names)
    assert types["locallb:index:Owner"]["properties"].keys() == owner_fields(GATEWAY).keys()
    assert types["locallb:index:Owner"]["required"] == list(owner_fields(OWNER))
