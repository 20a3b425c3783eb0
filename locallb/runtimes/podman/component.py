"""Declares a proxy's container as a resource of our own: pulumi-docker's finds changes in Podman's answers."""

from __future__ import annotations

from typing import cast

import pulumi

from locallb.model.identities import RunIdentity
from locallb.model.naming import owner_fields
from locallb.planning.planned import PlannedProxy
from locallb.resources.declared import PodmanContainer, ProxyConfig
from locallb.runtimes.docker.containers import ProxyContainer
from locallb.runtimes.podman.spec import mapping


def declare_container(
    proxy: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
) -> tuple[PodmanContainer, pulumi.Output[str]]:
    """Declare the container that serves what `config` writes, and its identity."""
    planned = cast("ProxyContainer", proxy.run)
    container = PodmanContainer(
        proxy.proxy.name,
        proxy=proxy.proxy.id,
        owner=owner_fields(proxy.owner),
        bootstrap=config.bootstrap,
        name=planned.name,
        image=planned.image,
        pull=str(planned.pull),
        command=list(planned.command),
        user=planned.user,
        memory=planned.memory,
        cpus=planned.cpus,
        network=planned.network,
        addresses=[str(address) for address in planned.inside],
        ports=[mapping(port) for port in planned.ports],
        labels=dict(planned.labels),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[config]),
    )
    return container, container.container.apply(lambda it: str(RunIdentity(it, "podman")))
