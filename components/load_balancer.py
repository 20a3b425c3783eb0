"""One Service's load balancer: its addresses, and the proof that a proxy serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from components.proxy import Proxy
from locallb.config.registry import FRONTENDS
from locallb.model.identities import Digest, IPAddress
from locallb.model.naming import address_name, owner_fields
from locallb.model.snapshot import Access
from locallb.model.state_resource import BALANCER
from locallb.outputs.output import tell
from locallb.planning.planned import Placement, PlannedPart
from locallb.resources.codec import encode
from locallb.resources.declared import (
    LoopbackAddress,
    LoopbackPorts,
    Reachable,
    ServiceClaim,
    ServiceConfig,
)


class LoadBalancer(pulumi.ComponentResource):
    """Claims the placement's addresses at once; `serve` adds what waits for the proxy."""

    addresses: Sequence[LoopbackAddress | LoopbackPorts]
    proof: Reachable
    """Once `serve` was called."""

    def __init__(self, placement: Placement, digest: Digest) -> None:
        super().__init__(BALANCER, str(placement.key), _shown(placement, digest))
        self.placement = placement
        claimed = placement.access if placement.key.kind.value in FRONTENDS else None
        claim = [self._claim(claimed)] if claimed else []
        opts = pulumi.ResourceOptions(parent=self, depends_on=claim)
        self.addresses = [self._hold(address, opts) for address in placement.addresses]

    def serve(self, proxy: Proxy, ways: Sequence[pulumi.Resource] = ()) -> None:
        """Configure `proxy` for this load balancer, unless it is its own, and wait until it serves its listeners.

        `ways` lead to its backends.
        """
        part = self.placement.part
        told = [self._tell_proxy(part, proxy)] if part else []
        listeners = [listener.name for port in self.placement.ports for listener in port.listeners]
        self.proof = Reachable(
            str(self.placement.key),
            proxy=proxy.config.proxy,
            part=part.part.id if part else "",
            process=proxy.identity,
            listeners=listeners,
            versions=_versions(part) if part else proxy.config.versions,
            probes=[probe.place for probe in self.placement.probes],
            published=proxy.published,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[proxy.process, *told, *proxy.ways, *ways]),
        )
        tell(self.placement, self, list(self.addresses) if self.placement.withdrawn else [self.proof])
        self.register_outputs({"addresses": [str(address) for address in self.placement.addresses]})

    def _hold(self, address: IPAddress, opts: pulumi.ResourceOptions) -> LoopbackAddress | LoopbackPorts:
        """Claim an address, or the ports of one that all Services share."""
        name, owner = address_name(self.placement.key, address), owner_fields(self.placement.owner)
        if mapped := self.placement.mapped:
            return LoopbackPorts(name, address=str(address), owner=owner, ports=list(map(str, mapped)), opts=opts)
        return LoopbackAddress(name, address=str(address), owner=owner, sharing=self.placement.sharing, opts=opts)

    def _claim(self, access: Access) -> ServiceClaim:
        """Keep the Service of a live cluster from vanishing before what serves it."""
        return ServiceClaim(
            str(self.placement.key),
            access=encode(access),
            owner=owner_fields(self.placement.owner),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _tell_proxy(self, part: PlannedPart, proxy: Proxy) -> ServiceConfig:
        """Put this load balancer's part into a proxy that others may use too."""
        return ServiceConfig(
            str(self.placement.key),
            proxy=proxy.config.proxy,
            part=part.part.id,
            owner=owner_fields(self.placement.owner),
            listeners=dict(part.rendered.listeners),
            clusters=dict(part.rendered.clusters),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.addresses, proxy.process]),
        )


def _versions(part: PlannedPart) -> Mapping[str, str]:
    return {"lds": part.rendered.listeners_version, "cds": part.rendered.clusters_version}


def _shown(placement: Placement, digest: Digest) -> Mapping[str, object]:
    """Write what a reader of a preview wants to see of a load balancer."""
    return {
        "addresses": [str(address) for address in placement.addresses],
        "ports": [str(port) for port in placement.ports],
        "uid": placement.owner.uid,
        "digest": digest,
        **({"names": [str(name) for name in placement.names]} if placement.names else {}),
    }
