"""What the tests of containers share: Docker's own command, and a stack's containers."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from locallb.model.identities import KEY_PREFIX
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.podman import PodmanContainers
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Done, Stage
from tests.support.waiting import becomes

ENGINE = "LOCALLB_TEST_ENGINE"
"""The word of the runtime that is tested."""
docker_only = pytest.mark.parametrize("engine", ["docker"], indirect=True, scope="module")
"""On what is about Docker itself, its daemon or its official plugin."""


def word() -> str:
    return os.environ.get(ENGINE, "docker")


def client() -> Containers:
    return PodmanContainers() if word() == "podman" else Containers()


@dataclass(frozen=True)
class Harm:
    """What Docker's own command may do to a container, and whether the same one goes on afterwards."""

    terms: tuple[str, ...]
    goes_on: bool
    goes_on_published_by_pulumi: bool
    """The official plugin replaces a container that ended if it publishes ports."""


HARMS = (
    Harm(("kill",), goes_on=True, goes_on_published_by_pulumi=False),
    Harm(("stop", "-t", "1"), goes_on=True, goes_on_published_by_pulumi=False),
    Harm(("pause",), goes_on=True, goes_on_published_by_pulumi=True),
    Harm(("rm", "-f"), goes_on=False, goes_on_published_by_pulumi=False),
)
each_harm = pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.terms[0])


@dataclass(frozen=True)
class Network:
    """A Docker network, and the host's address on it, where backends listen as nodes would."""

    name: str
    gateway: str


def furnish(play: Stage, image: str, backend: Callable[..., Backend], network: Network | None = None) -> None:
    """Make a stack of two Services in containers, on the host's network or another one; it isn't deployed."""
    publish = {"network": {"publish": network.name}} if network else {}
    play.configure(runtime=word(), image=image, pools=own_pool(), **publish)
    node_address = network.gateway if network else "127.0.0.1"
    web, dns = backend("web", node_address), backend("dns", node_address)
    play.write("nodes.yaml", node(address=node_address))
    play.write("web.yaml", service("web", port(80, web.port)))
    play.write("dns.yaml", service("dns", port(53, dns.port), port(53, dns.port, "UDP")))


def docker(*terms: str) -> str:
    """Run Docker's own command, which Podman answers as well."""
    command = ["docker", "-H", client().host, *terms]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    sys.stderr.write(done.stderr)
    done.check_returncode()
    return done.stdout.strip()


def containers(stage: Stage) -> dict[str, dict[str, Any]]:
    """Return what Docker tells of the stage's containers, by the name of the Service."""
    listed = docker("ps", "-aq", "--filter", f"label={KEY_PREFIX}root={stage.root}").split()
    observed = _still_there(listed) if listed else []
    return {container["Config"]["Labels"][f"{KEY_PREFIX}name"]: container for container in observed}


def _still_there(listed: list[str]) -> list[dict[str, Any]]:
    """Inspect containers; some may have gone since they were listed."""
    command = ["docker", "-H", client().host, "inspect", *listed]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert all("no such object" in line.lower() for line in done.stderr.splitlines()), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def identities(stage: Stage) -> dict[str, str]:
    return {name: container["Id"] for name, container in containers(stage).items()}


def goes_on_after(stage: Stage, harm: Harm, repair: Callable[[], object]) -> bool:
    """Harm the container of `web`, have it repaired at the same address, and tell whether the same one goes on.

    The neighbour's must not be touched.
    """
    at, before = stage.addresses(), identities(stage)
    docker(*harm.terms, before["web"])
    repair()
    assert stage.addresses() == at
    assert ask(at["n/web"], 80) == "web: hello"
    after = identities(stage)
    assert after["dns"] == before["dns"]
    return after["web"] == before["web"]


def content(stage: Stage) -> None:
    """Check that there is nothing left to do."""
    done = stage.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err


def configure(stage: Stage, **changes: object) -> None:
    """Change settings of a stage, which keeps the others; None takes one away."""
    path = stage.root / "stacks" / "Pulumi.dev.yaml"
    before = {key.partition(":")[2]: value for key, value in yaml.safe_load(path.read_text())["config"].items()}
    stage.configure(**{key: value for key, value in {**before, **changes}.items() if value is not None})


def own_pool() -> list[dict[str, object]]:
    """Make a pool that nobody else on this machine uses at the same time."""
    return [{"name": "own", "addresses": [f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}.0/27"]}]


def let_go(address: str, port: int) -> bool:
    """Return whether a client is refused, or let go at once as Docker's own proxy does."""
    try:
        with socket.create_connection((address, port), timeout=5) as client:
            client.settimeout(0.05)
            return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def stream_outlives(address: str, port: int, ending: Callable[[], Done]) -> Done:
    """Open a stream, have `ending` take its container away, and see that the stream goes on until it has ended."""
    ended: list[Done] = []
    with socket.create_connection((address, port)) as stream, stream.makefile("rb") as answers:
        stream.sendall(b"one\n")
        assert answers.readline().endswith(b": one\n")
        thread = threading.Thread(target=lambda: ended.append(ending()))
        thread.start()
        becomes(lambda: let_go(address, port))
        stream.sendall(b"two\n")
        assert answers.readline().endswith(b": two\n")
    thread.join()
    return ended[0]
