"""What each load balancer shall be and what stands in the way: by plan after plan as by each plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.desired import ServingProxy, balancer_group
from locallb.model.desired import Group, ResourceKey
from locallb.model.identities import ContextName, Home, ObjectKey, ProxyName
from locallb.model.memory import AnyMemo
from locallb.model.routes import PodRoute
from locallb.model.snapshot import Access, HeldProxyAssignment, HostFacts, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement, Plan
from locallb.watch.failures import Failures
from locallb.watch.updates import Wanted
from tests.support.objects import DEMO, JsonObject, node, parsed, service

HOME = Home("p", "s", "/p")
SOURCES = [{"kubernetes": {"name": "demo"}}]
SHARED: Mapping[str, Any] = {"mode": "shared", "count": 2}
ON = {name: {"port": 8080 + number, "nodePort": 30080 + number} for number, name in enumerate("abc")}


def settings(proxies: Mapping[str, Any] = SHARED, **keys: object) -> Settings:
    """Read a stack's keys; two proxies serve all."""
    return parse_settings({"sources": SOURCES, "proxies": proxies, **keys})


def snapshot(*services: JsonObject, **others: Any) -> Snapshot:  # noqa: ANN401 - fields by name
    """Read Services of a running cluster, each served by the first of two proxies."""
    read = parsed(*services, node(meta={"name": "worker"}))
    stay = tuple(HeldProxyAssignment(one.key, ProxyName("shared-1")) for one in read.services)
    observed = Snapshot(
        HOME,
        read.services,
        nodes=read.nodes,
        access={DEMO: Access("/kubeconfig", ContextName("demo"))},
        assignments=stay,
    )
    return replace(observed, **{"stack_proxies": (ProxyName("shared-1"), ProxyName("shared-2")), **others})


def some(*names: str, **ports: object) -> list[JsonObject]:
    """Make Services with a port each, or with those given."""
    return [service(name, ports=[ports.get(name, ON[name])]) for name in names]


TWO = snapshot(*some("a", "b"))
SCTP = {"port": 7, "protocol": "SCTP", "nodePort": 30007}
MOVED = (HeldProxyAssignment(ObjectKey(DEMO, "shop", "a"), ProxyName("shared-2")), TWO.assignments[1])
CHANGES: Mapping[str, tuple[Snapshot, Settings]] = {
    "another port": (snapshot(*some("a", "b", a={**ON["a"], "port": 9090})), settings()),
    "another comes": (snapshot(*some("a", "b", "c")), settings()),
    "one goes": (snapshot(*some("a")), settings()),
    "one is refused": (snapshot(*some("a", "b", b=SCTP)), settings()),
    "another in its place": (snapshot(*some("a", "c")), settings()),
    "another proxy": (replace(TWO, assignments=MOVED), settings()),
    "another Envoy": (replace(TWO, host=HostFacts(envoy="9.9.9")), settings()),
    "a spare": (TWO, settings({**SHARED, "spares": 1})),
    "proxies of their own": (TWO, settings({"mode": "per-service"})),
    "names": (TWO, settings(dns={"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}]})),
}


@pytest.mark.parametrize("what", CHANGES)
def test_wanted_digests_are_those_of_the_plan_alone(what: str) -> None:
    """With the plan before as without, there and back; and something is wanted that wasn't."""
    wanted, memory = Wanted(), AnyMemo()
    before = dict(wanted.of(make_plan(TWO, settings(), memory)).digests)
    assert compared(wanted, make_plan(*CHANGES[what], memory)) != before
    assert compared(wanted, make_plan(TWO, settings(), memory)) == before


def compared(wanted: Wanted, plan: Plan) -> Mapping[ObjectKey, str]:
    """Return what is wanted, compared with what it is for who knows this plan only."""
    alone = Wanted()
    assert wanted.of(plan) == alone.of(plan)
    assert [*wanted.of(plan).digests] == [*alone.of(plan).digests]
    assert (wanted.spare, wanted.status_only, wanted.proxies) == (alone.spare, alone.status_only, alone.proxies)
    return wanted.of(plan).digests


def test_changed_rejections_and_routes_are_seen_beside_identical_placements() -> None:
    """Although the placements are the very same objects."""
    wanted, memory = Wanted(), AnyMemo()
    plans = [make_plan(snapshot(*some("a", "b", b={**SCTP, "port": number})), settings(), memory) for number in (7, 8)]
    assert [*map(id, plans[0].placements)] == [*map(id, plans[1].placements)]
    assert compared(wanted, plans[0]) != compared(wanted, plans[1])
    routed = settings(podRoutes="host", podCIDRs={"demo": ["10.42.0.0/16"]})
    with_routes = make_plan(TWO, routed, memory)
    fewer = replace(with_routes, routes=tuple(replace(one, routes=one.routes[:-1]) for one in with_routes.routes))
    assert [type(way) for one in with_routes.routes for way in one.routes] == [PodRoute]
    assert compared(wanted, with_routes) != compared(wanted, fewer)


def test_service_placed_alone_costs_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, however many others there are."""
    wanted, memory, requested = Wanted(), AnyMemo(), list[str]()
    first, second = TWO, snapshot(*some("a", "b", a={**ON["a"], "port": 9090}))
    wanted.of(make_plan(first, settings(), memory))

    def counted(placement: Placement, proxy: ServingProxy, paths: tuple[ResourceKey, ...]) -> Group:
        requested.append(placement.key.name)
        return balancer_group(placement, proxy, paths)

    monkeypatch.setattr("locallb.desired.balancer_group", counted)
    monkeypatch.setattr("locallb.desired.proxy_group", lambda planned: pytest.fail(str(planned.key)))
    retained = replace(second, services=(second.services[0], first.services[1]))
    assert compared_of(wanted, make_plan(retained, settings(), memory)) == {"a", "b"}
    assert requested == ["a"]


def compared_of(wanted: Wanted, plan: Plan) -> set[str]:
    """Return of which Services something is wanted."""
    return {key.name for key in wanted.of(plan).digests if key.cluster}


def test_obstacles_on_this_host_are_found_again_for_each_plan() -> None:
    """For served and for rejected Services; not what has to be done elsewhere."""
    failures, memory, host = Failures(lambda _proxies: {}), AnyMemo(), HostFacts(1024)
    low = {number: {"port": number, "name": f"p{number}", "nodePort": 30000 + number} for number in (80, 81, 8080)}
    stated: list[str] = []
    for several in ([low[80], low[8080]], [low[81], low[8080]], [low[80]], [SCTP], [{**SCTP, "name": "s"}, low[8080]]):
        made = make_plan(snapshot(service("a", ports=several), *some("b"), host=host), settings(), memory)
        assert failures.blocked_by(made) == Failures(lambda _proxies: {}).blocked_by(made)
        stated.append(failures.blocked_by(made))
    assert [": ".join(text.split(": ")[:2]) for text in stated] == [
        *(f"PortPrivileged: demo/shop/a port {number}/TCP" for number in (80, 81, 80)),
        *("", ""),
    ]
