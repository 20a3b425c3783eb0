"""Engines for the tests that need one: where none answers they say so, and in CI that is a failure.

Every test that asks for an image, or what is made with one, runs with Docker and with Podman, but for `docker_only`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from locallb.host.capabilities import PODMAN
from locallb.runtimes.docker.runtime import make_image
from tests.support.containers import ENGINE, Network, client, docker
from tests.support.docker_image import missing, require_docker
from tests.support.environment import lent
from tests.support.podman import podman


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have an engine that answers: Docker's daemon, or a Podman of the tests' own. Return the runtime's word.

    No longer than for a module: what comes after it knows nothing of Podman.
    """
    with ExitStack() as stack:
        if request.param == "podman":
            if os.geteuid() or not shutil.which("podman"):
                missing("only root, where Podman is installed, can have one that serves every port")
            stack.enter_context(lent({ENGINE: request.param, PODMAN: stack.enter_context(podman()).host}))
        else:
            stack.enter_context(lent({ENGINE: request.param}))
            require_docker()
        yield request.param


@pytest.fixture(scope="module")
def image(engine: str) -> str:
    """Return an image of the installed Envoy."""
    del engine
    return make_image(client())


@pytest.fixture(scope="module")
def network(image: str) -> Iterator[Network]:
    """Make a network of 256 addresses; needs a daemon."""
    name, third = f"llb-test-{secrets.token_hex(4)}", secrets.randbelow(250)
    docker("network", "create", "--subnet", f"10.231.{third}.0/24", "--gateway", f"10.231.{third}.1", name)
    # Podman has the gateway's address only while a container is on the network.
    keeper = {"Image": image, "Cmd": ["--config-yaml", "{}"], "HostConfig": {"NetworkMode": name}}
    identity = client().create("", keeper)
    client().start(identity)
    yield Network(name, f"10.231.{third}.1")
    client().remove(identity, volumes=True)
    docker("network", "rm", name)
