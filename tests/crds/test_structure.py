"""Objects of manifests are held against the carried definitions, as an API server would hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.crds import carried, structural_faults
from locallb.gateway.kinds import KINDS
from locallb.kubernetes.object_parsing import Parsed, parse_objects
from locallb.model.gateway_objects import GROUP, Gateway, GatewayRoute, ListenerSet
from locallb.model.gateway_of_cluster import ApiObject
from tests.support.backend_tls import policy
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    api_object,
    backend,
    gateway,
    gateway_class,
    grant,
    listener,
    route,
    rule,
)

API = rule("/", backends=[backend("api")])
FINE: dict[str, JsonObject] = {
    "a class": gateway_class(),
    "a Gateway": gateway(listener(), listener("b", 81, hostname="*.a.test")),
    "a Gateway with fields that are null": gateway(listener(hostname=None, tls=None), addresses=None),
    "a Gateway without what is filled in": gateway(listener(allowedRoutes={"namespaces": {}})),
    "a Gateway with an address whose type is filled in": gateway(listener(), addresses=[{"value": "127.0.0.9"}]),
    "a Gateway with an address whose type is null": gateway(
        listener(), addresses=[{"type": None, "value": "127.0.0.9"}]
    ),
    "a Gateway with fields of another release": gateway(listener(added=1), added={"x": []}),
    "a set": api_object("ListenerSet", "more", spec={"parentRef": {"name": "web"}, "listeners": [listener()]}),
    "a route": route(API, rule("/v1", name="v1", timeouts={"request": "1s"})),
    "a route without rules": api_object("HTTPRoute", "r", spec={"parentRefs": [{"name": "web"}]}),
    "a route of TCP": route({"backendRefs": [backend()]}, kind="TCPRoute"),
    "a grant": grant("far"),
    "a policy": policy(),
}
_HEADER = {"type": "RequestHeaderModifier"}
REFUSED: dict[str, tuple[JsonObject, str]] = {
    "a header without a value": (
        route(API, rule("/x", filters=[{**_HEADER, "requestHeaderModifier": {"set": [{"name": "a", "value": ""}]}}])),
        "spec.rules[1].filters[0].requestHeaderModifier.set[0].value: ",
    ),
    "a header that is set twice": (
        route(
            API,
            rule(
                "/x",
                filters=[{**_HEADER, "requestHeaderModifier": {"set": [_pair := {"name": "a", "value": "b"}, _pair]}}],
            ),
        ),
        "spec.rules[1].filters[0].requestHeaderModifier.set: ",
    ),
    "a listener's name that is none": (
        gateway(listener("good"), listener("Not_A_Name", 81)),
        "spec.listeners[1].name: ",
    ),
    "a port that is no number": (gateway(listener("good"), listener("odd", "http")), "spec.listeners[1].port: "),  # type: ignore[arg-type]
    "a mode of another case": (
        gateway(listener("good"), listener("odd", 443, "HTTPS", tls={"mode": "terminate"})),
        "spec.listeners[1].tls.mode: ",
    ),
    "a parent without a name": (route(API, parentRefs=[{"namespace": "shop"}]), "spec.parentRefs[0]: "),
    "a name where an address is filled in": (
        gateway(listener(), addresses=[{"value": "a.test"}]),
        "spec.addresses[0]: ",
    ),
    "no listeners": (
        api_object("Gateway", "web", spec={"gatewayClassName": "local", "listeners": "none"}),
        "spec.listeners: ",
    ),
    "a grant from everywhere": (
        api_object("ReferenceGrant", "g", spec={"from": [], "to": [{"group": "", "kind": "Service"}]}),
        "spec.from: ",
    ),
    "a class that names no controller": (api_object("GatewayClass", "local", spec={}), "spec: "),
}


def _read(document: JsonObject, *, checked: bool = True) -> Parsed:
    return parse_objects(DEMO, [document, gateway(name="other")], definitions=structural_faults if checked else None)


def _objects(parsed: Parsed) -> list[ApiObject]:
    """Return what was read, apart from the Gateway that is there in any case."""
    listed = (one.object for one in parsed.gateway_api)
    return [one for one in listed if not (isinstance(one, Gateway) and one.meta.key.name == "other")]


@pytest.mark.parametrize("what", FINE)
def test_what_a_server_takes_is_read_as_without_definitions(what: str) -> None:
    """Fields that are null count as absent, those with defaults needn't be there, unknown ones are dropped."""
    assert structural_faults(FINE[what]) == ()
    assert _read(FINE[what]) == _read(FINE[what], checked=False)


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_server_refuses_is_refused_with_the_place(what: str) -> None:
    """What is understood of it all the same serves nothing."""
    document, place = REFUSED[what]
    assert any(fault.sentence.startswith(place) for fault in structural_faults(document))
    parsed = _read(document)
    retained = _objects(parsed)
    if document["kind"] in {"ReferenceGrant", "GatewayClass"}:
        assert retained == []
        (notice,) = parsed.notices
        assert f"{document['metadata']['name']} is left out: {place}" in notice
        return
    (one,) = retained
    assert isinstance(one, Gateway | GatewayRoute)
    parts = one.rules if isinstance(one, GatewayRoute) else one.listeners
    assert one.problem or [part.problem for part in parts if part.problem]


def test_a_fault_refuses_the_rule_or_the_listener_that_has_it_and_no_other() -> None:
    """Its neighbours serve, as those of a part that the parser refuses."""
    (routed,) = _objects(_read(REFUSED["a header without a value"][0]))
    assert isinstance(routed, GatewayRoute)
    assert [bool(each.problem) for each in routed.rules] == [False, True]
    assert not routed.problem
    assert [each.matches for each in routed.rules] == [each.matches for each in _parsed_alone()]
    (listening,) = _objects(_read(REFUSED["a mode of another case"][0]))
    assert isinstance(listening, Gateway)
    assert [bool(each.problem) for each in listening.listeners] == [False, True]


def _parsed_alone() -> tuple[Any, ...]:
    (alone,) = _objects(_read(REFUSED["a header without a value"][0], checked=False))
    assert isinstance(alone, GatewayRoute)
    return alone.rules


def test_every_kind_and_version_that_is_read_has_a_definition() -> None:
    """Or objects of it would be taken unchecked."""
    for kind in KINDS.values():
        for version in kind.versions:
            document = {"apiVersion": f"{GROUP}/{version}", "kind": kind.name, "metadata": {"name": "x"}, "spec": 1}
            assert structural_faults(document), (kind.name, version)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rules", "listeners", "name", "filters", "tls", "from", "to"]) | st.integers(), inner
        )
    ),
    max_leaves=20,
)


@given(kind=st.sampled_from(sorted(KINDS)), spec=_json)
def test_no_object_makes_it_raise_and_nothing_gets_less_refused(kind: str, spec: object) -> None:
    """Whatever stands there; what the parser refuses stays refused."""
    document = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "x", "namespace": "shop"}, "spec": spec}
    before, after = (_objects(_read(document, checked=checked)) for checked in (False, True))
    assert len(after) <= len(before)
    for one, other in zip(before, after, strict=False):
        if isinstance(one, Gateway | GatewayRoute | ListenerSet) and one.problem:
            assert isinstance(other, Gateway | GatewayRoute | ListenerSet)
            assert other.problem


def test_definitions_need_no_field_of_json_schema_that_they_lack() -> None:
    """A keyword with a meaning that this module doesn't give it would be passed over in silence."""
    existing = {"type", "description", "maxLength", "pattern", "minLength", "required", "default", "maxItems", "enum"}
    existing |= {"minimum", "maximum", "format", "minItems", "maxProperties", "oneOf", "anyOf", "not", "properties"}
    existing |= {"items", "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
    existing |= {"x-kubernetes-validations", "x-kubernetes-map-type"}
    used = set[str]()

    def walk(schema: JsonObject) -> None:
        used.update(schema)
        inner = [
            *schema.get("properties", {}).values(),
            schema.get("items"),
            schema.get("additionalProperties"),
            schema.get("not"),
        ]
        for each in (*inner, *schema.get("oneOf", ()), *schema.get("anyOf", ())):
            if isinstance(each, dict):
                walk(each)

    documents = json.loads(json.dumps(carried().channels["experimental"]))
    for document in documents:
        for version in document["spec"].get("versions", ()):
            walk(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    assert used <= existing
