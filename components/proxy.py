"""One Envoy: its configuration on disk, and its process or its container."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from locallb.model.identities import RunIdentity
from locallb.model.naming import owner_fields
from locallb.planning.containers import ProxyContainer
from locallb.planning.planned import PlannedProxy
from locallb.resources.declared import EnvoyProcess, LoopbackAddress, ProxyConfig


class Proxy(pulumi.ComponentResource):
    """Runs a planned proxy once the addresses that it serves are claimed."""

    id: str
    published: bool
    """Docker publishes its ports."""
    config: ProxyConfig
    process: pulumi.CustomResource
    """What runs Envoy: an EnvoyProcess or a docker.Container."""
    identity: pulumi.Output[str]
    """Which run of Envoy this is: another process or container means that it has to prove itself again."""

    def __init__(self, planned: PlannedProxy, addresses: Sequence[LoopbackAddress]) -> None:
        name, owner, rendered = planned.proxy.name, owner_fields(planned.owner), planned.rendered
        shown = {"listeners": [listener.name for listener in planned.proxy.listeners], "digest": planned.digest}
        super().__init__("locallb:index:Proxy", name, shown)
        self.id = planned.proxy.id
        self.published = bool(planned.proxy.published)
        self.config = ProxyConfig(
            name,
            proxy=planned.proxy.id,
            name=name,
            owner=owner,
            files=dict(rendered.files),
            versions={"lds": rendered.versions.lds, "cds": rendered.versions.cds},
            shared=planned.container is not None,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(addresses)),
        )
        if planned.container:
            self._run_in_container(name, planned.container)
        else:
            self._run_on_host(planned)
        self.register_outputs({"process": self.identity})

    def _run_on_host(self, planned: PlannedProxy) -> None:
        process = EnvoyProcess(
            planned.proxy.name,
            proxy=planned.proxy.id,
            owner=owner_fields(planned.owner),
            bootstrap=self.config.bootstrap,
            version=planned.envoy,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.config]),
        )
        self.process = process
        self.identity = pulumi.Output.all(process.pid, process.started).apply(
            lambda run: str(RunIdentity.of_process(*run))
        )

    def _run_in_container(self, name: str, planned: ProxyContainer) -> None:
        from components.container import declare_container  # noqa: PLC0415 - pulumi_docker takes 0.3 s to import

        self.process = declare_container(name, planned, self.config, self)
        self.identity = self.process.id.apply(lambda container: str(RunIdentity(container, container=True)))
