"""What Services are told while no backend of a port takes connections: the address, and why it doesn't serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.desired import desired
from locallb.kubernetes.events import news, placement_events
from locallb.kubernetes.status import SERVED, publication
from locallb.model.reasons import Condition, Event
from locallb.planning.planned import Placement, Plan
from locallb.planning.service_rows import Observation
from locallb.planning.statuses import SilentPort, is_answered, mark_unanswered, published_silence, withdraw
from tests.support.planned_services import plan_of


def silent(placement: Placement) -> frozenset[SilentPort]:
    return frozenset(SilentPort(placement.key, port.port, name) for port in placement.ports for name in port.silence)


def reported(plan: Plan, silence: frozenset[SilentPort]) -> tuple[Placement, Placement]:
    """Return the first placement, as planned and while these are silent."""
    return plan.placements[0], mark_unanswered(plan, silence).placements[0]


def test_the_condition_says_why_and_the_address_stays() -> None:
    """What others serve beside it in the same proxy isn't changed."""
    plan = plan_of("shared")
    silence = silent(plan.placements[0])
    before, after = reported(plan, silence)
    assert publication(after).ingress == publication(before).ingress != ()
    (condition,) = publication(after).conditions
    assert (condition.status, condition.reason) == ("False", "BackendsDown")
    assert condition.message.startswith("demo/shop/api port 8080/TCP: its backend ")
    marked = mark_unanswered(plan, silence)
    assert marked.placements[1] is plan.placements[1]
    digests = desired(plan).digests
    assert {key for key, digest in desired(marked).digests.items() if digests[key] != digest} == {before.key}


def test_events_say_that_it_ended_and_that_it_serves_again() -> None:
    """As for a proxy that was away."""
    plan = plan_of("per-service")
    before, after = reported(plan, silent(plan.placements[0]))
    (event,) = placement_events(after)
    assert (event.type, event.reason, event.note.partition(":")[0]) == (
        "Warning",
        "SyncLoadBalancerFailed",
        "BackendsDown",
    )
    retry = news(placement_events(after), placement_events(before))
    assert retry == (Event("Normal", "EnsuredLoadBalancer", f"serves 8080/TCP at {before.addresses[0]}"),)


def test_a_proxy_that_is_away_says_more_than_its_backends() -> None:
    """Nobody reaches the address."""
    plan = plan_of("per-service")
    first = plan.placements[0]
    after = withdraw(mark_unanswered(plan, silent(first)), {first.proxy}).placements[0]
    assert [condition.reason for condition in publication(after).conditions] == ["ProxyDown"]


def test_where_nobody_is_told_nothing_is_marked() -> None:
    """Manifests have no status, and what isn't planned has none either."""
    plan, manifests = plan_of("shared"), plan_of("shared", live=False)
    assert mark_unanswered(plan, frozenset()) is plan
    assert mark_unanswered(manifests, silent(manifests.placements[0])) == manifests
    assert mark_unanswered(Plan(), silent(plan.placements[0])).placements == ()


PORTS = [{"name": name, "port": port, "nodePort": 30000 + port} for name, port in (("a", 80), ("b", 81), ("c", 82))]
THREE = plan_of("shared", ports=PORTS).placements[0]


@given(st.sets(st.sampled_from(sorted(silent(THREE), key=str))))
def test_what_was_published_is_read_as_what_was_silent(ports: set[SilentPort]) -> None:
    """Whatever became of those who published it."""
    plan = Plan((THREE,))
    condition = publication(mark_unanswered(plan, ports).placements[0]).conditions[0]
    assert published_silence(THREE, condition) == ports


@pytest.mark.parametrize(
    ("condition", "is_silence"),
    [
        (SERVED, False),
        (replace(SERVED, status="Unknown", reason="Waiting"), False),
        (replace(SERVED, status="False", reason="NoBackends", message="none"), False),
        (replace(SERVED, status="False", reason="BackendsDown", message="c/n/other: in other words"), True),
        (replace(SERVED, status="False", reason="Unreachable", message="c/n/other: no route to its pods"), False),
    ],
)
def test_a_condition_that_names_no_port_stands_for_all_if_it_is_about_backends(
    condition: Condition,
    is_silence: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Backends may be others now, of which nothing better is known."""
    assert published_silence(THREE, condition) == (silent(THREE) if is_silence else frozenset())


@given(st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3), st.booleans())
def test_a_service_is_answered_if_each_of_its_ports_is(healthy: list[bool | None], is_published: bool) -> None:  # noqa: FBT001
    """And nothing else is published of it."""
    names = [port.upstream for port in sorted(silent(THREE), key=str)]
    answer = Observation(healthy={name: each for name, each in zip(names, healthy, strict=True) if each is not None})
    marked = mark_unanswered(Plan((THREE,)), silent(THREE) if is_published else ()).placements[0]
    assert is_answered(marked, answer) == (healthy == [True] * 3 and not is_published)
    assert not is_answered(marked, None)
