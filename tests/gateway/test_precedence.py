"""The order of routes: whatever the order they come in, the specification's precedence decides."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.http_routes import HttpRoute, Match, PathKind, PathMatch
from tests.support.gateway_objects import JsonObject, backend, gateway, hosts, only, route, service


def _names(routes: tuple[HttpRoute, ...]) -> list[str]:
    return [dict(one.request.set)["x-name"] for one in routes]


def _rule(name: str, **match: object) -> JsonObject:
    named = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-name", "value": name}]}}
    return {"matches": [match], "filters": [named], "backendRefs": [backend()]}


def _path(value: str, kind: str = "PathPrefix") -> JsonObject:
    return {"type": kind, "value": value}


IN_ORDER = (
    ("exact", {"path": _path("/a", "Exact")}),
    ("longer prefix", {"path": _path("/a/b")}),
    ("with a method", {"path": _path("/a"), "method": "GET"}),
    ("two headers", {"path": _path("/a"), "headers": [{"name": "x", "value": "1"}, {"name": "y", "value": "1"}]}),
    (
        "a header, two parameters",
        {
            "path": _path("/a"),
            "headers": [{"name": "x", "value": "1"}],
            "queryParams": [{"name": "q", "value": "1"}, {"name": "r", "value": "1"}],
        },
    ),
    (
        "a header, a parameter",
        {
            "path": _path("/a"),
            "headers": [{"name": "x", "value": "1"}],
            "queryParams": [{"name": "q", "value": "1"}],
        },
    ),
    ("a header", {"path": _path("/a"), "headers": [{"name": "x", "value": "1"}]}),
    ("nothing but the prefix", {"path": _path("/a")}),
    ("the root", {"path": _path("/")}),
)


@given(st.permutations(IN_ORDER))
def test_the_more_specific_match_comes_first(shuffled: list[tuple[str, Any]]) -> None:
    """In one route, whatever the order of its rules."""
    one = only(gateway(), route(*(_rule(name, **match) for name, match in shuffled)))
    assert _names(hosts(one)["*"]) == [name for name, _ in IN_ORDER]


@given(st.permutations(IN_ORDER))
def test_the_more_specific_match_comes_first_among_routes(shuffled: list[tuple[str, Any]]) -> None:
    """Age doesn't count before that."""
    routes = [
        route(_rule(name, **match), name=f"r{age}", created=f"2026-01-0{age + 1}T00:00:00Z")
        for age, (name, match) in enumerate(shuffled)
    ]
    assert _names(hosts(only(gateway(), *routes))["*"]) == [name for name, _ in IN_ORDER]


@pytest.mark.parametrize("shuffled", tuple(permutations(range(3))))
def test_equal_matches_are_ordered_by_age_name_and_rule(shuffled: tuple[int, ...]) -> None:
    """Nothing else decides."""
    young = route(_rule("young"), name="a", created="2026-02-01T00:00:00Z")
    old = route(_rule("old b"), name="b", created="2026-01-01T00:00:00Z")
    twice = route(_rule("old a, first"), _rule("old a, second"), name="aa", created="2026-01-01T00:00:00Z")
    routes = [(young, old, twice)[number] for number in shuffled]
    assert _names(hosts(only(gateway(), *routes))["*"]) == ["old a, first", "old a, second", "old b", "young"]


def test_the_more_specific_hostname_comes_before_any_match() -> None:
    """And what it doesn't match is found by the wildcard's route."""
    exact = _rule("wild, exact", path=_path("/a", "Exact"))
    one = only(
        gateway(),
        route(exact, name="wild", hostnames=["*.test"]),
        route(_rule("a, prefix"), name="a", hostnames=["a.test"]),
    )
    assert _names(hosts(one)["a.test"]) == ["a, prefix", "wild, exact"]
    assert _names(hosts(one)["*.test"]) == ["wild, exact"]


def test_weights_and_what_leads_nowhere_keep_their_share() -> None:
    """A reference that leads nowhere answers 500 for its share; one without weight gets nothing."""
    refs = [backend(weight=9), backend("gone", weight=1), backend("api", 8080, weight=0)]
    one = only(gateway(), route({"backendRefs": refs}), service())
    (served,) = hosts(one)["*"]
    (name,) = one.targets
    assert [(target.upstream, target.weight) for target in served.action.targets] == [(name, 9), ("", 1)]  # type: ignore[union-attr]


def test_grpc_methods_sort_by_service_then_method() -> None:
    """The longest service first."""
    rules = [
        {"matches": [{"method": method}], "backendRefs": [backend()]}
        for method in ({}, {"service": "a.B"}, {"service": "a.B", "method": "C"}, {"service": "a.Bcd"})
    ]
    one = only(gateway(), route(*rules, kind="GRPCRoute"))
    found = [getattr(each.match.path, "service", None) for each in hosts(one)["*"]]
    assert found == ["a.Bcd", "a.B", "a.B", None]


def test_a_route_without_matches_takes_everything() -> None:
    """By the prefix /, as the API's default has it."""
    one = only(gateway(), route({"backendRefs": [backend()]}))
    assert [each.match for each in hosts(one)["*"]] == [Match(PathMatch(PathKind.PREFIX, "/"))]
