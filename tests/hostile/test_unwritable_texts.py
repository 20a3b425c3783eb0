"""One object with a text that no file, request or terminal takes is refused alone, whatever its kind and its source."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from locallb.kubernetes.answers import list_page, watch_line
from locallb.kubernetes.object_parsing import Parsed, parse_objects
from locallb.model.identities import ClusterName
from locallb.model.reasons import Reason
from locallb.model.texts import TEXT_FAULT, cleaned
from locallb.sources.entries import ManifestsSource
from locallb.sources.manifests import read_manifests
from locallb.sources.readings import ReadCache

C = ClusterName("c")
ROUTE = "gateway.networking.k8s.io/v1"
GOOD: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "good",
            "namespace": "n",
            "uid": "u",
            "labels": {"app": "a"},
            "annotations": {"local-lb.dev/sharing-key": "k", "note": "several\nlines"},
        },
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "name": "http"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "good", "labels": {"a": "b"}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "good", "namespace": "n", "labels": {"kubernetes.io/service-name": "good"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80}],
        "endpoints": [{"addresses": ["10.0.0.2"], "nodeName": "good"}],
    },
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "good", "labels": {"team": "a"}}},
    {"apiVersion": ROUTE, "kind": "GatewayClass", "metadata": {"name": "good"}, "spec": {"controllerName": "x.y/z"}},
    {
        "apiVersion": ROUTE,
        "kind": "Gateway",
        "metadata": {"name": "good", "namespace": "n"},
        "spec": {"gatewayClassName": "c", "listeners": [{"name": "h", "port": 80, "protocol": "HTTP"}]},
    },
    {
        "apiVersion": ROUTE,
        "kind": "HTTPRoute",
        "metadata": {"name": "good", "namespace": "n"},
        "spec": {
            "parentRefs": [{"name": "good"}],
            "hostnames": ["a.test"],
            "rules": [{"backendRefs": [{"name": "good", "port": 80}]}],
        },
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "good", "namespace": "n"},
        "spec": {
            "ingressClassName": "c",
            "tls": [{"hosts": ["a.test"], "secretName": "s"}],
            "defaultBackend": {"service": {"name": "good", "port": {"number": 80}}},
        },
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "good"},
        "spec": {"controller": "x.y/z"},
    },
]
TLS = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "s"}, "data": {}}
UNWRITABLE = ["\ud800", "\udfff", "\x00", "a\udc80b"]
NAMES = ["\x1b[31m", "\x7f", "\x9b", "\x08"]


def bad_of(document: dict[str, Any]) -> dict[str, Any]:
    bad = copy.deepcopy(document)
    bad["metadata"]["name"] = "bad"
    return bad


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Return the path of each text and each object in it."""
    if isinstance(value, str | dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def spoilt(document: dict[str, Any], path: tuple[str | int, ...], text: str) -> dict[str, Any]:
    """Add `text` to the text at a path, or as a key to the object."""
    bad = bad_of(document)
    at: Any = bad
    for key in path[:-1]:
        at = at[key]
    if not path:
        bad[f"k{text}"] = "v"
    elif isinstance(at[path[-1]], dict):
        at[path[-1]][f"k{text}"] = "v"
    else:
        at[path[-1]] += text
    return bad


PLACES = [(number, path) for number, document in enumerate(GOOD) for path in places(document)]
PLACES = [(number, path) for number, path in PLACES if path[:1] not in {("kind",), ("apiVersion",)}]


def written(value: object) -> str:
    """Write it as a file would have it."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def check(parsed: Parsed) -> None:
    """Check that all of it can be written, and that the good objects are as they are alone."""
    text = written(parsed)
    assert "\\u0000" not in text
    alone = parse_objects(C, GOOD)
    assert (parsed.services, parsed.nodes, parsed.slices) == (alone.services, alone.nodes, alone.slices)
    assert all(read in parsed.gateway_api for read in alone.gateway_api)
    assert all(notice.isprintable() for notice in parsed.notices)
    assert all(malformed.problem.message.isprintable() for malformed in parsed.malformed)


@given(st.sampled_from(PLACES), st.sampled_from(UNWRITABLE))
def test_whatever_is_unwritable_anywhere_refuses_its_object_alone(
    place: tuple[int, tuple[str | int, ...]], text: str
) -> None:
    """In a value or in a key, of each kind: it is reported, and its neighbours are as they would be without it."""
    number, path = place
    free = path[:2] in {("metadata", "labels"), ("metadata", "annotations")} and isinstance(path[-1], str)
    assume(not (free and len(path) > len(path[:2]) and "\x00" in text))
    bad = spoilt(GOOD[number], path, text)
    parsed = parse_objects(C, [*GOOD, bad])
    check(parsed)
    problems = [getattr(read.object, "problem", "") for read in parsed.gateway_api]
    assert parsed.malformed or parsed.notices or any(problems)


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("field", ["uid", "name", "namespace"])
def test_control_characters_in_what_names_an_object_refuse_it(field: str, text: str) -> None:
    """They would reach terminals, logs and requests."""
    bad = bad_of(GOOD[0])
    bad["metadata"][field] = f"b{text}"
    parsed = parse_objects(C, [*GOOD, bad])
    check(parsed)
    assert [malformed.problem.reason for malformed in parsed.malformed] == [Reason.MALFORMED]
    assert parsed.malformed[0].uid.isprintable()


@pytest.mark.parametrize(
    "note", ["several\nlines", "tab\there", "\x1b[1mbold\x1b[0m", "\\u0000 in words", "\U0001f600"]
)
def test_free_text_in_an_annotation_is_nobodys_mistake(note: str) -> None:
    """An API server takes it, and nothing is made of it."""
    document = copy.deepcopy(GOOD[0])
    document["metadata"]["annotations"]["note"] = note
    parsed = parse_objects(C, [document])
    assert [service.annotations["note"] for service in parsed.services] == [note]
    assert (parsed.notices, parsed.malformed) == ((), ())


def test_a_sharing_key_is_printable() -> None:
    """It names a group in messages."""
    bad = bad_of(GOOD[0])
    bad["metadata"]["annotations"]["local-lb.dev/sharing-key"] = "k\x1b"
    (malformed,) = parse_objects(C, [bad]).malformed
    assert "local-lb.dev/sharing-key" in malformed.problem.message


@pytest.mark.parametrize("text", UNWRITABLE)
def test_a_directory_of_manifests_is_read_and_kept_beside_such_an_object(tmp_path: Path, text: str) -> None:
    """As JSON, and again from the last good reading."""
    (tmp_path / "m").mkdir()
    bad = spoilt(GOOD[0], ("metadata", "uid"), text)
    secret = {**TLS, "metadata": {"name": f"s{text}", "namespace": "n"}}
    (tmp_path / "m/a.json").write_text("\n".join(map(json.dumps, [*GOOD, bad, secret])))
    source = ManifestsSource(C, "m")
    read = read_manifests(source, tmp_path, tmp_path / "readings", keep=True)
    assert [service.key.name for service in read.parsed.services] == ["good"]
    assert [malformed.key.name for malformed in read.parsed.malformed] == ["bad"]
    assert "metadata.uid has U+" in read.parsed.malformed[0].problem.message
    written(read.parsed)
    retained = ReadCache(tmp_path / "readings").load(C)
    assert retained is not None
    json.dumps(retained, ensure_ascii=False).encode()
    (tmp_path / "m/a.json").write_text("{")
    retry = read_manifests(source, tmp_path, tmp_path / "readings", keep=True)
    assert [malformed.problem for malformed in retry.parsed.malformed] == [
        malformed.problem for malformed in read.parsed.malformed
    ]


def test_a_null_character_in_yaml_is_one_objects_mistake(tmp_path: Path) -> None:
    """Written as an escape, which YAML takes."""
    (tmp_path / "a.yaml").write_text(
        "{apiVersion: v1, kind: Service, metadata: {name: bad, uid: "
        '"\\0"}, spec: {type: LoadBalancer, ports: [{port: 1}]}}'
    )
    (tmp_path / "b.json").write_text(json.dumps(GOOD[0]))
    parsed = read_manifests(ManifestsSource(C, "."), tmp_path, tmp_path / "readings", keep=True).parsed
    assert [service.key.name for service in parsed.services] == ["good"]
    assert [malformed.key.name for malformed in parsed.malformed] == ["bad"]


@pytest.mark.parametrize("text", UNWRITABLE)
def test_what_an_api_answers_can_be_written(text: str) -> None:
    """In pages of a list and in lines of a watch; the object keeps its fault."""
    service = spoilt(GOOD[0], ("metadata", "uid"), text)
    service["metadata"]["resourceVersion"] = "7"
    page = {"kind": "ServiceList", "metadata": {"resourceVersion": "1"}, "items": [service, GOOD[0]]}
    bad, good = list_page(json.dumps(page).encode(), "v1", "Service").objects
    assert bad[TEXT_FAULT].startswith("metadata.uid has U+")
    assert good == GOOD[0]
    line = watch_line(json.dumps({"type": "ADDED", "object": service}).encode(), "v1", "Service")
    assert line.object == bad


def test_an_object_without_end_is_refused_alone() -> None:
    """A recursion limit is no sentence."""
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"a": deep}
    parsed = parse_objects(C, [*GOOD, {**bad_of(GOOD[0]), "spec": {**GOOD[0]["spec"], "x": deep}}])
    check(parsed)
    assert "nested deeper than 200" in parsed.malformed[0].problem.message


@given(
    st.recursive(st.text() | st.none() | st.integers(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=9)
)
def test_cleaning_changes_what_is_unwritable_only_and_once(value: object) -> None:
    """An object without it stays the very same, and a cleaned one is clean."""
    document = {"metadata": value}
    once = cleaned(document)
    msgspec.json.encode(once)
    assert cleaned(once) == once
    assert once is document or TEXT_FAULT in once
