"""Plans a proxy in a container of Podman: as with Docker, but for the resource that declares it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.model.desired import Ref, ResourceKey
from locallb.model.identities import ObjectKey, Owner, RunIdentity
from locallb.model.naming import owner_fields
from locallb.model.serving import Proxy
from locallb.model.state_resource import CONFIG, PODMAN_CONTAINER
from locallb.planning.runs import DesiredRun, RunInputs
from locallb.runtimes.docker.containers import ProxyContainer
from locallb.runtimes.docker.planner import declared_summary, plan_container
from locallb.runtimes.podman.spec import mapping
from locallb.runtimes.process.planner import ProcessPlanner


class PodmanPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = PODMAN_CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
        """Plan a container of Podman."""
        return plan_container(proxy, inputs, "podman")

    def desired(self, run: ProxyContainer, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return a container as a resource of our own: pulumi-docker's finds changes in Podman's answers."""
        key, config = ResourceKey(PODMAN_CONTAINER, proxy.name), ResourceKey(CONFIG, proxy.name)
        inputs = {
            "proxy": proxy.id,
            "owner": owner_fields(owner),
            "bootstrap": Ref(config, ("bootstrap",)),
            "name": run.name,
            "image": run.image,
            "pull": str(run.pull),
            "command": list(run.command),
            "user": run.user,
            "memory": run.memory,
            "cpus": run.cpus,
            "network": run.network,
            "addresses": [str(address) for address in run.inside],
            "ports": [mapping(port) for port in run.ports],
            "labels": dict(run.labels),
        }
        identity = RunIdentity("{}", "podman")
        named, container = (Ref(key, ("container",), text) for text in (str(identity), identity.container))
        return DesiredRun(key, inputs, named, container)

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`, as a process has it."""
        return ProcessPlanner().owner(declared)

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read the image, which tells the version, limits and network."""
        return "", declared_summary(declared, declared.get("network"))


PLANNER = PodmanPlanner()
