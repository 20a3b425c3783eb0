"""What Services are told while no backend of a port takes connections: the address, and why it doesn't serve."""

from __future__ import annotations

from locallb.desired.groups import desired
from locallb.kubernetes.events import news, placement_events
from locallb.kubernetes.service_status import publication
from locallb.model.status_entries import Event
from locallb.planning.planned import Placement, Plan
from locallb.planning.statuses.unanswered import SilentPort, mark_unanswered
from locallb.planning.statuses.withdrawal import withdraw
from tests.planning.statuses.test_withdrawal import plan_of


def silent(placement: Placement) -> frozenset[SilentPort]:
    """Name all ports of a placement."""
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
