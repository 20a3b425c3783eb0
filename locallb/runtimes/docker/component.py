"""Declares a proxy's container with pulumi-docker, in a form in which a second update finds nothing to change.

Imported only where the runtime is docker: the package takes a while to load.
"""

from __future__ import annotations

from typing import cast

import pulumi
import pulumi_docker as docker

from locallb.model.identities import Family, RunIdentity
from locallb.planning.planned import PlannedProxy
from locallb.resources.declared import ProxyConfig
from locallb.runtimes.docker.containers import BOOTSTRAP_LABEL, DIRECTORY, ProxyContainer

GRACE = 5
"""Seconds from SIGTERM to SIGKILL; Envoy takes a few milliseconds."""


def declare_container(
    proxy: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
) -> tuple[docker.Container, pulumi.Output[str]]:
    """Declare the container that serves what `config` writes, and its identity.

    It has no right but to bind low ports, a root file system that it can't write, and nothing of the host but the
    proxy's directory. Docker starts it again after a crash and after a restart of its own.
    """
    planned = cast("ProxyContainer", proxy.run)
    labels: dict[str, pulumi.Input[str]] = {**planned.labels, BOOTSTRAP_LABEL: config.bootstrap}
    container = docker.Container(
        proxy.proxy.name,
        name=planned.name,
        image=planned.image,
        command=list(planned.command),
        working_dir=DIRECTORY,
        network_mode=None if planned.network else "host",
        networks_advanced=_networks(planned),
        ports=_ports(planned),
        restart="unless-stopped",
        labels=[docker.ContainerLabelArgs(label=key, value=labels[key]) for key in sorted(labels)],
        volumes=[docker.ContainerVolumeArgs(host_path=config.directory, container_path=DIRECTORY)],
        user=planned.user,
        capabilities=docker.ContainerCapabilitiesArgs(adds=["CAP_NET_BIND_SERVICE"], drops=["ALL"]),
        read_only=True,
        security_opts=["no-new-privileges:true"],
        memory=planned.memory,
        memory_swap=planned.memory,
        cpus=planned.cpus or None,
        log_driver="json-file",
        log_opts={"max-size": "1m", "max-file": "2"},
        must_run=True,
        destroy_grace_seconds=GRACE,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[config]),
    )
    return container, container.id.apply(lambda it: str(RunIdentity(it, "docker")))


def _networks(planned: ProxyContainer) -> list[docker.ContainerNetworksAdvancedArgs] | None:
    """Put it on the network of published ports; an address that isn't fixed is Docker's choice."""
    if not planned.network:
        return None
    four, six = planned.address(Family.IPV4), planned.address(Family.IPV6)
    return [docker.ContainerNetworksAdvancedArgs(name=planned.network, ipv4_address=four, ipv6_address=six)]


def _ports(planned: ProxyContainer) -> list[docker.ContainerPortArgs] | None:
    """Publish; in the order of the container's ports, which the official plugin keeps."""
    return [
        docker.ContainerPortArgs(
            internal=port.container_port, external=port.port, ip=str(port.address), protocol=port.protocol.lower()
        )
        for port in planned.ports
    ] or None
