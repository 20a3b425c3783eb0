"""What Services are told while their proxy can't be brought back: no address, and why."""

from __future__ import annotations

from locallb.desired import desired
from locallb.kubernetes.events import news, placement_events
from locallb.kubernetes.status import publication
from locallb.model.reasons import Event
from locallb.planning.statuses import withdraw
from tests.support.planned_services import plan_of


def test_only_services_of_a_lost_proxy_are_withdrawn() -> None:
    """One of its own concerns one Service, a shared one all."""
    own, shared = plan_of("per-service"), plan_of("shared")
    for plan, reported in ((own, 1), (shared, 2)):
        down = withdraw(plan, {plan.placements[0].proxy})
        assert sum(placement.withdrawn is not None for placement in down.placements) == reported
        assert [placement.addresses for placement in down.placements] == [
            placement.addresses for placement in plan.placements
        ]
        assert (down.proxies, down.rejections) == (plan.proxies, plan.rejections)


def test_the_status_has_no_address_and_the_condition_says_why() -> None:
    """The address stays claimed all the same; what is told is another digest, so it is brought about."""
    plan = plan_of("per-service")
    down = withdraw(plan, {plan.placements[0].proxy})
    before, after = plan.placements[0], down.placements[0]
    assert publication(after).ingress == ()
    (reported,) = publication(after).conditions
    assert (reported.status, reported.reason) == ("False", "ProxyDown")
    assert reported.message.startswith("demo/shop/api: its proxy ended or hangs, and isn't back yet")
    assert desired(down).digests[after.key] != desired(plan).digests[before.key]
    (event,) = placement_events(after)
    assert (event.type, event.reason) == ("Warning", "SyncLoadBalancerFailed")
    retry = news(placement_events(after), placement_events(before))
    assert retry == (Event("Normal", "EnsuredLoadBalancer", f"serves 8080/TCP at {before.addresses[0]}"),)


def test_while_all_serve_the_plan_is_the_very_same() -> None:
    """Nothing is compared or told again; where nobody is told of addresses nothing is withdrawn either."""
    plan, manifests = plan_of("shared"), plan_of("shared", live=False)
    assert withdraw(plan, ()) is plan
    assert withdraw(plan, {"another"}) == plan
    assert withdraw(manifests, {manifests.placements[0].proxy}) == manifests
