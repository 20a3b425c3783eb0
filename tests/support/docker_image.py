"""An image of Envoy in this host's Docker, for tests of other subjects; those of containers have it in each engine."""

from __future__ import annotations

import os

import pytest

from locallb.runtimes.docker.daemon import ContainersError
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image

REQUIRED = "LOCALLB_TEST_DOCKER"
"""Set by `.ci/run`."""


def missing(why: str) -> None:
    """Skip, but in CI fail: there `.ci/run` installs Docker and Podman."""
    if (os.environ.get("CI") or os.environ.get(REQUIRED)) and os.geteuid() == 0:
        pytest.fail(f"CI runs as root, and .ci/run installs Docker and Podman: {why}")
    pytest.skip(why)


def require_docker() -> None:
    """Skip, or fail, where no daemon answers."""
    try:
        Containers().ping()
    except ContainersError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def image() -> str:
    """Return an image of the installed Envoy; needs a daemon."""
    require_docker()
    return make_image(Containers())
