"""The runtime `podman`: Docker's, but for the engine and the declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locallb.model.state_resource import PODMAN_CONTAINER
from locallb.planning.planned import PlannedProxy
from locallb.runtimes.docker.daemon import PATIENCE
from locallb.runtimes.docker.runtime import Docker
from locallb.runtimes.podman.engine import PODMAN, PodmanContainers

if TYPE_CHECKING:
    import pulumi

    from locallb.resources.declared import ProxyConfig


class Podman(Docker):
    """Containers of Podman, root's or this user's own. Their resource starts and ends them itself."""

    engine = PODMAN
    token = PODMAN_CONTAINER

    def containers(self, patience: float = PATIENCE) -> PodmanContainers:
        """Return the client of Podman."""
        return PodmanContainers(patience)

    def declare(
        self, planned: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
    ) -> tuple[pulumi.Resource, pulumi.Output[str]]:
        """Declare a PodmanContainer."""
        from locallb.runtimes.podman.component import declare_container  # noqa: PLC0415 - for programs only

        return declare_container(planned, config, parent)


RUNTIME = Podman()
