"""Plans a proxy's container for Podman: Docker's plan, with another resource and body of /containers/create. Pure.

Not here: the requests (`engine`), and the resource (`resource_types`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from locallb.model.desired import CONFIG, PODMAN_CONTAINER, Ref, ResourceKey
from locallb.model.identities import KEY_PREFIX, ObjectKey, Owner, Protocol, RunIdentity, place
from locallb.model.serving import Proxy, PublishedPort
from locallb.model.texts import digest, owner_fields
from locallb.planning.planned import DesiredRun, RunInputs
from locallb.resources.properties import PodmanContainerInputs
from locallb.runtimes.docker.containers import BOOTSTRAP_LABEL, DIRECTORY, PROXY_LABEL, ProxyContainer
from locallb.runtimes.docker.planner import declared_summary, plan_container
from locallb.runtimes.process.planner import ProcessPlanner

SPEC_LABEL = f"{KEY_PREFIX}spec"
"""Digest of all that a container is made of: Podman tells much of it in other words than it was asked."""
_MIB, _NANO = 1 << 20, 1_000_000_000


def mapping(port: PublishedPort) -> str:
    """Write a published port: `127.77.0.5:80/TCP 10000`, where clients come and the port inside."""
    return f"{place(port.address, port.port)}/{port.protocol} {port.container_port}"


def body(inputs: PodmanContainerInputs, directory: str) -> dict[str, Any]:
    """Make the body, as the runtime docker declares its own: one capability, a root that can't be written, limits."""
    config: dict[str, Any] = {
        "Image": inputs.image,
        "Cmd": list(inputs.command),
        "User": inputs.user,
        "WorkingDir": DIRECTORY,
        "ExposedPorts": {inside: {} for inside, _ in _ports(inputs.ports)},
        "HostConfig": _host(inputs, directory),
        "NetworkingConfig": {"EndpointsConfig": _endpoints(inputs)},
    }
    labels = {f"{KEY_PREFIX}{key}": value for key, value in owner_fields(inputs.owner).items()}
    labels |= {**inputs.labels, PROXY_LABEL: inputs.proxy, BOOTSTRAP_LABEL: inputs.bootstrap}
    return {**config, "Labels": {**labels, SPEC_LABEL: digest({**config, "Labels": labels})}}


def _host(inputs: PodmanContainerInputs, directory: str) -> dict[str, Any]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for inside, outside in _ports(inputs.ports):
        bindings.setdefault(inside, []).append(outside)
    return {
        "Binds": [f"{directory}:{DIRECTORY}:rw"],
        "NetworkMode": inputs.network or "host",
        "PortBindings": bindings,
        "RestartPolicy": {"Name": "unless-stopped"},
        "CapAdd": ["CAP_NET_BIND_SERVICE"],
        "CapDrop": ["ALL"],
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges:true"],
        "Memory": inputs.memory * _MIB,
        "MemorySwap": inputs.memory * _MIB,
        "NanoCpus": int(Decimal(inputs.cpus or 0) * _NANO),
        "LogConfig": {"Type": "k8s-file", "Config": {"max-size": "1m"}},
    }


def _ports(ports: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    pairs = []
    for line in ports:
        outside, _, inside = line.partition(" ")
        where, _, protocol = outside.rpartition("/")
        address, _, port = where.rpartition(":")
        pairs.append((f"{inside}/{Protocol(protocol).lower()}", {"HostIp": address.strip("[]"), "HostPort": port}))
    return pairs


def _endpoints(inputs: PodmanContainerInputs) -> Mapping[str, object]:
    if not inputs.network:
        return {}
    fixed = {"IPv6Address" if ":" in address else "IPv4Address": address for address in inputs.addresses}
    return {inputs.network: {"IPAMConfig": fixed} if fixed else {}}


class PodmanPlanner(Struct, frozen=True):
    """Plans containers."""

    token: str = PODMAN_CONTAINER
    makes_containers: bool = True

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProxyContainer]:
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
