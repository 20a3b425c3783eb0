"""A kubelet that runs with `--cloud-provider=external`: no pod runs on its Node until a stack initializes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locallb.model.own_nodes import TAINT
from tests.kubelets.workloads import Workloads, answer
from tests.support.client_kinds import NODE
from tests.support.control_plane import Document
from tests.support.kubelet_cluster import Cluster, kubelet_cluster
from tests.support.rights import Rights
from tests.support.stages import stage
from tests.support.waiting import becomes
from tests.support.watching import watching

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]


@pytest.fixture
def external(ready: None) -> Iterator[Cluster]:
    """Run a cluster of one Node."""
    del ready
    with kubelet_cluster(roles=("worker",), external=True) as cluster:
        yield cluster


def test_a_node_of_such_a_kubelet_gets_pods_and_serves(external: Cluster) -> None:
    """It is named before, initialized by the key, and goes on serving when the stack is destroyed."""
    world = Workloads(external, straight=False)
    name = external.node("worker").name

    def node() -> Document:
        return dict(world.client.get(NODE, name))

    def taints() -> list[str]:
        return [each["key"] for each in node()["spec"].get("taints", ())]

    with world.client, stage() as play:
        Rights(world.client).give("nodes")
        assert TAINT in taints()
        assert "providerID" not in node()["spec"]
        play.configure(sources=[world.plane.source], podRoutes="off")
        unasked = play.run("up", "--yes")
        assert "write `local-lb:nodes: initialize`" in unasked.out + unasked.err
        assert TAINT in taints()
        play.configure(sources=[world.plane.source], podRoutes="off", nodes="initialize")
        with watching(play, "--plain") as watch:
            world.deploy("web", 1)
            assert TAINT not in taints()
            assert node()["spec"]["providerID"] == f"local-lb://{external.plane.name}/{name}"
            listed = {(each["type"], each["address"]) for each in node()["status"]["addresses"]}
            four, six = external.node("worker").addresses
            assert listed == {("InternalIP", four), ("InternalIP", six), ("Hostname", name)}
            world.expose("web")
            at = world.address("web")
            becomes(lambda: answer(at, seconds=1) in world.pods("web"), f"it answers\n{watch.reported()}")
            world.client.delete(NODE, name)
            external.node("worker").run("pkill", "-x", "kubelet")
            becomes(lambda: name in {each["metadata"]["name"] for each in world.client.list(NODE)}, "it is back")
            becomes(lambda: TAINT not in taints(), watch.reported())
        assert play.run("destroy", "--yes").code == 0
        assert TAINT not in taints()
        world.empty()
