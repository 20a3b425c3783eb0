"""Whatever isn't understood of an Ingress, nobody else gets the requests that it would have taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.settings import Dialect
from locallb.ingress import translation
from locallb.ingress.annotations import PREFIX
from tests.support.evaluation import RUBBISH, answered, broken, fields
from tests.support.gateway_objects import service
from tests.support.ingress_objects import JsonObject, ingress, only, path, rule

HOSTS, PATHS = ("a.test", "b.a.test", "my_host.test"), ("/", "/x", "/x/y", "/xy")
GUARDED = rule(path("/admin", to="guarded"), host="a.test")
OPEN = ingress(rule(path("/", to="open"), host="a.test"), rule(path("/", to="open")), name="open")
SERVICES = [service("guarded"), service("open")]

_paths = st.lists(
    st.tuples(st.sampled_from(PATHS), st.sampled_from(["Exact", "Prefix", "ImplementationSpecific"])),
    min_size=1,
    max_size=2,
    unique=True,
)
_rules = st.lists(st.tuples(st.sampled_from(["", "a.test", "*.a.test"]), _paths), min_size=1, max_size=2)
_annotations = st.sampled_from([{}, {"use-regex": "true"}, {"whitelist-source-range": "10.0.0.0/8"}])
_ingresses = st.lists(st.tuples(_rules, _annotations), min_size=1, max_size=2)
Drawn = list[tuple[list[tuple[str, list[tuple[str, str]]]], dict[str, str]]]


def documents(drawn: Drawn) -> list[JsonObject]:
    """Make Ingresses of which each path has a backend of its own, and these."""
    made: list[JsonObject] = []
    services: list[JsonObject] = []
    for number, (rules, stated) in enumerate(drawn):
        entries = []
        for place, (host, paths) in enumerate(rules):
            names = [f"s{number}-{place}-{order}" for order in range(len(paths))]
            listed = [path(value, kind, name) for (value, kind), name in zip(paths, names, strict=True)]
            services += map(service, names)
            entries.append(rule(*listed, host=host))
        metadata = {"annotations": {f"{PREFIX}{key}": value for key, value in stated.items()}}
        made.append(ingress(*entries, name=f"i{number}", metadata=metadata))
    return [*made, *services]


def _breakable(found: list[JsonObject]) -> list[tuple[str | int, ...]]:
    """Return the fields whose meaning lies within their host."""
    listed = [(number, *path) for number, one in enumerate(found) if one["kind"] == "Ingress" for path in fields(one)]
    return [path for path in listed if {"paths", "http", "annotations"} & set(path)]


@given(_ingresses, st.data())
def test_no_request_gets_past_a_path_that_is_not_understood(drawn: Drawn, data: st.DataObject) -> None:
    """Whatever stands in one field: each request is answered by the backend of before, or by none."""
    found = documents(drawn)
    where = data.draw(st.sampled_from(_breakable(found)))
    at: Any = found
    for key in where:
        at = at[key]
    texts = {"pathType": ["Glob"], "Exact": [], "use-regex": ["si"], "whitelist-source-range": ["everybody", ""]}
    rubbish = data.draw(st.sampled_from([*RUBBISH[type(at)], *texts.get(str(where[-1]).rpartition("/")[2], [])]))
    before = only(*found, annotations=frozenset(Dialect))
    after = only(*broken(found, where, rubbish), annotations=frozenset(Dialect))
    for host in HOSTS:
        for requested in PATHS:
            was, is_now = answered(before, host, requested), answered(after, host, requested)
            assert is_now == was or is_now in {"503", "404"}, (host, requested)


ODD: dict[str, JsonObject] = {
    "without a pathType": {"pathType": None},
    "of a later pathType": {"pathType": "Glob"},
    "with a blank": {"path": "/admin /x"},
    "that is an expression": {"path": "/admin(/|$)(.*)", "pathType": "ImplementationSpecific"},
    "to a resource": {"backend": {"resource": {"kind": "Bucket", "name": "b"}}},
    "to no port": {"backend": {"service": {"name": "guarded"}}},
    "to nothing": {"backend": "guarded"},
}


@pytest.mark.parametrize("case", ODD)
def test_a_path_that_is_not_served_keeps_its_requests(case: str) -> None:
    """They are answered 503, and by no broader path, of the same or of another Ingress."""
    entry = deepcopy(GUARDED)
    entry["http"]["paths"][0] |= ODD[case]
    one = only(ingress(entry), OPEN, *SERVICES)
    assert answered(one, "a.test", "/admin") == "503"
    assert answered(one, "a.test", "/shop") == "open"
    assert answered(one, "b.test", "/admin") == "open"


@pytest.mark.parametrize("rules", [{"paths": "all"}, "all", {"paths": ["all"]}])
def test_a_host_whose_paths_are_not_understood_is_refused(rules: object) -> None:
    """Every request for it, and none for other hosts."""
    one = only(ingress({"host": "a.test", "http": rules}), OPEN, *SERVICES)
    assert (answered(one, "a.test", "/x"), answered(one, "b.test", "/x")) == ("503", "open")


def test_a_host_that_dns_does_not_have_is_not_served_by_a_rule_for_every_host() -> None:
    """Requests may name it all the same."""
    one = only(ingress(rule(path("/", to="guarded"), host="my_host.test")), OPEN, *SERVICES)
    assert (answered(one, "my_host.test", "/x"), answered(one, "b.test", "/x")) == ("503", "open")


def test_an_ingress_with_metadata_that_is_not_understood_does_not_vanish() -> None:
    """Its annotations might keep clients out."""
    guarded = ingress(GUARDED, metadata={"annotations": {"x": 5}})
    one = only(guarded, OPEN, *SERVICES)
    assert (answered(one, "a.test", "/admin"), answered(one, "a.test", "/shop")) == ("503", "open")


def test_hosts_of_an_ingress_for_which_there_is_no_room_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules can't be told apart then, so none of their requests goes elsewhere."""
    monkeypatch.setattr(translation, "MAX_ENTRIES", 8)
    many = rule(*(path(f"/p{number}", to="guarded") for number in range(20)), host="a.test")
    one = only(ingress(many, name="z-late"), OPEN, *SERVICES)
    assert (answered(one, "a.test", "/p7"), answered(one, "b.test", "/p7")) == ("503", "open")


@given(_rules, _rules, st.data())
def test_a_refused_ingress_takes_no_request_of_an_older_one_of_another_namespace(
    old: list[tuple[str, list[tuple[str, str]]]], new: list[tuple[str, list[tuple[str, str]]]], data: st.DataObject
) -> None:
    """But for requests that its paths can mean, as they were or as beginnings, or of hosts named more exactly."""
    first = _of_namespace("first", old, "2026-01-01T00:00:00Z")
    late = _of_namespace("late", new, "2026-01-02T00:00:00Z")
    where = data.draw(st.sampled_from([path for path in fields(late) if "paths" in path]))
    at: Any = late
    for key in where:
        at = at[key]
    changed = broken([late], (0, *where), data.draw(st.sampled_from([*RUBBISH[type(at)], *_UNCLEAR])))
    every = _of_namespace("late", [(host, [("/", "Prefix")]) for host, _ in new], "2026-01-02T00:00:00Z")
    services = [service(name, namespace=name) for name in ("first", "late")]
    alone, refused = only(first, *services), only(first, *changed, *services)
    before, whole = only(first, late, *services), only(first, every, *services)
    written = [each for text in _paths_in(changed) for each in _beginning_with(_literal(text))]
    beginnings = [
        (host, [*(each for path, _ in paths for each in [(path, "Prefix"), *_beginning_with(path)]), *written])
        for host, paths in new
    ]
    widest = only(first, _of_namespace("late", beginnings, "2026-01-02T00:00:00Z"), *services)
    many = deepcopy(late)
    for entry in many["spec"]["rules"]:
        entry["http"]["paths"] *= 50
    with mock.patch.object(translation, "MAX_ENTRIES", 50):
        too_large = only(first, many, *services)
    for host in HOSTS:
        for requested in PATHS:
            if answered(alone, host, requested) == "first" and answered(whole, host, requested) == "first":
                assert answered(too_large, host, requested) == "first", (host, requested)
                intended = {answered(before, host, requested), answered(widest, host, requested)}
                assert "late" in intended or answered(refused, host, requested) == "first", requested


_UNCLEAR = ["/((((", "/x((((", "Glob"]


def _beginning_with(text: str) -> list[tuple[str, str]]:
    """Return the paths that another type than Exact and Prefix could take for a text, but for all of them."""
    return [(requested, "Exact") for requested in PATHS if requested.startswith(text) and text != "/"]


def _literal(text: str) -> str:
    """Return the beginning of a path that is the same whatever its type is."""
    return re.split(r"[^\w/-]", text, maxsplit=1)[0]


def _paths_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - a document, or a part of one
    """Return the texts of all paths, wherever they are."""
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key == "path" and isinstance(text, str))
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _paths_in(part)


def _of_namespace(name: str, rules: list[tuple[str, list[tuple[str, str]]]], created: str) -> JsonObject:
    """Make an Ingress of a namespace that leads to the Service of this name there."""
    made = [rule(*(path(value, kind, name) for value, kind in paths), host=host) for host, paths in rules]
    return ingress(*made, namespace=name, metadata={"creationTimestamp": created})


@pytest.mark.parametrize("unclear", [path("/((((", "ImplementationSpecific", "late"), "no path"])
def test_a_refused_path_stops_its_own_namespace_beside_others(unclear: JsonObject) -> None:
    """What it might match reaches no path of its author, and older Ingresses of others keep their requests."""
    late = _of_namespace("late", [("a.test", [("/x", "Prefix")])], "2026-01-02T00:00:00Z")
    late["spec"]["rules"][0]["http"]["paths"].append(unclear)
    first = _of_namespace("first", [("a.test", [("/", "Prefix"), ("/xy", "Exact")])], "2026-01-01T00:00:00Z")
    one = only(first, late, *(service(name, namespace=name) for name in ("first", "late")))
    assert [answered(one, "a.test", requested) for requested in ("/x/y", "/xy", "/z")] == ["503", "first", "first"]
