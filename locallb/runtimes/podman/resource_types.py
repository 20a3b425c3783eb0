"""The types of our provider that runs in Podman declare. They load a client, which who only looks doesn't need."""

from locallb.runtimes.podman.container import PodmanContainer

RESOURCE_TYPES = (PodmanContainer,)
