"""A daemon for the tests that need one: where none answers they say so, and in CI that is a failure."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.image import make_image
from tests.docker.support import Network, docker, furnish
from tests.e2e.support import Backend, Stage, stage

REQUIRED = "LOCALLB_TEST_DOCKER"
"""Set by `.ci/run`."""


@pytest.fixture(scope="session")
def image() -> str:
    """Return an image of the installed Envoy; needs a daemon."""
    containers = Containers()
    try:
        containers.ping()
    except ContainersError as error:
        if (os.environ.get("CI") or os.environ.get(REQUIRED)) and os.geteuid() == 0:
            pytest.fail(f"CI runs as root, and .ci/run starts Docker: {error}")
        pytest.skip(str(error))
    return make_image(containers)


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    made: list[Backend] = []

    def make(name: str, address: str = "127.0.0.1") -> Backend:
        made.append(Backend(name, address))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture(scope="session")
def network(image: str) -> Iterator[Network]:
    """Make a network of 256 addresses; needs a daemon."""
    del image
    name, third = f"llb-test-{secrets.token_hex(4)}", secrets.randbelow(250)
    docker("network", "create", "--subnet", f"10.231.{third}.0/24", "--gateway", f"10.231.{third}.1", name)
    yield Network(name, f"10.231.{third}.1")
    docker("network", "rm", name)


@pytest.fixture
def shop(image: str, backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Return a stack of two Services in containers, not deployed yet."""
    with stage() as play:
        furnish(play, image, backend)
        yield play
