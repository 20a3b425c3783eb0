"""The routes to the pods of one cluster in this host's table."""

from __future__ import annotations

import pulumi

from locallb.model.naming import owner_fields
from locallb.model.state_resource import CLUSTER_ROUTES
from locallb.planning.planned_for_clusters import PlannedRoutes
from locallb.resources.declared import PodRoutes


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
