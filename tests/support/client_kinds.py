"""lightkube's types of the kinds that tests and benchmarks read and write.

Their client is another one than local-lb's: what that writes is read by a program that shares nothing with it.
"""

from __future__ import annotations

from lightkube.generic_resource import create_global_resource, create_namespaced_resource

SERVICE = create_namespaced_resource("", "v1", "Service", "services")
SLICE = create_namespaced_resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
LEASE = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
NODE = create_global_resource("", "v1", "Node", "nodes")
NAMESPACE = create_global_resource("", "v1", "Namespace", "namespaces")
SECRET = create_namespaced_resource("", "v1", "Secret", "secrets")
CONFIG_MAP = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
POD = create_namespaced_resource("", "v1", "Pod", "pods")
