"""The stack's zones in the CoreDNS of one running cluster."""

from __future__ import annotations

import pulumi

from locallb.model.naming import owner_fields
from locallb.model.state_resource import CLUSTER_ZONES
from locallb.planning.planned_for_clusters import PlannedZones
from locallb.resources.codec import encode
from locallb.resources.declared import StubZones


class ClusterZones(pulumi.ComponentResource):
    """Has them resolved by pods; nobody waits for that."""

    def __init__(self, planned: PlannedZones) -> None:
        name = str(planned.key)
        super().__init__(CLUSTER_ZONES, name, {"cluster": planned.cluster, "digest": planned.digest})
        StubZones(
            name,
            owner=owner_fields(planned.owner),
            access=encode(planned.access),
            zones=list(planned.zones),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
