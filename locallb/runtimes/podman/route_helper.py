"""Routes changed by a container of Podman, as Docker's are: in the network of a proxy, or this host's.

Not here: how (`docker.route_helper`).
"""

from __future__ import annotations

from locallb.runtimes.docker.route_helper import ContainerRoutes
from locallb.runtimes.podman.engine import PodmanContainers

ROUTE_HELPER = ContainerRoutes(PodmanContainers)
