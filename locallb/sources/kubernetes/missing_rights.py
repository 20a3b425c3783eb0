"""Clusters without the right to read EndpointSlices: pods are unknown, and Services are reached by NodePorts.

Not here: rights that Gateways need (`gateway_listing`), and rights without which nothing of a cluster is known.
"""

from __future__ import annotations

from locallb.kubernetes.access.errors import ForbiddenError
from locallb.kubernetes.answers import Object
from locallb.kubernetes.api.client import Cluster
from locallb.model.identities import ClusterName

SLICE = "EndpointSlice"


def list_objects(cluster: Cluster) -> tuple[list[Object], str]:
    """List all that Services need, and say why EndpointSlices may not be read. Raises KubeError."""
    listed = cluster.objects()
    try:
        return [*listed, *cluster.slices()], ""
    except ForbiddenError as error:
        return listed, str(error)


def slice_notices(cluster: ClusterName, why: str) -> tuple[str, ...]:
    """Tell that EndpointSlices may not be read, if so."""
    until = "until that right of deploy/rbac.yaml is given, its Services are reached by NodePorts"
    return (f"source {cluster}: {why}; {until}",) if why else ()
