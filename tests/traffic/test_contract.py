"""The contract of a LoadBalancer through real traffic: pods behind NodePorts of a real kube-proxy, every change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends import refused
from tests.support.control_plane import Document
from tests.support.network_spaces import inside
from tests.support.real_nodes import NEIGHBOURS, World
from tests.support.stages import Stage, envoys
from tests.support.traffic import (
    DUAL,
    LOCAL,
    addresses,
    answer,
    answers,
    condition,
    finalizers,
    follows,
    ingress,
    make,
    sees_endpoints,
    served,
    silent,
    up_and_serving,
    watching,
)
from tests.support.watching import eventually
from tests.traffic.conftest import both_modes

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]


@pytest.fixture
def web(world: World, play: Stage) -> list[str]:
    """Serve a dual-stack Service with one pod, TCP and UDP; give its addresses."""
    make(world, "web", served(80), served(80, "UDP"), **DUAL)
    world.pod("a", world.nodes["kind-worker"])
    up_and_serving(world, play)
    return addresses(world)


def everything(at: list[str], number: int = 80) -> set[str]:
    """Ask for TCP and UDP at every address."""
    return {answer(address, number, protocol) for address in at for protocol in ("TCP", "UDP")}


@both_modes
def test_a_service_serves_tcp_and_udp_over_both_families(world: World, play: Stage, web: list[str]) -> None:
    """One address a family in the status, in order; nothing is left when the Service is deleted."""
    assert [":" in address for address in web] == [False, True]
    assert everything(web) == {"a"}
    assert condition(world) == ("True", "Serves")
    world.delete("web")
    play.up()
    assert world.read("web") is None
    assert all(refused(address, 80) for address in web)
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []


def test_nodes_and_pods_reach_the_address(world: World, web: list[str]) -> None:
    """As clients of a cloud's load balancer do, from another Node and from a pod's own address."""
    node = world.nodes["kind-worker2"]
    pod = world.pod("client", node, app="other")
    with inside(node.space):
        follows(lambda: everything(web), {"a"})
        assert answer(web[0], source=pod.addresses[0]) == "a"


def _ports(world: World, *more: Document) -> Document:
    return {"spec": {"ports": [*world.ports("web"), *more]}}


def _renumbered(world: World) -> Document:
    tcp, udp = world.ports("web")
    return {"spec": {"ports": [{**tcp, "nodePort": tcp["nodePort"] + 1}, udp]}}


def _retargeted(world: World) -> Document:
    return {"spec": {"ports": [{**port, "name": f"renamed-{n}"} for n, port in enumerate(world.ports("web"))]}}


CHANGES: dict[str, Callable[[World], Document]] = {
    "another port": lambda world: _ports(world, served(81)),
    "another nodePort": _renumbered,
    "other names of ports": _retargeted,
    "policy Local": lambda _: {"spec": LOCAL},
    "affinity": lambda _: {"spec": {"sessionAffinity": "ClientIP"}},
    "sourceRanges": lambda _: {"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0", "::/0"]}},
    "an annotation": lambda _: {"metadata": {"annotations": {"example.com/a": "b"}}},
    "internal policy": lambda _: {"spec": {"internalTrafficPolicy": "Local"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_keeps_the_addresses_and_everything_serves(
    change: str, world: World, play: Stage, web: list[str]
) -> None:
    """Whatever of a Service changes: the addresses stay, and every port of it serves at all of them."""
    world.change("web", CHANGES[change](world))
    play.up()
    assert addresses(world) == web
    follows(lambda: everything(web), {"a"})
    numbers = {port["port"] for port in world.ports("web")}
    follows(lambda: {answer(address, number) for address in web for number in numbers}, {"a"})
    assert condition(world) == ("True", "Serves")


@both_modes
def test_families_come_and_go(world: World, play: Stage, web: list[str]) -> None:
    """SingleStack keeps the first family's address; dual-stack again gets the second one back."""
    world.change("web", {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": None}})
    play.up()
    assert addresses(world) == web[:1]
    assert refused(web[1], 80)
    assert answer(web[0]) == "a"
    world.change("web", {"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": None, "clusterIPs": None}})
    play.up()
    assert addresses(world) == web
    follows(lambda: everything(web), {"a"})


def test_service_type_change_releases_the_addresses_and_changing_back_restores_them(
    world: World, play: Stage, web: list[str]
) -> None:
    """As ClusterIP nothing of it is left; as LoadBalancer again it has the same addresses."""
    world.change("web", {"spec": {"type": "ClusterIP"}})
    play.up()
    assert (ingress(world), finalizers(world)) == ([], [])
    assert all(refused(address, 80) for address in web)
    world.change("web", {"spec": {"type": "LoadBalancer"}})
    play.up()
    assert addresses(world) == web
    follows(lambda: everything(web), {"a"})


@both_modes
def test_without_a_pod_clients_are_refused_and_the_address_stays(world: World, play: Stage, web: list[str]) -> None:
    """Scaled to 0 nothing listens; scaled up again it serves at the same addresses."""
    world.remove(world.pods["a"])
    sees_endpoints(world, "web", 0, "serving")
    play.up()
    follows(lambda: all(refused(address, 80) for address in web), expected=True)  # Envoy closes them a moment later
    assert all(silent(address) for address in web)
    assert addresses(world) == web
    assert condition(world) == ("False", "NoBackends")
    world.pod("b", world.nodes["kind-worker2"])
    sees_endpoints(world, "web", 1)
    play.up()
    follows(lambda: everything(web), {"b"})
    assert addresses(world) == web


@both_modes
def test_a_pod_that_is_not_ready_gets_no_traffic(world: World, play: Stage, web: list[str]) -> None:
    """Of two pods the ready one serves alone; when none is ready clients are refused, until one is again."""
    other = world.pod("b", world.nodes["kind-worker2"])
    world.ready(world.pods["a"], is_ready=False)
    play.up()
    follows(lambda: answers(web[0]), {"b"})
    world.ready(other, is_ready=False)
    sees_endpoints(world, "web", 0)
    play.up()
    assert all(refused(address, 80) for address in web)
    world.ready(world.pods["a"])
    sees_endpoints(world, "web", 1)
    play.up()
    follows(lambda: answers(web[0]), {"a"})
    assert addresses(world) == web


@both_modes
def test_source_ranges_hold_for_tcp_and_udp_in_both_families(world: World, play: Stage, web: list[str]) -> None:
    """Clients within are served; others are cut off (TCP) or get no answer (UDP)."""
    world.change("web", {"spec": {"loadBalancerSourceRanges": ["198.51.100.7/32", "2001:db8::7/128"]}})
    play.up()
    for address, (within, without) in zip(web, NEIGHBOURS.values(), strict=True):
        follows(lambda a=address, s=within: answer(a, source=s), "a")  # type: ignore[misc]  # mypy can't type it
        assert answer(address, 80, "UDP", source=within) == "a"
        assert answer(address, source=without) in {"ConnectionResetError", ""}
        assert silent(address, source=without)


def test_affinity_sticks(world: World, play: Stage) -> None:
    """Every client comes to its own pod again and again, also when one more is there; together they reach several."""
    make(world, "web", sessionAffinity="ClientIP", **LOCAL)
    for name, node in (("a", "kind-worker"), ("b", "kind-worker2")):
        world.pod(name, world.nodes[node])
    sees_endpoints(world, "web", 2)
    at = up_and_serving(world, play)
    clients = [*NEIGHBOURS[4], "172.18.0.1", at]
    homes = {client: {answer(at, source=client) for _ in range(6)} for client in clients}
    assert all(len(home) == 1 and home <= {"a", "b"} for home in homes.values()), homes
    play.up()
    assert {client: {answer(at, source=client)} for client in homes} == homes


def test_services_share_nothing(world: World, play: Stage) -> None:
    """Two Services with the same port have two addresses, and each reaches its own pods."""
    for app, node in (("one", "kind-worker"), ("two", "kind-worker2")):
        make(world, app, app=app)
        world.pod(app, world.nodes[node], app=app)
    at = [up_and_serving(world, play, app) for app in ("one", "two")]
    assert len(set(at)) == 2
    assert [answers(address) for address in at] == [{"one"}, {"two"}]


def holding_external_ips(world: World, *free: str) -> None:
    """Give a ClusterIP Service all of the pool as externalIPs, but `free`."""
    claimed = [address for number in range(224, 256) if (address := f"172.18.255.{number}") not in free]
    theirs = {"selector": {"app": "web"}, "type": "ClusterIP", "externalIPs": claimed}
    world.service({"metadata": {"name": "theirs", "namespace": "n"}, "spec": {**theirs, "ports": [{"port": 9000}]}})


def test_external_ips_are_never_handed_out(world: World, play: Stage) -> None:
    """kube-proxy takes them for its own on every Node, whatever Service has them."""
    holding_external_ips(world, "172.18.255.230")
    make(world, "web")
    make(world, "more")
    world.pod("a", world.nodes["kind-worker"])
    sees_endpoints(world, "web", 1)
    play.up()
    assert sorted([addresses(world), addresses(world, "more")]) == [[], ["172.18.255.230"]]


def test_external_ips_of_a_moment_ago_are_never_handed_out(world: World, play: Stage) -> None:
    """The loop, which only hears of changes, knows them like the command that reads everything."""
    world.pod("a", world.nodes["kind-worker"])
    with watching(play):
        make(world, "web")
        eventually(lambda: addresses(world))
        free = next(address for address in ("172.18.255.230", "172.18.255.231") if address not in addresses(world))
        holding_external_ips(world, *addresses(world), free)
        make(world, "more")
        eventually(lambda: addresses(world, "more"))
    assert addresses(world, "more") == [free]
