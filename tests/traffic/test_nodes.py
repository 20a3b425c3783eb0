"""Nodes and pods behind a Service: which ones get its traffic, and how quickly it follows what happens to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from locallb.planning.endpoints import AUTOSCALER_TAINT
from tests.support.client_kinds import NODE
from tests.support.envoy_traffic import Load
from tests.support.real_nodes import EXCLUDED, GATEWAY, Node, World
from tests.support.stages import Stage
from tests.support.traffic import (
    DUAL,
    LOCAL,
    addresses,
    answer,
    answers,
    condition,
    follows,
    give_kube_proxy_time,
    ingress,
    make,
    sees_endpoints,
    served,
    up_and_serving,
    watching,
)
from tests.support.waiting import becomes
from tests.traffic.conftest import both_modes

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

RATE = 50
"""Requests a second, each on a connection of its own."""


@pytest.fixture
def worker(world: World) -> Node:
    """Return the Node of the first pod."""
    return world.nodes["kind-worker"]


@pytest.fixture
def worker2(world: World) -> Node:
    return world.nodes["kind-worker2"]


def load(at: str) -> Load:
    """Ask all the time; an answer is the pod's one-letter name."""
    return Load(lambda: answer(at), RATE)


@both_modes
def test_under_policy_local_only_nodes_with_endpoints_are_reached(
    world: World, play: Stage, worker: Node, worker2: Node
) -> None:
    """Both pods serve and see who connected to their Node; the other Nodes stand by and aren't found healthy."""
    make(world, **LOCAL)
    pods = [world.pod("a", worker), world.pod("b", worker)]
    sees_endpoints(world, "web", 2)
    at = up_and_serving(world, play)
    follows(lambda: answers(at), {"a", "b"})  # kube-proxy may know of the second pod a second later
    with load(at) as requested:
        requested.await_more(RATE // 2)
        becomes(lambda: {outcome.answer for outcome in requested.outcomes} == {"a", "b"}, "both serve")
    assert requested.failures("ab") == []
    assert {peer for pod in pods for peer in pod.peers} == {GATEWAY}
    assert uses(play, worker)
    assert not uses(play, worker2)


@both_modes
def test_under_policy_local_both_families_are_served(world: World, play: Stage, worker: Node, worker2: Node) -> None:
    """Each Node is checked in each family, TCP and UDP; only the one with the pod is healthy, in both."""
    make(world, "web", served(80), served(80, "UDP"), **LOCAL, **DUAL)
    world.pod("a", worker)
    up_and_serving(world, play)
    four, six = addresses(world)
    follows(lambda: {answer(at, 80, protocol) for at in (four, six) for protocol in ("TCP", "UDP")}, {"a"})
    follows(lambda: [uses(play, worker, number) for number in (0, 1)], [True, True])
    assert [uses(play, worker2, number) for number in (0, 1)] == [False, False]


@both_modes
@pytest.mark.parametrize("runs", ["nothing", "up", "watch"])
def test_a_pod_that_moves_gracefully_costs_no_request(
    runs: str, world: World, play: Stage, worker: Node, worker2: Node
) -> None:
    """Under policy Local traffic follows the pod by health checks alone, by `up`, and by `watch`: no request fails."""
    make(world, **LOCAL)
    old = world.pod("a", worker)
    with watching(play) if runs == "watch" else nullcontext():
        if runs == "watch":
            becomes(lambda: addresses(world) != [], "it has an address")
        at = up_and_serving(world, play, runs=runs != "watch")
        with load(at) as requested:
            requested.await_more(RATE // 5)
            world.pod("b", worker2)
            sees_endpoints(world, "web", 2)
            world.terminate(old)
            sees_endpoints(world, "web", 1)
            if runs == "up":
                play.up()
            becomes(lambda: {outcome.answer for outcome in requested.outcomes[-RATE // 2 :]} == {"b"}, "all reaches b")
            world.remove(old)
            requested.await_more(RATE // 5)
    assert requested.failures("ab") == []
    assert addresses(world) == [at]


@both_modes
def test_the_last_pod_drains(world: World, play: Stage, worker: Node) -> None:
    """A terminating pod that still serves is used as long as there is no other, as kube-proxy does it."""
    make(world, **LOCAL)
    old = world.pod("a", worker)
    at = up_and_serving(world, play)
    world.terminate(old)
    sees_endpoints(world, "web", 0)
    play.up()
    assert answers(at) == {"a"}


@both_modes
def test_a_hanging_kube_proxy_takes_its_node_out(world: World, play: Stage, worker: Node, worker2: Node) -> None:
    """It doesn't answer on the healthCheckNodePort; no request fails, and those after the check go elsewhere."""
    make(world, **LOCAL)
    for name, node in (("a", worker), ("b", worker2)):
        world.pod(name, node)
    sees_endpoints(world, "web", 2)
    at = up_and_serving(world, play)
    assert worker.proxy is not None
    with load(at) as requested:
        becomes(lambda: {outcome.answer for outcome in requested.outcomes} == {"a", "b"}, "both serve")
        os.kill(worker.proxy.pid, signal.SIGSTOP)
        try:
            becomes(lambda: {outcome.answer for outcome in requested.outcomes[-RATE // 2 :]} == {"b"}, "b alone serves")
        finally:
            os.kill(worker.proxy.pid, signal.SIGCONT)
        becomes(
            lambda: {outcome.answer for outcome in requested.outcomes[-RATE // 2 :]} == {"a", "b"}, "both serve again"
        )
    assert requested.failures("ab") == []


@both_modes
def test_a_node_without_kube_proxy_is_passed_over_under_policy_cluster(
    world: World, play: Stage, worker: Node, worker2: Node
) -> None:
    """Its health port answers no more: TCP and UDP go through the others."""
    make(world, "web")
    world.pod("a", worker)
    at = up_and_serving(world, play)
    assert worker2.proxy is not None
    os.kill(worker2.proxy.pid, signal.SIGSTOP)
    try:
        with load(at) as requested:
            becomes(lambda: not uses(play, worker2), "the Node gets no traffic")
    finally:
        os.kill(worker2.proxy.pid, signal.SIGCONT)
    assert requested.failures("a") == []
    becomes(lambda: uses(play, worker2), "the Node gets traffic again")


def uses(play: Stage, node: Node, number: int = 0) -> bool:
    """Return whether the proxy of the one Service finds a Node healthy, at its first address or another one."""
    return any(f"{node.addresses[number]}:" in place for place in play.healthy_backends())


EXCLUSIONS: dict[str, Callable[[World, Node], None]] = {
    "label": lambda world, node: world.label(node, exclude=""),
    "label true": lambda world, node: world.label(node, exclude="true"),
    "taint": lambda world, node: world.taint(node, AUTOSCALER_TAINT),
}


@pytest.mark.parametrize("how", EXCLUSIONS)
def test_an_excluded_node_gets_no_traffic_and_no_request_fails(
    how: str, world: World, play: Stage, worker: Node, worker2: Node
) -> None:
    """Excluded it is left out, included it is back; what it serves is reached through the others meanwhile."""
    make(world)
    world.pod("a", worker2)
    at = up_and_serving(world, play)
    with load(at) as requested:
        EXCLUSIONS[how](world, worker2)
        play.up()
        becomes(lambda: not uses(play, worker2), "it is left out")
        becomes(lambda: uses(play, worker), "the other one is used")
        world.label(worker2, exclude=None)
        world.taint(worker2)
        play.up()
        becomes(lambda: uses(play, worker2), "it is back")
    assert requested.failures("a") == []
    assert addresses(world) == [at]


def test_where_every_node_is_excluded_all_are_used_and_it_is_reported(world: World, play: Stage, worker: Node) -> None:
    """As in a cluster of a single Node, which kubeadm labels so."""
    make(world)
    world.pod("a", worker)
    for node in world.nodes.values():
        world.label(node, exclude="")
    sees_endpoints(world, "web", 1)
    give_kube_proxy_time(world, "web")
    done = play.up()
    assert EXCLUDED in done.out + done.err
    (at,) = addresses(world)
    assert answers(at) == {"a"}


def test_a_deleted_node_is_left_out_and_a_new_one_used(world: World, play: Stage, worker: Node, worker2: Node) -> None:
    """Its object goes and comes: no request fails, the address stays."""
    make(world)
    world.pod("a", worker)
    at = up_and_serving(world, play)
    with load(at) as requested:
        world.client.delete(NODE, worker2.name)
        try:
            play.up()
            becomes(lambda: not uses(play, worker2), "it is left out")
        finally:
            world.register(worker2)
            worker2.stop_proxy()
            worker2.start_proxy()
        becomes(worker2.answers, "kube-proxy is back")
        play.up()
        becomes(lambda: uses(play, worker2), "it is back")
    assert requested.failures("a") == []
    assert addresses(world) == [at]


def test_a_node_with_other_addresses_is_followed(world: World, play: Stage, worker: Node) -> None:
    """As after a restart of Docker: the one Node that may serve has another InternalIP, the Service its address."""
    make(world, **LOCAL)
    world.pod("a", worker)
    at = up_and_serving(world, play)
    before = worker.addresses
    try:
        move(world, worker, world.host.number())
        play.up()
        becomes(lambda: answer(at) == "a", "it is served at its new address")
        assert addresses(world) == [at]
        assert not any(before[0] in place for place in play.healthy_backends())
    finally:
        move(world, worker, worker.number)


def move(world: World, node: Node, number: int) -> None:
    """Give a Node another address and restart its kube-proxy, which ends when that happens."""
    node.readdress(number)
    world.routes()
    world.tell_addresses(node)
    node.stop_proxy()
    node.start_proxy()
    becomes(node.answers, "kube-proxy is back")


def test_without_node_ports_endpoints_serve_where_there_is_a_route(world: World, play: Stage, worker: Node) -> None:
    """allocateLoadBalancerNodePorts: false. Without a route to pods the port says so in the status."""
    made = make(world, allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in made["spec"]["ports"][0]
    world.pod("a", worker)
    sees_endpoints(world, "web", 1)
    play.up()
    assert ingress(world)[0]["ports"] == [{"port": 80, "protocol": "TCP", "error": "local-lb.dev/Unreachable"}]
    assert condition(world) == ("False", "Unreachable")
    world.host.space.shell(f"ip route add {worker.pod_cidrs[0]} via {worker.addresses[0]}")
    try:
        play.up()
        follows(lambda: answer(addresses(world)[0]), "a")
        assert condition(world) == ("True", "Serves")
    finally:
        world.host.space.shell(f"ip route del {worker.pod_cidrs[0]}")


def test_a_cluster_that_has_replaced_kube_proxy_is_checked_by_connections(
    world: World, play: Stage, worker: Node
) -> None:
    """Nothing answers on 10256, but NodePorts do: everything serves, under both policies."""
    make(world)
    make(world, "local", **LOCAL)
    world.pod("a", worker)
    sees_endpoints(world, "local", 1)
    becomes(lambda: world.on_every_node_port("web"), "kube-proxy has the NodePort everywhere")
    for node in world.nodes.values():
        node.stop_proxy()
    try:
        found = [up_and_serving(world, play, name) for name in ("web", "local")]
        assert [answers(at) for at in found] == [{"a"}, {"a"}]
    finally:
        for node in world.nodes.values():
            node.start_proxy()
        world.wait_for_nodes()
