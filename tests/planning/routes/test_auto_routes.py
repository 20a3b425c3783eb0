"""Routes to pods that no key asks for: only where they can harm nothing, and what users hear of them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import PodRouting, Settings
from locallb.desired import desired
from locallb.model.desired import RELAY, ResourceKey
from locallb.model.identities import ContextName
from locallb.model.objects import Via
from locallb.model.ranges import AddressRange
from locallb.model.relays import ForwardingFacts
from locallb.model.routes import POD_PROTOCOL, HostAddresses, HostRoute, PodRoute
from locallb.model.snapshot import Access, HostFacts, Snapshot
from locallb.model.texts import metric_of
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.runtimes import pod_routes
from locallb.sources import snapshot as reading
from tests.support.objects import DEMO, endpoint, endpoints, node, parsed, service
from tests.support.worlds import HOME

BRIDGE = HostRoute(ip_network("172.18.0.0/16"), "unicast", "br-kind")
OURS = HostRoute(
    ip_network("10.244.1.0/24"),
    "unicast",
    "br-kind",
    ip_address("172.18.0.3"),
    protocol=POD_PROTOCOL,
    metric=metric_of(HOME),
)
OTHERS = HostRoute(ip_network("10.244.0.0/16"), "unicast", "tun0", ip_address("192.0.2.1"))
LOOPBACK = AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255"))
MADE = ["10.244.1.0/24 via 172.18.0.3"]
SLOW = "demo: connections go by NodePorts"


def host(*routes: HostRoute, may: bool = True, inside: str = "172.18.0.0/16") -> HostFacts:
    """Have a host with a bridge that only containers are on."""
    everything = (BRIDGE, *routes)
    return HostFacts(
        addresses=HostAddresses((LOOPBACK,), routes=everything),
        routes=everything,
        may_route=may,
        inside=(ip_network(inside),),
    )


def cluster(of_host: HostFacts, *pods: str) -> Snapshot:
    """Read a running cluster of a Node and a Service with a NodePort."""
    read = parsed(service(), node("worker", "172.18.0.3"), endpoints(endpoint("10.244.1.7", "worker")))
    ranges = tuple(map(ip_network, pods or ("10.244.1.0/24",)))
    nodes = tuple(replace(each, pod_cidrs=ranges) for each in read.nodes)
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    return Snapshot(HOME, services=read.services, nodes=nodes, slices=read.slices, host=of_host, access=access)


def settings(**more: object) -> Settings:
    """Configure the cluster, and no routes."""
    return parse_settings({"sources": [{"kubernetes": {"name": "demo"}}]} | more)


def routes(plan: Plan) -> list[str]:
    """Return the routes of a plan."""
    return [str(route) for planned in plan.routes for route in planned.routes]


def test_routes_are_made_without_a_key_by_containers_of_this_host() -> None:
    """Connections go straight to pods, which is said; with the key `off` nothing of it is so."""
    plan = make_plan(cluster(host()), settings())
    assert routes(plan) == MADE
    assert plan.straight == ("demo: connections go straight to pods, by 1 route of local-lb's",)
    assert not plan.left_out
    off = make_plan(cluster(host()), settings(podRoutes="off"))
    assert (routes(off), off.straight) == ([], ())
    assert off.left_out[0].startswith(SLOW)
    assert settings().pod_routes is PodRouting.AUTO


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (cluster(host(inside="172.30.0.0/16")), SLOW),
        (cluster(host(may=False)), SLOW),
        (cluster(host(), "10.0.0.0/9"), SLOW),
        (cluster(host(), "10.244.0.0/16", "10.245.1.0/32"), SLOW),
        (cluster(host(OTHERS)), "demo: the route 10.244.1.0/24 via 172.18.0.3 to its pods isn't made"),
        (replace(cluster(host()), access={}), SLOW),
        (
            replace(cluster(host()), node_routes={DEMO: (PodRoute.parse("10.0.7.2/32 via 172.18.0.3"),)}),
            "demo: its Nodes",
        ),
    ],
    ids=["office network", "no right", "wide range", "wide ranges", "conflict", "manifests", "Nodes that are pods"],
)
def test_none_is_made_where_it_could_harm(snapshot: Snapshot, said: str) -> None:
    """NodePorts serve on, without a warning; a sentence says how there would be routes, or what is in the way."""
    plan = make_plan(snapshot, settings())
    assert (routes(plan), plan.straight, plan.notices) == ([], (), ())
    assert [text for text in plan.left_out if text.startswith(said)]


SILENT = "demo: none of its Nodes answers this host"


@pytest.mark.parametrize(
    ("facts", "via", "straight", "left_out"),
    [
        (
            ForwardingFacts(nodes_answer=False, requested=True, everywhere=True),
            Via.API,
            f"{SILENT}, so connections go",
            "",
        ),
        (
            ForwardingFacts(nodes_answer=False, requested=True),
            Via.NODE_PORTS,
            "",
            f"{SILENT}; with the right to create pods/portforward (deploy/rbac-relay.yaml)",
        ),
        (ForwardingFacts(), Via.NODE_PORTS, "", SLOW),
    ],
    ids=["by the API", "no right", "by NodePorts"],
)
def test_the_api_server_is_the_way_where_no_node_answers(
    facts: ForwardingFacts, via: Via, straight: str, left_out: str
) -> None:
    """With the right for it; the way, and the right that lacks, are sentences."""
    read = cluster(host(may=False))
    slices = tuple(
        replace(each, endpoints=tuple(replace(one, pod="web-1") for one in each.endpoints)) for each in read.slices
    )
    plan = make_plan(replace(read, slices=slices, forwarding={DEMO: facts}), settings())
    (placement,) = plan.placements
    assert placement.ports[0].via is via
    assert [text.startswith(straight) for text in plan.straight] == ([True] if straight else [])
    assert any(text.startswith(left_out) for text in plan.left_out) or not left_out
    relays = [planned.key for planned in plan.relays]
    assert len(relays) == (via is Via.API)
    followed = {
        way
        for groups in desired(plan).by_owner.values()
        for group in groups
        for each in group.members
        for way in each.follows
    }
    assert followed == {ResourceKey(RELAY, str(key)) for key in relays}


def test_a_wide_range_that_the_configuration_names_takes_the_key_as_well() -> None:
    """It was named for a key that isn't there any more, or for containers."""
    named = {"podCIDRs": {"demo": ["10.0.0.0/8"]}}
    assert routes(make_plan(cluster(host()), settings(**named))) == MADE
    assert routes(make_plan(cluster(host()), settings(**named, podRoutes="host"))) == ["10.0.0.0/8 via 172.18.0.3"]


def test_routes_stay_while_nobody_may_change_them() -> None:
    """As while Docker doesn't answer."""
    assert routes(make_plan(cluster(host(OURS, may=False)), settings())) == MADE


def test_containers_with_published_ports_get_routes_by_the_key_alone() -> None:
    """This host's table isn't theirs."""
    published = settings(runtime="docker", network={"publish": "kind"})
    assert routes(make_plan(cluster(host()), published)) == []


def test_an_engine_is_asked_only_where_clusters_are_its_own_and_until_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whom may not change routes himself; one that may is believed from then on."""
    answers = iter([False, True, True])
    monkeypatch.setattr(reading, "may_change_routes", lambda: False)
    monkeypatch.setattr(pod_routes, "helper_may_route", lambda: next(answers))
    lasting = iter([False, True])
    monkeypatch.setattr(pod_routes, "helper_may_remove_later", lambda: next(lasting))
    pod_routes._proven.cache_clear()
    own = settings(sources=[{"kind": "all"}])
    assert not reading._may_route(settings())
    assert not reading._may_route(settings(sources=[{"kind": "all"}], runtime="docker", network={"publish": "kind"}))
    assert [reading._may_route(own) for _ in range(4)] == [False, False, True, True]
    pod_routes._proven.cache_clear()
