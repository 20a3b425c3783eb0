"""The runtime `podman`: Docker's, but for the engine and the declaration."""

from __future__ import annotations

from locallb.model.desired import PODMAN_CONTAINER
from locallb.runtimes.docker.daemon import TIMEOUT
from locallb.runtimes.docker.runtime import Docker
from locallb.runtimes.podman.engine import PODMAN, PodmanContainers


class Podman(Docker):
    """Containers of Podman, root's or this user's own. Their resource starts and ends them itself."""

    engine = PODMAN
    token = PODMAN_CONTAINER

    def containers(self, timeout: float = TIMEOUT) -> PodmanContainers:
        """Return the client of Podman."""
        return PodmanContainers(timeout)


RUNTIME = Podman()
