"""The component resources for programs of this checkout.

An installed wheel doesn't have this name, as a project may have components of its own: there the same classes come from
`locallb.program` and `locallb.components.in_cluster`. A project that runs with this checkout may have a directory of
this name, too: its modules are found as well.
"""

from pkgutil import extend_path

from locallb.components.in_cluster import ClusterAccess, InCluster
from locallb.program import LoadBalancers

__all__ = ["ClusterAccess", "InCluster", "LoadBalancers"]

__path__ = extend_path(__path__, __name__)
