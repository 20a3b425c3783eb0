"""Pods of real kubelets behind LoadBalancer Services, while `locallb watch` runs: what clients of this host get.

Each test goes both ways: by NodePorts, as kube-proxy opens them, and straight to pods, where this host has routes.
"""

from __future__ import annotations

import pytest

from tests.kubelets.workloads import SPREAD, Workloads, answer, answer_udp, service_port
from tests.support.backends import refused
from tests.support.traffic import LOCAL
from tests.support.waiting import becomes
from tests.support.watching import Watch

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]


def names(address: str, port: int = 80, times: int = 20) -> set[str]:
    """Ask many times, and return all that answered."""
    return {answer(address, port) for _ in range(times)}


def test_a_deployment_serves_however_many_pods_it_has(world: Workloads, watch: Watch) -> None:
    """Two pods get requests, three, one, none is refused, and one again serves."""
    world.deploy("web", 2)
    world.expose("web")
    at = world.address("web")
    for number in (2, 3, 1):
        world.scale("web", number)
        becomes(lambda: names(at) == set(world.pods("web")), f"all pods answer, and no other\n{watch.reported()}")
    world.scale("web", 0)
    becomes(lambda: refused(at, 80), f"clients are refused\n{watch.reported()}")
    world.scale("web", 1)
    becomes(lambda: names(at) == set(world.pods("web")), f"the new pod answers\n{watch.reported()}")


def test_an_added_port_serves(world: Workloads, watch: Watch) -> None:
    """TCP, and UDP on the same number; the first port goes on."""
    world.deploy("web", 1)
    world.expose("web")
    at = world.address("web")
    (pod,) = world.pods("web")
    becomes(lambda: answer(at) == pod, f"the first port serves\n{watch.reported()}")
    world.change("web", {"spec": {"ports": [*world.ports("web"), service_port(81), service_port(81, "UDP")]}})
    becomes(lambda: answer(at, 81) == answer_udp(at, 81) == pod, f"the added ports serve\n{watch.reported()}")
    assert answer(at) == pod


def test_under_policy_local_requests_follow_the_pod_from_node_to_node(world: Workloads, watch: Watch) -> None:
    """One pod, moved by a rolling update: the new one serves, alone."""
    world.deploy("web", 1, nodeSelector=world.on("worker"))
    world.expose("web", **LOCAL)
    at = world.address("web")
    for role in ("worker", "worker2"):
        world.roll("web", nodeSelector=world.on(role))
        ((pod, place),) = world.pods("web").items()
        assert place == world.cluster.node(role).name
        becomes(lambda pod=pod: names(at) == {pod}, f"{pod} answers, alone\n{watch.reported()}")  # type: ignore[misc]


def test_a_node_that_falls_silent_is_left_out_and_comes_back(world: Workloads, watch: Watch) -> None:
    """Nobody answers there and nobody is told: the other pod serves alone until the Node is back."""
    world.deploy("web", 2, **SPREAD)
    world.expose("web")
    at = world.address("web")
    both = set(world.pods("web"))
    (remaining,) = (pod for pod, node in world.pods("web").items() if node.endswith("worker2"))
    becomes(lambda: names(at) == both, f"both serve\n{watch.reported()}")
    with world.cluster.node("worker").silent():
        becomes(lambda: names(at) == {remaining}, f"{remaining} serves alone\n{watch.reported()}")
    becomes(lambda: names(at) == both, f"both serve again\n{watch.reported()}")
