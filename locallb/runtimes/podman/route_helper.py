"""Routes changed by a short-lived container of Podman, in a proxy's network or this host's.

Not here: how (`runtimes.docker.route_helper`).
"""

from __future__ import annotations

from locallb.runtimes.docker.route_helper import ContainerRoutes
from locallb.runtimes.podman.engine import PodmanContainers

ROUTE_HELPER = ContainerRoutes(PodmanContainers)
