"""Routes to pods that the stack makes and removes itself, in this host's table and in those of its containers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from locallb.model.identities import KEY_PREFIX, Home
from locallb.runtimes.docker.containers import HELPER_LABEL
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image
from locallb.runtimes.pod_routes import present_routes
from tests.docker.support import own_pool
from tests.e2e.support import Stage, stage
from tests.e2e.watching import watching
from tests.kubelets.cluster import ROLES, Cluster, kubelet_cluster
from tests.kubelets.daemon import docker
from tests.kubelets.workloads import Workloads, answer
from tests.traffic.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]

NO_NODE_PORTS = {"allocateLoadBalancerNodePorts": False}
"""Fields of Services whose pods nobody reaches but by routes."""


def to_pods(cluster: Cluster) -> str:
    """List this host's routes to the cluster's pods, whoever made them."""
    families = zip(("-4", "-6"), cluster.plane.ranges.pods, strict=True)
    shown = [("ip", family, "route", "show", "table", "all", "root", pods) for family, pods in families]
    return "".join(subprocess.run(terms, check=True, capture_output=True, text=True).stdout for terms in shown)


def pod_paths(cluster: Cluster) -> set[tuple[str, str]]:
    """Return the ways to the pods of all Nodes."""
    return {way for node in cluster.nodes.values() for way in zip(node.pod_cidrs, node.addresses, strict=True)}


def made(play: Stage, container: str = "") -> set[tuple[str, str]]:
    """Return the ways that the stack has made, and that are there."""
    home = Home("local-lb", "dev", str(play.root.resolve()))
    return {(str(route.destination), str(route.gateway)) for route in present_routes(home, container)}


@pytest.mark.parametrize("world", ["pods"], indirect=True)
def test_no_route_is_left_of_a_stack_that_is_removed(world: Workloads, play: Stage) -> None:
    """Each Node's pods are reached by the Node, in both families, until `destroy`."""
    world.deploy("web", 2)
    world.expose("web", **NO_NODE_PORTS)
    with watching(play, "--plain") as watch:
        at = world.address("web")
        eventually(lambda: answer(at) in world.pods("web"), f"it serves\n{watch.reported()}")
        assert made(play) == pod_paths(world.cluster)
    assert answer(at) in world.pods("web")
    assert play.run("destroy", "--yes").code == 0
    assert to_pods(world.cluster) == ""
    assert made(play) == set()


def proxies(play: Stage) -> list[str]:
    """List the containers of the stack's proxies."""
    return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={KEY_PREFIX}root={play.root}").split()


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
                eventually(lambda: {answer(at) for _ in range(20)} == pods, f"its pods answer\n{watch.reported()}")  # noqa: B023
        expected = {frozenset(pod_paths(world.cluster)) for world in worlds}
        assert {frozenset(made(play, proxy)) for proxy in proxies(play)} == expected
        assert to_pods(cluster) == ""
        assert play.run("destroy", "--yes").code == 0
        assert not proxies(play)
        assert docker("ps", "--all", "--quiet", "--filter", f"label={HELPER_LABEL}") == ""
        assert to_pods(cluster) == ""
