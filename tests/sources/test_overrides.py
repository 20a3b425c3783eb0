"""Orders are kept as they were given, until they are over, and nobody else's file makes anything fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.errors import ClientError
from locallb.model.faults import NO_ORDER, WHOLE, Fault, Order, RequestDelay, RequestFailure, parse_fault
from locallb.model.gateway_objects import Gateway, GatewayRoute
from locallb.model.gateway_of_cluster import Ingress, ObjectOfCluster
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.sources.overrides import change_overrides, next_end, path_of, read_overrides, written
from tests.support.descriptors import few_files
from tests.support.gateway_objects import JsonObject, gateway, route
from tests.support.ingress_objects import ingress

LATER, SOONER, PAST = "2999-01-01T00:00:00Z", "2998-01-01T00:00:00Z", "2001-01-01T00:00:00Z"
WEB, API = (ObjectKey(ClusterName("c"), "n", name) for name in ("web", "api"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home("p", "dev", str(tmp_path))


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    refuse, shares = draw(st.integers(0, WHOLE)), st.integers(1, WHOLE)
    hang = draw(st.integers(0, WHOLE - refuse))
    reset = draw(st.integers(0 if refuse + hang else 1, WHOLE - refuse - hang)) if refuse + hang < WHOLE else 0
    delay = draw(st.none() | st.builds(RequestDelay, st.integers(1, 3_600_000), shares))
    status = draw(st.none() | st.builds(RequestFailure, st.integers(200, 599), shares))
    return Fault(LATER, refuse, hang, reset, delay, status)


@given(faults())
def test_a_fault_is_read_as_it_is_written(fault: Fault) -> None:
    """To the hundredth of a percent."""
    assert parse_fault(fault.terms) == fault


@given(st.dictionaries(st.sampled_from((WEB, API)), faults()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_orders_are_kept_as_they_were_given(home: Home, overrides: dict[ObjectKey, Fault]) -> None:
    """By Service, and without any there is no file."""
    change_overrides(home, (WEB, API), lambda _order: NO_ORDER)
    for key, fault in overrides.items():
        change_overrides(home, [key], lambda _order, fault=fault: Order(fault))  # type: ignore[misc]
    assert read_overrides(home).by_service == {key: Order(fault) for key, fault in overrides.items()}
    assert path_of(home).exists() == bool(overrides)


def test_expired_orders_count_as_absent(home: Home) -> None:
    """Ordered or annotated."""
    change_overrides(home, [WEB], lambda _order: Order(Fault(PAST, 1)))
    overrides = read_overrides(home)
    assert overrides.by_service == {}
    (service,) = overrides.of((Service(WEB, (), fault=Fault(PAST, 1)),))
    assert service.failing is None
    change_overrides(home, [API], lambda _order: Order(Fault(LATER, 1)))
    assert "web" not in path_of(home).read_text()


@pytest.mark.parametrize("kind", [gateway, route, ingress])
def test_an_annotation_of_what_is_routed_is_left_out_when_it_is_over(home: Home, kind: Callable[..., Any]) -> None:
    """And ends the snapshot while it isn't."""

    def read(until: str) -> tuple[ObjectOfCluster, ...]:
        document = kind()
        document["metadata"]["annotations"] = {"local-lb.dev/fault": f"status=503,until={until}"}
        return parse_objects(ClusterName("c"), [document]).gateway_api

    overrides = read_overrides(home)
    (over,), ahead = overrides.in_force(read(PAST)), read(LATER)
    assert isinstance(over.object, Gateway | GatewayRoute | Ingress)
    assert over.object.meta.fault is None
    assert overrides.in_force(ahead) is ahead
    assert next_end(Snapshot(home, gateway_api=ahead)) == LATER


def test_annotations_that_are_over_cost_no_comparison_of_objects(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would be the square of their number, at each event; others stay the very same."""

    def annotated_route(number: int, until: str) -> JsonObject:
        document = route(name=f"r{number}")
        document["metadata"]["annotations"] = {"local-lb.dev/fault": f"status=503,until={until}"}
        return document

    documents = [annotated_route(number, PAST if number % 2 else LATER) for number in range(4)]
    objects = parse_objects(ClusterName("c"), documents).gateway_api

    def compared(one: object, other: object) -> bool:
        raise AssertionError(f"{one} was compared with {other}")

    monkeypatch.setattr(GatewayRoute, "__eq__", compared)
    remaining = read_overrides(home).in_force(objects)
    assert [one is before for one, before in zip(remaining, objects, strict=True)] == [True, False] * 2
    assert [one.object.meta.fault is None for one in remaining if isinstance(one.object, GatewayRoute)] == [
        False,
        True,
    ] * 2


def test_a_command_counts_before_an_annotation(home: Home) -> None:
    """And the first end of those in force is known."""
    change_overrides(home, [WEB], lambda _order: Order(Fault(LATER, 1)))
    annotated = tuple(Service(key, (), fault=Fault(SOONER, number)) for number, key in enumerate((WEB, API), 2))
    overrides = read_overrides(home)
    services = overrides.of(annotated)
    assert [service.failing for service in services] == [Fault(LATER, 1), Fault(SOONER, 3)]
    assert next_end(Snapshot(home, services)) == SOONER
    assert next_end(Snapshot(home, overrides=overrides.by_service)) == LATER
    assert next_end(Snapshot(home, (Service(WEB, ()),))) == ""


def test_a_service_without_orders_stays_the_very_same(home: Home) -> None:
    """Whoever knows it need not look again."""
    service = Service(WEB, (), fault=Fault(LATER, 1))
    assert read_overrides(home).of((service,))[0] is service


def test_the_end_is_written_in_utc() -> None:
    """Wherever the clock is."""
    assert written(datetime(2026, 11, 22, 19, 0, 1, 999, tzinfo=UTC) + timedelta(seconds=1)) == "2026-11-22T19:00:02Z"


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_orders_file_is_read_or_reported(home: Home, text: str) -> None:
    """And nothing is raised."""
    path = path_of(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(UnicodeEncodeError):
        path.write_text(text)
    read_overrides(home)


def test_a_link_in_its_place_is_not_followed(home: Home, tmp_path: Path) -> None:
    """It is told."""
    path = path_of(home)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    assert "can't be read" in read_overrides(home).notices[0]


def test_orders_of_one_service_are_kept_beside_each_other(home: Home) -> None:
    """A drain has no end, and stays when a fault is over."""
    change_overrides(home, [WEB], lambda order: replace(order, drained=frozenset({"b", "a"})))
    change_overrides(home, [WEB], lambda order: replace(order, fault=Fault(PAST, 1)))
    assert read_overrides(home).by_service == {WEB: Order(drained=frozenset({"a", "b"}))}


@pytest.mark.parametrize(
    "content",
    [
        '{"version": 2, "orders": {"c/n/web": {"drained": ["a"]}}}',
        '{"version": 1, "orders": ["c/n/web"]}',
        '{"version": 1, "orders": {"c/n/web": {"drai',
        "[]",
        "[" * 100_000,
        "x" * (1 << 20) + "x",
    ],
    ids=["newer", "list", "cut short", "other", "deep", "large"],
)
def test_unreadable_orders_file_is_not_overwritten(home: Home, content: str) -> None:
    """Nothing is ordered instead, and why is told; reading tells it as well."""
    path = path_of(home)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ClientError, match=r"nothing was ordered: .*orders.*; mend or remove that file, and order"):
        change_overrides(home, [API], lambda order: replace(order, drained=frozenset({"b"})))
    assert path.read_text() == content
    assert str(path) in read_overrides(home).notices[0]


def test_a_link_is_not_replaced(home: Home, tmp_path: Path) -> None:
    """Whatever is behind it."""
    path = path_of(home)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClientError, match="it is a link"):
        change_overrides(home, [API], lambda _order: NO_ORDER)
    assert path.is_symlink()


@pytest.mark.parametrize(
    "entry",
    [{"drained": "worker-2"}, {"fault": "refuse=200%"}, {"fault": 7}, {"down": ["a"]}, ["a"], "a", None],
    ids=str,
)
def test_an_entry_that_cannot_be_read_hides_no_other(home: Home, entry: object) -> None:
    """It is told, is kept when others are ordered, and is overwritten by nobody."""
    change_overrides(home, [WEB], lambda order: replace(order, drained=frozenset({"a"})))
    document = json.loads(path_of(home).read_text())
    document["orders"][str(API)] = entry
    path_of(home).write_text(json.dumps(document))
    overrides = read_overrides(home)
    assert overrides.by_service == {WEB: Order(drained=frozenset({"a"}))}
    assert [str(API) in notice and str(path_of(home)) in notice for notice in overrides.notices] == [True]
    change_overrides(home, [WEB], lambda _order: NO_ORDER)
    assert json.loads(path_of(home).read_text())["orders"] == {str(API): entry}
    with pytest.raises(ClientError, match=r"nothing was ordered: .*; mend or remove it, and order again"):
        change_overrides(home, [WEB, API], lambda _order: Order(Fault(LATER, 1)))
    assert json.loads(path_of(home).read_text())["orders"] == {str(API): entry}


def test_orders_that_cannot_be_read_for_a_moment_are_not_over(home: Home) -> None:
    """Where no file can be opened: whoever is drained would serve again, and the other way round once it can."""
    change_overrides(home, [WEB], lambda order: replace(order, drained=frozenset({"a"})))
    for ask in (read_overrides, lambda home: change_overrides(home, [API], lambda order: order)):
        with few_files(0), pytest.raises(ClientError, match="raise the limit of open files"):
            ask(home)
    assert read_overrides(home).by_service == {WEB: Order(drained=frozenset({"a"}))}
