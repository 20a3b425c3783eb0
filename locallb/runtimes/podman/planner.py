"""Plans a proxy in a container of Podman: as with Docker, but for the resource that declares it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.model.identities import ObjectKey
from locallb.model.serving import Proxy
from locallb.model.state_resource import PODMAN_CONTAINER
from locallb.planning.runs import RunInputs
from locallb.runtimes.docker.containers import ProxyContainer
from locallb.runtimes.docker.planner import declared_words, plan_container
from locallb.runtimes.process.planner import ProcessPlanner


class PodmanPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = PODMAN_CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
        """Plan a container of Podman."""
        return plan_container(proxy, inputs, "podman")

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`, as a process has it."""
        return ProcessPlanner().owner(declared)

    def told(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read the image, which tells the version, limits and network."""
        return "", declared_words(declared, declared.get("network"))


PLANNER = PodmanPlanner()
