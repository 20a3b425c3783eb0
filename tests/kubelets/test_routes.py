"""Routes to pods that the stack makes and removes itself, in this host's table and in those of its containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image
from locallb.runtimes.planners import HELPER_LABEL
from tests.kubelets.routes import made, proxies, to_pods
from tests.kubelets.workloads import Workloads, answer
from tests.support.containers import own_pool
from tests.support.docker_command import docker
from tests.support.kubelet_cluster import ROLES, Cluster, kubelet_cluster
from tests.support.stages import Stage, stage
from tests.support.waiting import becomes
from tests.support.watching import watching

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]

NO_NODE_PORTS = {"allocateLoadBalancerNodePorts": False}
"""Fields of Services whose pods nobody reaches but by routes."""


def pod_paths(cluster: Cluster) -> set[tuple[str, str]]:
    """Return the ways to the pods of all Nodes."""
    return {way for node in cluster.nodes.values() for way in zip(node.pod_cidrs, node.addresses, strict=True)}


@pytest.mark.parametrize("world", ["pods"], indirect=True)
def test_no_route_is_left_of_a_stack_that_is_removed(world: Workloads, play: Stage) -> None:
    """Each Node's pods are reached by the Node, in both families, until `destroy`."""
    world.deploy("web", 2)
    world.expose("web", **NO_NODE_PORTS)
    with watching(play, "--plain") as watch:
        at = world.address("web")
        becomes(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.reported()}")
        assert made(play) == pod_paths(world.cluster)
    assert answer(at) in world.pods("web")
    assert play.run("destroy", "--yes").code == 0
    assert to_pods(world.cluster) == ""
    assert made(play) == set()


@contextmanager
def two_worlds(cluster: Cluster) -> Iterator[tuple[Workloads, Workloads]]:
    """Return the owners of two clusters on one network, whose pods have the same addresses."""
    with kubelet_cluster(sibling=cluster, roles=ROLES[:2]) as sibling, ExitStack() as stack:
        worlds = [Workloads(plane, straight=True) for plane in (cluster, sibling)]
        for world in worlds:
            stack.enter_context(world.client)
            stack.callback(world.empty)
        yield worlds[0], worlds[1]


def test_two_clusters_with_the_same_pods_are_both_served_straight_to_them(cluster: Cluster) -> None:
    """Each by its proxies' own routes: this host has none, and nothing is left of the stack that is removed."""
    with two_worlds(cluster) as worlds, stage() as play:
        assert worlds[0].cluster.plane.ranges.pods == worlds[1].cluster.plane.ranges.pods
        play.configure(
            sources=[world.plane.source for world in worlds],
            runtime="docker",
            image=make_image(Containers()),
            network={"publish": cluster.network},
            podRoutes="container",
            pools=own_pool(),
        )
        for world in worlds:
            world.deploy("web", 2, nodeSelector=world.on("worker"))
            world.expose("web", **NO_NODE_PORTS)
        with watching(play, "--plain") as watch:
            for world in worlds:
                pods, at = set(world.pods("web")), world.address("web")
                becomes(lambda: {answer(at) for _ in range(20)} == pods, f"its pods answer\n{watch.reported()}")  # noqa: B023
        expected = {frozenset(pod_paths(world.cluster)) for world in worlds}
        assert {frozenset(made(play, proxy)) for proxy in proxies(play)} == expected
        assert to_pods(cluster) == ""
        assert play.run("destroy", "--yes").code == 0
        assert not proxies(play)
        assert docker("ps", "--all", "--quiet", "--filter", f"label={HELPER_LABEL}") == ""
        assert to_pods(cluster) == ""
