"""What happens to a container or its engine is repaired by `locallb watch`, in every network, at the same address."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.runtimes.docker.daemon import DockerAbsentError
from locallb.runtimes.docker.engine_api import Containers
from tests.docker.daemon import hosted, served
from tests.docker.faults import FAULTS, Fault, Scene, scene
from tests.support.manifests import node, port, service

pytestmark = [pytest.mark.docker, pytest.mark.envoy, pytest.mark.root(only="can start an engine of its own")]
SCENES = [(engine, published) for engine in ("docker", "podman") for published in (False, True)]
NAMES = [f"{engine}-{'publish' if published else 'host'}" for engine, published in SCENES]
MANY = 8


@pytest.fixture(scope="module", params=SCENES, ids=NAMES)
def playing(request: pytest.FixtureRequest) -> Iterator[Scene]:
    engine, published = request.param
    with scene(engine, published=published) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_watch_repairs_it_at_the_same_address(playing: Scene, fault: Fault) -> None:
    """Whether the same container goes on is stated as well; the neighbour's always does."""
    if not fault.is_possible(playing.engine, published=playing.published):
        return
    at, before, neighbour = playing.addresses(), playing.container()["Id"], playing.container("other-1")["Id"]
    heard = playing.checks()
    fault.harm(playing)
    playing.awaits(lambda: playing.checks() > heard or not fault.ends_something)
    playing.awaits(lambda: playing.serves(at["web"]) and playing.serves(at["other-1"]))
    assert playing.addresses() == at
    assert (playing.container()["Id"] == before) is fault.same_container
    assert playing.container("other-1")["Id"] == neighbour


def test_every_service_serves_again_after_each_restart_of_the_daemon() -> None:
    """Also where the watch called into the daemon while it was going down."""
    with scene("docker", published=False, services=MANY) as made:
        assert made.docker
        at = made.addresses()
        assert len(at) == MANY
        for _ in range(3):
            made.docker.end()
            made.docker.start()
            made.awaits(lambda: all(made.serves(address) for address in at.values()))
        assert made.addresses() == at


def test_a_container_that_docker_can_never_start_again_is_replaced() -> None:
    """Its layer is broken, so every start is refused: `up` says so, the next one makes another container."""
    with hosted() as host, served(host.project.space, "TCP@127.0.0.1@30080"):
        host.configure()
        host.project.write("node.yaml", node())
        host.project.write("web.yaml", service("web", port(80, 30080)))
        host.project.up()
        at, before = host.project.status()["web"]["addresses"], host.identities()
        (name,) = before
        (observed,) = json.loads(host.daemon.docker("inspect", name).out)
        host.daemon.docker("stop", name)
        for part in ("UpperDir", "WorkDir"):
            Path(observed["GraphDriver"]["Data"][part]).rename(f"{observed['GraphDriver']['Data'][part]}-gone")
        done = host.project.locallb("up", "--yes")
        assert done.code == 1
        assert f"the container {name} can't be started" in done.err
        assert "run up again" in done.err
        host.project.up()
        assert host.project.status()["web"]["addresses"] == at
        assert host.project.status()["web"]["state"] == "serving"
        assert host.identities() != before


def test_nothing_is_started_by_a_daemon_that_is_going_down() -> None:
    """It takes no new connection, but goes on to answer on those that it has."""
    with hosted() as host:
        host.daemon.docker("create", "--name", "idle", host.image, "--version")
        client = Containers()
        observed = client.inspect("idle")
        assert observed
        host.daemon.end(signal.SIGTERM)
        with pytest.raises(DockerAbsentError):
            client.start(observed["Id"])
