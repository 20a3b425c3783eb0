"""Straight to pods behind real kube-proxies: routes come and go, pods move and end, networks let nobody in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from tests.support.envoy_traffic import Load, Outcome
from tests.support.real_nodes import GATEWAY, PODS, SERVED, Node, Pod, World
from tests.support.stages import Stage
from tests.support.traffic import DUAL, LOCAL, addresses, answer, make, sees_endpoints, served, up_and_serving, watching
from tests.support.waiting import becomes

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
RATE = 50
IN_FLIGHT = 0.2
"""Seconds within which a connection that a pod had when it ended is reset; retries take longer."""


@contextmanager
def routes_to(*nodes: Node, world: World) -> Iterator[None]:
    """Have routes from the machine to the pods of these Nodes, in both families."""
    change(world, "add", *nodes)
    try:
        yield
    finally:
        change(world, "del", *nodes)


def change(world: World, what: str, *nodes: Node) -> None:
    for node in nodes:
        for cidr, via in zip(node.pod_cidrs, node.addresses, strict=True):
            world.host.space.shell(f"ip route {what} {cidr} via {via}")


def via(play: Stage) -> list[str]:
    """Return where the ports' connections go, by the status."""
    (row,) = cast("list[dict[str, list[dict[str, str]]]]", json.loads(play.run("status", "--json").out))
    return [port["via"] for port in row["ports"]]


def others_than_the_machine(pods: list[Pod], requested: Load) -> set[str]:
    """Return who else connects to pods by IPv4 for some requests: a Node, which hands on what comes to NodePorts."""
    for backend in (backend for pod in pods for backend in pod.backends):
        backend.peers.clear()
    requested.await_more(RATE // 2)
    return {peer for pod in pods for peer in pod.peers if "." in peer} - {GATEWAY}


def workers(world: World) -> tuple[Node, Node]:
    return world.nodes["kind-worker"], world.nodes["kind-worker2"]


def test_routes_that_come_and_go_lead_over_and_back_without_a_failed_request(world: World, play: Stage) -> None:
    """First the pod of one Node has a route, which isn't enough, then both; pods see the machine, not a Node."""
    one, other = workers(world)
    make(world, "web", served(80), served(80, "UDP"), **DUAL)
    pods = [world.pod("a", one), world.pod("b", other)]
    sees_endpoints(world, "web", 2)
    at = up_and_serving(world, play)
    with Load(lambda: answer(at), RATE) as requested:
        assert via(play) == ["nodePorts", "nodePorts"]
        with routes_to(one, world=world):
            play.up()
            assert via(play) == ["nodePorts", "nodePorts"]
            assert others_than_the_machine(pods, requested)
            with routes_to(other, world=world):
                play.up()
                assert via(play) == ["pods", "pods"]
                becomes(lambda: not others_than_the_machine(pods, requested), "pods see the machine")
                assert {answer(address, 80, "UDP") for address in addresses(world) for _ in range(9)} == {"a", "b"}
            play.up()
            assert via(play) == ["nodePorts", "nodePorts"]
        play.up()
        time.sleep(0.3)
    assert requested.failures("ab") == []
    assert addresses(world)[0] == at


def test_watch_goes_over_when_routes_come_and_go(world: World, play: Stage) -> None:
    """It hears of routes: nobody has to run anything, and no request fails."""
    one, other = workers(world)
    make(world)
    pods = [world.pod("a", one), world.pod("b", other)]
    sees_endpoints(world, "web", 2)
    with watching(play):
        becomes(lambda: addresses(world) != [], "it has an address")
        at = up_and_serving(world, play, runs=False)
        with Load(lambda: answer(at), RATE) as requested:
            for _ in range(2):
                assert others_than_the_machine(pods, requested)
                with routes_to(one, other, world=world):
                    becomes(lambda: not others_than_the_machine(pods, requested), "pods see the machine")
                becomes(lambda: bool(others_than_the_machine(pods, requested)), "pods see Nodes again")
    assert requested.failures("ab") == []


def test_a_network_that_lets_this_machine_in_nowhere_costs_no_request(world: World, play: Stage) -> None:
    """As a NetworkPolicy has it: pods drop what comes from outside, NodePorts have all of it."""
    one, other = workers(world)
    make(world)
    pods = [world.pod(name, node) for name, node in zip("abcdef", (one, other) * 3, strict=True)]
    sees_endpoints(world, "web", 6)
    with routes_to(one, other, world=world):
        at = up_and_serving(world, play)
        rule = f"FORWARD -s {GATEWAY} -d {PODS[0]} -m conntrack --ctstate NEW --ctorigdst {PODS[0]} -j DROP"
        local = f"INPUT -s {GATEWAY} -d {PODS[0]} -m conntrack --ctstate NEW --ctorigdst {PODS[0]} -j DROP"
        with Load(lambda: answer(at), RATE) as requested:
            for node in (one, other):
                node.space.shell(f"iptables -I {rule}; iptables -I {local}")
            try:
                assert {answer(pod.addresses[0], SERVED, seconds=0.3) for pod in pods} == {"TimeoutError"}
                time.sleep(3)
            finally:
                for node in (one, other):
                    node.space.shell(f"iptables -D {rule}; iptables -D {local}")
        assert via(play) == ["pods"]
    assert requested.failures("abcdef") == []


def test_a_pod_that_ends_at_once_costs_no_request(world: World, play: Stage) -> None:
    """It is taken from the EndpointSlices and gone, one after the other, under policy Local, while `watch` runs."""
    one, other = workers(world)
    make(world, **LOCAL)
    old, ends = world.pod("a", one), list[tuple[float, float]]()
    sees_endpoints(world, "web", 1)
    with routes_to(one, other, world=world), watching(play):
        becomes(lambda: addresses(world) != [], "it has an address")
        at = up_and_serving(world, play, runs=False)
        with Load(lambda: answer(at), RATE) as requested:
            for name, node in (("b", other), ("c", one), ("d", other)):
                new = world.pod(name, node)
                becomes(lambda name=name: answer(at) == name, f"{name} serves as well")  # type: ignore[misc]
                began = time.perf_counter()
                world.terminate(old)
                world.remove(old)
                ends.append((began, time.perf_counter()))
                old = new
                requested.await_more(RATE // 5)
    assert [outcome for outcome in requested.failures("abcd") if not any(cut(outcome, *end) for end in ends)] == []


def cut(request: Outcome, began: float, ended: float) -> bool:
    """Return whether a request was under way while its pod ended: nobody else can answer it."""
    return request.began < ended and request.began + request.seconds > began and request.seconds < IN_FLIGHT
