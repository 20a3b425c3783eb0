"""The runtime `podman`: Docker's, with another engine, another resource, and Podman's containers to change routes.

Not here: how a short-lived container changes routes, in a proxy's network or this host's
(`runtimes.docker.route_helper`).
"""

from __future__ import annotations

from locallb.model.desired import PODMAN_CONTAINER
from locallb.runtimes.docker.daemon import TIMEOUT
from locallb.runtimes.docker.route_helper import ContainerRoutes
from locallb.runtimes.docker.runtime import Docker
from locallb.runtimes.podman.engine import PODMAN, PodmanContainers

ROUTE_HELPER = ContainerRoutes(PodmanContainers)


class Podman(Docker):
    """Containers of Podman, root's or this user's own. Their resource starts and ends them itself."""

    engine = PODMAN
    token = PODMAN_CONTAINER

    def containers(self, timeout: float = TIMEOUT) -> PodmanContainers:
        """Return the client of Podman."""
        return PodmanContainers(timeout)


RUNTIME = Podman()
