"""A daemon for the tests that need one: where none answers they say so, and in CI that is a failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from locallb.clients.containers import Containers, ContainersError
from locallb.clients.envoy_image import make_image
from tests.docker.support import own_pool
from tests.e2e.support import Backend, Stage, node, port, service, stage

REQUIRED = "LOCALLB_TEST_DOCKER"
"""Set by `.ci/run`."""


@pytest.fixture(scope="session")
def image() -> str:
    """Give an image of the installed Envoy; needs a daemon."""
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
    for one in made:
        one.close()


@pytest.fixture
def shop(image: str, backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Give a stack of two Services in containers, not deployed yet."""
    with stage() as play:
        play.configure(runtime="docker", image=image, pools=own_pool())
        web, dns = backend("web"), backend("dns")
        play.write("nodes.yaml", node())
        play.write("web.yaml", service("web", port(80, web.port)))
        play.write("dns.yaml", service("dns", port(5353, dns.port), port(5353, dns.port, "UDP")))
        yield play
