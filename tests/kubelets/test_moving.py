"""Pods that end at once when told to, replaced under load: what that costs clients.

Straight to pods it costs no request but those that a pod has when it ends. By NodePorts kube-proxy hears of it too late
for some; there it's only said that all is well afterwards.
"""

from __future__ import annotations

import pytest

from tests.e2e.watching import Watch
from tests.envoy.traffic import Load, Outcome
from tests.kubelets.workloads import Workloads, answer
from tests.traffic.support import LOCAL
from tests.traffic.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]

RATE = 50
"""Requests a second, each on a connection of its own."""
SETTLED = 3
"""Seconds in which a busy machine has heard of a new pod: how quickly one hears is measured by `benchmarks.real`."""


def failures(load: Load) -> list[Outcome]:
    """Return the requests that no pod answered."""
    return [outcome for outcome in load.outcomes if not outcome.answer.startswith("web-")]


def moments(load: Load) -> int:
    """Count the moments, at least, at which something happened that explains every request without an answer.

    A pod that ends takes with it the requests that it has; a request that begins later needs another explanation.
    """
    failed = sorted((outcome.began + outcome.seconds, outcome.began) for outcome in failures(load))
    counted, last = 0, 0.0
    for ended, began in failed:
        if began > last:
            counted, last = counted + 1, ended
    return counted


def test_a_pod_that_moves(world: Workloads, watch: Watch) -> None:
    """Policy Local, one pod: its successor is on another Node."""
    world.settled = SETTLED
    world.deploy("web", 1, nodeSelector=world.on("worker"))
    world.expose("web", **LOCAL)
    at = world.address("web")
    eventually(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.told()}")
    with Load(lambda: answer(at), RATE) as load:
        world.roll("web", nodeSelector=world.on("worker2"))
        (moved,) = world.pods("web")
        eventually(lambda: answer(at) == moved, f"{moved} serves\n{watch.told()}")
    check(world, load, moved)


def test_a_rolling_update(world: Workloads, watch: Watch) -> None:
    """Policy Cluster, four pods."""
    world.settled = SETTLED
    world.deploy("web", 4)
    world.expose("web")
    at = world.address("web")
    eventually(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.told()}")
    with Load(lambda: answer(at), RATE) as load:
        world.roll("web")
        fresh = world.pods("web")
        eventually(lambda: {answer(at) for _ in range(30)} == set(fresh), f"all new pods serve\n{watch.told()}")
    check(world, load, *fresh)


def check(world: Workloads, load: Load, *fresh: str) -> None:
    """See that the load reached the new pods; straight to pods, that each former pod took nothing but its own along."""
    assert load.outcomes[-1].answer in fresh
    if world.straight:
        assert moments(load) <= len(fresh), failures(load)
