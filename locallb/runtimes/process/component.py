"""A proxy's process, declared."""

from __future__ import annotations

import pulumi

from locallb.model.identities import RunIdentity
from locallb.model.naming import owner_fields
from locallb.planning.planned import PlannedProxy
from locallb.resources.declared import EnvoyProcess, ProxyConfig


def declare_process(
    planned: PlannedProxy, config: ProxyConfig, parent: pulumi.Resource
) -> tuple[EnvoyProcess, pulumi.Output[str]]:
    """Declare the process that serves what `config` writes, and its identity."""
    process = EnvoyProcess(
        planned.proxy.name,
        proxy=planned.proxy.id,
        owner=owner_fields(planned.owner),
        bootstrap=config.bootstrap,
        version=planned.run.envoy,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[config]),
    )
    return process, pulumi.Output.all(process.pid, process.started).apply(lambda run: str(RunIdentity.of_process(*run)))
