"""`docker:index/container:Container` for the embedded engine: the official plugin's inputs, outputs and decisions.

So that either engine can go on where the other left off. Everything else of pulumi-docker is refused by name. The
Pulumi CLI runs the official plugin and never this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pulumi.provider.experimental.provider import Provider

from locallb.config.settings import PullPolicy
from locallb.provider.docker.container import DockerLifecycle, DockerProvider
from locallb.runtimes.docker.engine_api import Containers

__all__ = ["make_docker_provider"]


def make_docker_provider(
    root: Path | None = None, pull: Callable[[], PullPolicy] = lambda: PullPolicy.IF_NOT_PRESENT
) -> Provider:
    """Make the provider for the daemon that the environment names.

    `root` is the directory of the deployed project: deletions leave alone containers of another project, if its state
    was copied here. `pull` is called when a container is made.
    """
    return DockerProvider(DockerLifecycle(Containers(), root, pull))
