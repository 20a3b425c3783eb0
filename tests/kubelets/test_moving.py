"""Pods that end at once when told to, replaced under load: what that costs clients.

Straight to pods it costs no request but those that a pod had accepted when it ended, which is what the proxy's log says
of each. By NodePorts kube-proxy hears of it too late for some; there it's only said that all is well afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kubelets.lost import Clients, clients
from tests.kubelets.workloads import Workloads, answer, service_port
from tests.support.envoy_traffic import Load
from tests.support.manifests import service
from tests.support.stages import Stage, stage
from tests.support.traffic import LOCAL
from tests.support.waiting import becomes
from tests.support.watching import Watch

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]

RATE = 50
"""Requests a second, each on a connection of its own."""
SETTLED = 3
"""Seconds in which a busy machine has heard of a new pod: how quickly one hears is measured by `benchmarks.real`."""


@pytest.fixture
def play(world: Workloads) -> Iterator[Stage]:
    """Return a project whose proxies can be asked what became of each connection."""
    with stage() as made:
        made.configure(sources=[world.plane.source], accessLogs=True, **world.settings)
        yield made


def test_a_pod_that_moves(world: Workloads, play: Stage, watch: Watch) -> None:
    """Policy Local, one pod: its successor is on another Node."""
    world.settled = SETTLED
    world.deploy("web", 1, nodeSelector=world.on("worker"))
    world.expose("web", **LOCAL)
    at = world.address("web")
    becomes(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.reported()}")
    with clients(play, at) as asking:
        with Load(asking.ask, RATE) as load:
            world.roll("web", nodeSelector=world.on("worker2"))
            (moved,) = world.pods("web")
            becomes(lambda: answer(at) == moved, f"{moved} serves\n{watch.reported()}")
        check(world, load, asking)


def test_rolling_update_loses_no_request(world: Workloads, play: Stage, watch: Watch) -> None:
    """Policy Cluster, four pods."""
    world.settled = SETTLED
    world.deploy("web", 4)
    world.expose("web")
    at = world.address("web")
    becomes(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.reported()}")
    with clients(play, at) as asking:
        with Load(asking.ask, RATE) as load:
            world.roll("web")
            fresh = set(world.pods("web"))
            becomes(lambda: {answer(at) for _ in range(30)} == fresh, f"all new pods serve\n{watch.reported()}")
        check(world, load, asking)


def test_a_port_that_gets_a_name_loses_no_request(world: Workloads, watch: Watch) -> None:
    """Kubernetes itself has no endpoints for it meanwhile: kube-proxy writes its rules anew once a second."""
    world.settled = SETTLED
    world.deploy("web", 2)
    unnamed = {**service_port(80), "name": ""}
    world.service(service("web", unnamed, selector={"app": "web"}))
    at = world.address("web")
    becomes(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.reported()}")
    read = world.read("web")
    assert read is not None
    (given,) = read["spec"]["ports"]
    with Load(lambda: answer(at, seconds=10), RATE) as load:
        time.sleep(SETTLED)
        world.change("web", {"spec": {"ports": [{**given, "name": "http"}]}})
        time.sleep(SETTLED)
    assert [outcome for outcome in load.outcomes if outcome.answer not in world.pods("web")] == []


def check(world: Workloads, load: Load, asking: Clients) -> None:
    """See that the load reached the new pods; straight to pods, that no client was lost but to a pod that had him."""
    assert load.outcomes[-1].answer in world.pods("web")
    if world.straight:
        assert asking.lost(world.addresses("web")) == []
