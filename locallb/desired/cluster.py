"""The groups of a running cluster: routes to its pods, zones in its CoreDNS, objects next to its Gateways."""

from __future__ import annotations

from locallb.model.desired import Group, Resource, ResourceKey, group_of
from locallb.model.identities import ObjectKey
from locallb.model.naming import owner_fields
from locallb.model.state_resource import (
    CLUSTER_ROUTES,
    CLUSTER_ZONES,
    GATEWAY_OBJECT,
    POD_ROUTES,
    REACHABLE,
    STUB_ZONES,
)
from locallb.outputs.output import Place
from locallb.outputs.status.output import status_resource
from locallb.planning.planned import PlannedStatus
from locallb.planning.planned_for_clusters import PlannedRoutes, PlannedZones
from locallb.resources.codec import encode


def routes_group(planned: PlannedRoutes) -> Group:
    """Return the routes to the pods of a cluster, which exist before what is served by these pods is proven."""
    name = str(planned.key)
    root = Resource(ResourceKey(CLUSTER_ROUTES, name), {"cluster": planned.cluster}, outputs={})
    inputs = {
        "owner": owner_fields(planned.owner),
        "container": "",
        "routes": [str(route) for route in planned.routes],
    }
    return group_of(root, [Resource(routes_of(planned.key), inputs, root.key)])


def routes_of(owner: ObjectKey) -> ResourceKey:
    """Return the resource of the routes to a cluster's pods, by their owner."""
    return ResourceKey(POD_ROUTES, str(owner))


def zones_group(planned: PlannedZones) -> Group:
    """Return the zones that pods of a cluster resolve; nothing waits for them."""
    name = str(planned.key)
    root = Resource(ResourceKey(CLUSTER_ZONES, name), {"cluster": planned.cluster}, outputs={})
    inputs = {"owner": owner_fields(planned.owner), "access": encode(planned.access), "zones": list(planned.zones)}
    return group_of(root, [Resource(ResourceKey(STUB_ZONES, name), inputs, root.key)])


def object_group(planned: PlannedStatus) -> Group:
    """Return the status of an object next to its Gateways, after the proof of the one it waits for."""
    root = Resource(ResourceKey(GATEWAY_OBJECT, str(planned.key)), {"uid": planned.owner.uid}, outputs={})
    ready = (ResourceKey(REACHABLE, str(planned.gateway)),) if planned.gateway else ()
    return group_of(root, [status_resource(planned, Place(root.key, ready))])
