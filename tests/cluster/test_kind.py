"""The source `kind` with a real Docker: a container labelled as kind labels its own leads to the real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.nodes_of_kind import KindNode, kind_node
from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import address, finalizers, made
from tests.support.control_plane import ControlPlane, Objects
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys
from tests.support.watching import answers, eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy, pytest.mark.docker]

Backends = Callable[..., Backend]


@pytest.fixture
def young() -> Iterator[KindNode]:
    """Return a cluster's container that isn't there yet."""
    with kind_node() as made:
        yield made


def test_a_cluster_of_kind_is_found_served_and_forgotten(
    plane: ControlPlane, cluster: Objects, play: Stage, backend: Backends, young: KindNode
) -> None:
    """Named by its container's label; with the container gone its load balancers go, and nobody waits for its API."""
    young.create()
    young.make_ready(plane)
    young.container.start()
    play.configure(sources=[{"kind": [young.name], "loopbackBackends": True}])
    made(cluster, backend, "web")
    play.up()
    assert play.status()["n/web"]["cluster"] == young.name
    assert ask(address(cluster, "web"), 8080) == "web: hello"
    (retained,) = (play.root / ".state/locallb/dev/kind").glob("*.kubeconfig")
    assert retained.stat().st_mode & 0o777 == 0o600
    young.remove()
    done = play.run("up", "--yes")
    assert done.code == 0, done.out + done.err
    assert envoys(play.root) == []
    assert len(finalizers(cluster, "web")) == 1


def test_a_watched_cluster_of_kind_comes_and_goes_and_its_neighbours_notice_nothing(
    plane: ControlPlane, cluster: Objects, play: Stage, backend: Backends, young: KindNode
) -> None:
    """Its container starts, gets its kubeconfig later, answers later still, is stopped, started and removed."""
    play.configure(sources=[{"kind": [young.name], "loopbackBackends": True}, {"manifests": "manifests", "name": "c"}])
    sibling = backend("beside")

    def neighbour(name: str) -> None:
        """Have one more Service beside the cluster, and wait until it serves."""
        play.write(f"{name}.yaml", service(name, port(8080, sibling.port)))
        eventually(lambda: answers(play.addresses()[f"n/{name}"], 8080, "beside"), watch)
        eventually(lambda: f"n/{name}" in play.pids(), watch)  # traffic comes before the state is written

    made(cluster, backend, "web")
    play.write("node.yaml", node())
    with watching(play) as watch:
        neighbour("first")
        first = play.pids()["n/first"]
        assert f"kind has no cluster {young.name}" in watch.reported()
        young.create()
        young.container.start()
        eventually(lambda: f"the cluster {young.name} isn't up yet" in watch.reported(), watch)
        neighbour("second")
        try:
            plane.stop_api()
            young.make_ready(plane)
            eventually(lambda: list(play.root.glob(".state/locallb/dev/kind/*.kubeconfig")), watch)
            neighbour("third")
        finally:
            plane.start_api()
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        at = address(cluster, "web")
        young.container.stop(timeout=0)
        made(cluster, backend, "more")
        eventually(lambda: answers(address(cluster, "more"), 8080, "more"), watch)
        young.container.start()
        neighbour("fourth")
        assert answers(at, 8080, "web")
        young.remove()
        eventually(lambda: refused(at, 8080), watch)
        eventually(lambda: set(play.pids()) == {"n/first", "n/second", "n/third", "n/fourth"}, watch)
        assert len(finalizers(cluster, "web")) == 1
        assert play.pids()["n/first"] == first
        assert "error" not in watch.reported()
