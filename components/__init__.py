"""The component resources for programs of this checkout.

An installed wheel doesn't have this name, as a project may have components of its own: there the same classes come from
`locallb.program` and `locallb.components.in_cluster`.
"""

from locallb.components.in_cluster import ClusterAccess, InCluster
from locallb.program import LoadBalancers

__all__ = ["ClusterAccess", "InCluster", "LoadBalancers"]
