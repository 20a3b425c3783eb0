"""What Services are told while their proxy can't be brought back: no address, and why."""

from __future__ import annotations

from locallb.config.parsing import parse_settings
from locallb.desired import desired
from locallb.kubernetes.events import news, placement_events
from locallb.kubernetes.status import publication
from locallb.model.identities import ContextName, Home
from locallb.model.reasons import Event
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.statuses import withdraw
from tests.planning.objects import DEMO, node, parsed, service


def plan_of(sharing: str, *, live: bool = True, ports: object = None) -> Plan:
    """Plan two Services, the first one with these ports."""
    settings = parse_settings(
        {
            "sources": [{"kubernetes": {"name": "demo"}}],
            "pools": [{"name": "p", "addresses": ["127.77.0.0/28"]}],
            "proxies": {"mode": sharing},
        }
    )
    read = parsed(service("api", ports=ports) if ports else service("api"), service("web"), node())
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))} if live else {}
    return make_plan(Snapshot(Home("p", "s", "/p"), services=read.services, nodes=read.nodes, access=access), settings)


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
