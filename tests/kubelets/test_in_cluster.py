"""local-lb in the cluster that it serves: a replica that is killed costs no request, and another one leads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubelets.in_cluster import SOCKET, Replicas
from tests.kubelets.workloads import Workloads, answer, service_port
from tests.support.docker_image import image
from tests.support.envoy_traffic import Load
from tests.support.kubelet_cluster import kubelet_cluster
from tests.support.manifests import service
from tests.support.packages import wheel
from tests.support.tool_image import tool
from tests.support.waiting import becomes

__all__ = ["image", "tool", "wheel"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.root(only="can make a root file system with mmdebstrap"),
]
RATE = 200
"""Requests a second, each on a connection of its own."""
TIMEOUT = 30.0
"""Seconds that each may take on a machine that runs a cluster besides."""


@pytest.fixture
def replicas(ready: None, tool: str, image: str, tmp_path: Path) -> Iterator[Replicas]:
    """Run a cluster that has local-lb in it, and this machine's Docker in its Nodes; nothing of it stays."""
    del ready
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/var/lib"))  # in pods /tmp is an emptyDir: anybody may write there
    try:
        with kubelet_cluster(roles=("control-plane", "worker"), shared=(SOCKET, root)) as cluster:
            made = Replicas(cluster, root)
            made.load(tool, tmp_path)
            try:
                made.apply(tool, image, tmp_path)
                yield made
                made.kubectl("delete", "deployment", "local-lb", "--wait", "--cascade=foreground")
            finally:
                made.remove_proxies()
    finally:
        shutil.rmtree(root)


def leader(replicas: Replicas, pod: str) -> str:
    """Return who leads, as the status names it in a pod."""
    (reported,) = (line for line in replicas.status(pod).splitlines() if line.startswith("Leader: "))
    return reported.removeprefix("Leader: ")


def test_both_replicas_are_killed_in_turn_and_no_request_fails(replicas: Replicas) -> None:
    """200 requests a second; each time somebody else leads afterwards, and serves what is new."""
    world = Workloads(replicas.cluster, straight=False)
    with world.client:
        world.deploy("web", 2)
        world.expose("web")
        at = world.address("web")
        becomes(lambda: answer(at) in world.pods("web"), f"it serves\n{replicas.log()}")
        first = leader(replicas, min(replicas.pods()))
        pods = sorted(replicas.pods(), key=lambda pod: not first.startswith(pod))
        assert first.startswith(pods[0])
        killed = set[str]()
        with Load(lambda: answer(at, seconds=TIMEOUT), RATE) as load:
            for number, (pod, other) in enumerate(zip(pods, reversed(pods), strict=True)):
                killed.add(leader(replicas, other))
                replicas.kill(pod)
                becomes(lambda other=other: leader(replicas, other) not in killed, "another one leads")  # type: ignore[misc]
                becomes(lambda: len(replicas.pods()) == len(pods), "the kubelet started it again")
                world.service(service(f"web-{number}", service_port(80), selector={"app": "web"}))
                new = world.address(f"web-{number}")
                becomes(lambda new=new: answer(new) in world.pods("web"), f"it serves\n{replicas.log()}")  # type: ignore[misc]
        names = {*world.pods("web")}
        failed = [outcome for outcome in load.outcomes if outcome.answer not in names]
        assert failed == [], f"{len(failed)} of {len(load.outcomes)}"
