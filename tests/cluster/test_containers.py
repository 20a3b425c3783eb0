"""Services of a real API server served from containers, on the host's network and at published ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from locallb.kubernetes.status import FINALIZER
from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import address, condition, finalizers
from tests.support.container_engines import network
from tests.support.containers import Network, docker, identities, own_pool
from tests.support.control_plane import ControlPlane, Objects
from tests.support.docker_image import image
from tests.support.manifests import port, service
from tests.support.stages import Stage, stage

__all__ = ["image", "network"]

pytestmark = [pytest.mark.cluster, pytest.mark.docker, pytest.mark.envoy]

Backends = Callable[..., Backend]


@pytest.fixture(params=["host", "publish"])
def contained(
    request: pytest.FixtureRequest, plane: ControlPlane, cluster: Objects, image: str, network: Network
) -> Iterator[tuple[Stage, str]]:
    """Return a stack of the cluster in containers, and where its node answers."""
    published = request.param == "publish"
    cluster.node("node-p", network.gateway)
    cluster.label_node(
        "node-a" if published else "node-p", {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    )
    with stage() as made:
        how: dict[str, object] = {"network": {"publish": network.name}} if published else {}
        made.configure(runtime="docker", image=image, pools=own_pool(), sources=[plane.source], **how)
        yield made, network.gateway if published else "127.0.0.1"


def test_a_cluster_is_served_from_containers(cluster: Objects, contained: tuple[Stage, str], backend: Backends) -> None:
    """TCP and UDP; a port more under the same address; nothing to do the second time; gone when deleted."""
    play, where = contained
    cluster.service(service("web", port(8080, 0), port(8080, 0, "UDP")))
    for number in {item["nodePort"] for item in cluster.ports("web")}:
        backend("web", where, number)
    play.up()
    at = address(cluster, "web")
    assert (ask(at, 8080), ask(at, 8080, "UDP")) == ("web: hello", "web: hello")
    assert condition(cluster, "web")["status"] == "True"
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    cluster.change("web", {"spec": {"ports": [*cluster.ports("web"), port(8081, 0)]}})
    backend("more", where, cluster.ports("web")[2]["nodePort"])
    play.up()
    assert (address(cluster, "web"), ask(at, 8081)) == (at, "more: hello")
    cluster.delete("web")
    play.up()
    assert cluster.read("web") is None
    assert identities(play) == {}
    assert refused(at, 8080)


def test_without_docker_no_finalizer_is_let_go(
    cluster: Objects, contained: tuple[Stage, str], backend: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted Service waits until what serves it can be taken away."""
    play, where = contained
    cluster.service(service("web", port(8080, 0)))
    backend("web", where, cluster.ports("web")[0]["nodePort"])
    play.up()
    at = address(cluster, "web")
    cluster.delete("web")
    with monkeypatch.context() as without:
        without.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
        done = play.run("up", "--yes")
    assert done.code == 1
    assert "Docker" in done.err
    assert finalizers(cluster, "web") == [FINALIZER]
    assert ask(at, 8080) == "web: hello"
    play.up()
    assert cluster.read("web") is None
    assert docker("ps", "-aq", "--filter", f"label=local-lb.dev/root={play.root}") == ""
