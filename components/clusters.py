"""What is a running cluster's: the routes to its pods in this host's table, and the stack's zones in its CoreDNS."""

from __future__ import annotations

import pulumi

from locallb.model.naming import owner_fields
from locallb.model.state_resource import CLUSTER_ROUTES, CLUSTER_ZONES
from locallb.planning.planned_for_clusters import PlannedRoutes, PlannedZones
from locallb.resources.codec import encode
from locallb.resources.declared import PodRoutes, StubZones


class ClusterRoutes(pulumi.ComponentResource):
    """Makes them as soon as anything of the stack is made; whoever is served by pods waits for them."""

    def __init__(self, planned: PlannedRoutes) -> None:
        name = str(planned.key)
        super().__init__(CLUSTER_ROUTES, name, {"cluster": planned.cluster, "digest": planned.digest})
        self.routes = PodRoutes(
            name,
            owner=owner_fields(planned.owner),
            container="",
            routes=[str(route) for route in planned.routes],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


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
