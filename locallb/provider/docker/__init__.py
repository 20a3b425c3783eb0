"""`docker:index/container:Container` for the embedded engine: the official plugin's inputs, outputs and decisions.

So that either engine can go on where the other left off. Everything else of pulumi-docker is refused by name. The
Pulumi CLI runs the official plugin and never this.
"""

from __future__ import annotations

from pathlib import Path

from pulumi.provider.experimental.provider import Provider

from locallb.clients.containers import Containers
from locallb.provider.docker.provider import DockerProvider

__all__ = ["make_docker_provider"]


def make_docker_provider(root: Path | None = None) -> Provider:
    """Make the provider for the daemon that the environment names.

    `root` is the directory of the project that is deployed: containers of another project, whose state was copied
    here, are left alone by deletions.
    """
    return DockerProvider(Containers(), root)
