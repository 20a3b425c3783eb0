"""Plans a proxy in a container: on the host's network, or with published ports.

Not here: the container's specification (`containers`), and the ports inside it (`port_mapping`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from locallb.envoy.overload import MAX_HEAP
from locallb.model.desired import Ref, ResourceKey
from locallb.model.fields import object_of, objects_of, text_of
from locallb.model.identities import ObjectKey, Owner, RunIdentity
from locallb.model.serving import HeapBounds, Proxy
from locallb.model.state_resource import CONFIG, CONTAINER
from locallb.planning.runs import DesiredRun, RunInputs
from locallb.runtimes.docker.containers import (
    ProxyContainer,
    container_of,
    container_summary,
    labelled_owner,
)
from locallb.runtimes.docker.desired_container import container_inputs
from locallb.runtimes.docker.port_mapping import internal_addresses, publish


def plan_container(proxy: Proxy, inputs: RunInputs, runtime: str) -> tuple[Proxy, ProxyContainer]:
    """Publish the places of a Service's own proxy where the configuration wants that."""
    if proxy.heap is None:
        proxy = replace(proxy, heap=HeapBounds(max_heap_within(inputs.settings.container.memory)))
    if not inputs.settings.container.network or not inputs.addresses:
        return proxy, container_of(proxy, inputs, runtime)
    proxy = publish(proxy, inputs.places)
    mapped = inputs.settings.port_mapping  # then the last bytes of all addresses are the same
    subnets, pools = inputs.host.subnets, inputs.settings.pools
    own = () if mapped else internal_addresses(inputs.addresses, subnets, pools, proxy.id)
    return proxy, container_of(proxy, inputs, runtime, tuple(own))


def max_heap_within(memory: int) -> int:
    """Return the bytes of the heap at which Envoy refuses in a container of `memory` MiB, before the kernel ends it."""
    return min(MAX_HEAP, (memory << 20) * 3 // 4)


def declared_summary(declared: Mapping[str, object], network: object) -> tuple[str, ...]:
    """Return how a declared container runs, in the words of the configuration."""
    memory = declared.get("memory")
    number = int(memory) if isinstance(memory, int | float) else 0
    return container_summary(text_of(declared.get("image")), number, text_of(declared.get("cpus")), text_of(network))


class DockerPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
        """Plan a container of Docker."""
        return plan_container(proxy, inputs, "docker")

    def desired(self, run: ProxyContainer, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return a container of pulumi-docker's; its labels have the owner."""
        del owner
        key = ResourceKey(CONTAINER, proxy.name)
        identity = RunIdentity("{}", "docker")
        named, container = (Ref(key, ("id",), text) for text in (str(identity), identity.container))
        return DesiredRun(key, container_inputs(run, ResourceKey(CONFIG, proxy.name)), named, container)

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the labels."""
        pairs = objects_of(declared.get("labels"))
        owner = labelled_owner({text_of(pair.get("label")): text_of(pair.get("value")) for pair in pairs})
        return owner.service if owner else None

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read how a container is declared with pulumi-docker; its image tells the version."""
        networks = declared.get("networksAdvanced")
        network = object_of(networks[0]).get("name") if isinstance(networks, list) and networks else ""
        return "", declared_summary(declared, network)


PLANNER = DockerPlanner()
