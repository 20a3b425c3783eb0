"""The container engine of kind on this host, chosen as kind itself chooses it. Not here: finding clusters."""

from __future__ import annotations

import os

from locallb.host.container_sockets import UNIX, podman_place, state
from locallb.runtimes.docker.contexts import ContextError
from locallb.runtimes.docker.daemon import TIMEOUT
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.engines import DEFAULT, DOCKER, Engine, docker_place
from locallb.runtimes.podman.engine import PODMAN, PodmanContainers

PROVIDER = "KIND_EXPERIMENTAL_PROVIDER"


def engine() -> Engine:
    """Return the engine that kind is configured to use; by default Docker, or Podman if only that is usable."""
    choice = os.environ.get(PROVIDER)
    if choice:
        return PODMAN if choice == "podman" else DOCKER
    alone = _docker_is_usual() and not state(DEFAULT.removeprefix(UNIX))
    return PODMAN if alone and state(podman_place().removeprefix(UNIX)) == "usable" else DOCKER


def _docker_is_usual() -> bool:
    """Return whether Docker is at its default address; a missing context is reported when Docker is used."""
    try:
        return bool(docker_place()["base_url"] == DEFAULT)
    except ContextError:
        return False


def client(timeout: float = TIMEOUT) -> Containers:
    """Return its client."""
    return PodmanContainers(timeout) if engine() is PODMAN else Containers(timeout)
