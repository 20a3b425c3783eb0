"""One Envoy: its configuration on disk, and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import pulumi

from locallb.model.http.serving import AnyCertificate
from locallb.model.http.serving import LocalCertificate as Local
from locallb.model.identities import ContextName, RunIdentity
from locallb.model.naming import owner_fields
from locallb.model.snapshot import Access
from locallb.model.state_resource import PROXY
from locallb.planning.planned import PlannedProxy
from locallb.resources.codec import encode
from locallb.resources.declared import (
    LocalCertificate,
    LoopbackAddress,
    LoopbackPorts,
    PodRoutes,
    ProxyConfig,
    Reachable,
    ServedCertificate,
)
from locallb.runtimes.pod_routes import container_of
from locallb.runtimes.runtime import runtime


class _Serves(TypedDict, total=False):
    """What only those say that one Gateway took."""

    serves: str


class Proxy(pulumi.ComponentResource):
    """Runs a planned proxy once the addresses that it serves are claimed."""

    id: str
    published: bool
    """Docker publishes its ports."""
    config: ProxyConfig
    process: pulumi.Resource
    """What runs Envoy, as its runtime declares it."""
    ways: Sequence[pulumi.Resource] = ()
    """Routes of its own to its backends."""
    identity: pulumi.Output[str]
    """Which run of Envoy this is: another one means that it has to prove itself again."""

    def __init__(
        self,
        planned: PlannedProxy,
        addresses: Sequence[LoopbackAddress | LoopbackPorts],
        access: Access | None = None,
    ) -> None:
        name, owner, rendered = planned.proxy.name, owner_fields(planned.owner), planned.rendered
        self._serves: _Serves = {"serves": str(planned.serves)} if planned.serves else {}
        shown = {"listeners": [listener.name for listener in planned.proxy.every_listener], "digest": planned.digest}
        if planned.proxy.names:
            table = (served for listener in planned.proxy.names for served in listener.table)
            shown["names"] = [f"{each.name} {' '.join(map(str, each.addresses))}" for each in table]
        super().__init__(PROXY, name, shown)
        self.id = planned.proxy.id
        self.published = bool(planned.proxy.published)
        certificates = [self._certificate(planned, certificate, access) for certificate in planned.proxy.certificates]
        self.config = ProxyConfig(
            name,
            proxy=planned.proxy.id,
            name=name,
            owner=owner,
            files=dict(rendered.files),
            versions={"lds": rendered.versions.lds, "cds": rendered.versions.cds},
            shared=planned.run.by_group,
            **self._serves,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*addresses, *certificates]),
        )
        self.process, self.identity = runtime(planned.run.runtime).declare(planned, self.config, self)
        self._route(planned)
        self.register_outputs({"process": self.identity})

    def answer(self, planned: PlannedProxy) -> None:
        """Wait until questions for names are answered as planned."""
        Reachable(
            planned.proxy.name,
            proxy=self.config.proxy,
            part="",
            process=self.identity,
            listeners=[listener.name for listener in planned.proxy.names],
            versions=self.config.versions,
            probes=[],
            published=self.published,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.process]),
        )

    def _certificate(
        self, planned: PlannedProxy, certificate: AnyCertificate, access: Access | None
    ) -> ServedCertificate | LocalCertificate:
        """Put a certificate and its key where the proxy reads them; both lie there before anything refers to them."""
        if isinstance(certificate, Local):
            return self._made(planned, certificate)
        return ServedCertificate(
            f"{planned.proxy.name}/{certificate.namespace}.{certificate.name}",
            proxy=planned.proxy.id,
            name=planned.proxy.name,
            owner=owner_fields(planned.owner),
            access=encode(Access("", ContextName("")) if certificate.file or access is None else access),
            file=certificate.file,
            namespace=certificate.namespace,
            secret=certificate.name,
            digest=certificate.digest,
            shared=planned.run.by_group,
            **self._serves,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _made(self, planned: PlannedProxy, certificate: Local) -> LocalCertificate:
        """Have a certificate made, too."""
        return LocalCertificate(
            f"{planned.proxy.name}/{certificate.name}",
            proxy=planned.proxy.id,
            name=planned.proxy.name,
            owner=owner_fields(planned.owner),
            certificate=certificate.name,
            hosts=list(certificate.hosts),
            authority=certificate.authority,
            period=certificate.period,
            shared=planned.run.by_group,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _route(self, planned: PlannedProxy) -> None:
        """Lead from a container's own network to the pods of its cluster; another container needs them again."""
        if planned.routes:
            routes = PodRoutes(
                planned.proxy.name,
                owner=owner_fields(planned.owner),
                container=self.identity.apply(lambda text: container_of(RunIdentity.parse(text))),
                routes=[str(route) for route in planned.routes],
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.ways = [routes]
