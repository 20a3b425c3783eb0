"""The specification of a proxy's container for Podman: the body of /containers/create.

Pure. Not here: the request (`container`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from locallb.model.identities import Protocol, place
from locallb.model.naming import digest, owner_fields
from locallb.model.serving import PublishedPort
from locallb.resources.properties import PodmanContainerInputs
from locallb.runtimes.docker.containers import BOOTSTRAP_LABEL, DIRECTORY, LABEL_PREFIX, PROXY_LABEL

SPEC_LABEL = f"{LABEL_PREFIX}spec"
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
    labels = {f"{LABEL_PREFIX}{key}": value for key, value in owner_fields(inputs.owner).items()}
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
