"""Resources in a Pulumi state, as its readers see them: the type tokens they look for, the fields of a resource.

The tokens are a promise: state files of every version name types by them. Not here: what a resource does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

ADDRESS = "locallb:index:LoopbackAddress"
PORTS = "locallb:index:LoopbackPorts"
CLAIMS = frozenset({ADDRESS, PORTS})
"""Types of resources with a claim in the ledger."""
CERTIFICATE = "locallb:index:LocalCertificate"
SERVED_CERTIFICATE = "locallb:index:ServedCertificate"
CONFIG = "locallb:index:ProxyConfig"
PROCESS = "locallb:index:EnvoyProcess"
SERVICE = "locallb:index:ServiceConfig"
POD_ROUTES = "locallb:index:PodRoutes"
REACHABLE = "locallb:index:Reachable"
CLAIM = "locallb:index:ServiceClaim"
SERVICE_STATUS = "locallb:index:ServiceStatus"
SERVICE_EVENTS = "locallb:index:ServiceEvents"
GATEWAY_STATUS = "locallb:index:GatewayStatus"
DNS_NAME = "locallb:index:DnsName"
STUB_ZONES = "locallb:index:StubZones"
BALANCER = "locallb:index:LoadBalancer"
PROXY = "locallb:index:Proxy"
CLUSTER_ROUTES = "locallb:index:ClusterRoutes"
GATEWAY_OBJECT = "locallb:index:GatewayObject"
CLUSTER_ZONES = "locallb:index:ClusterZones"
ROOTS = (BALANCER, PROXY, CLUSTER_ROUTES, GATEWAY_OBJECT, CLUSTER_ZONES)
"""Resources directly below the stack: each is updated by itself, with its children."""
CONTAINER = "docker:index/container:Container"
PODMAN_CONTAINER = "locallb:index:PodmanContainer"


class Resource(Protocol):
    """The needed fields of a resource in a state."""

    @property
    def type(self) -> str:
        """Its type token."""

    @property
    def inputs(self) -> Mapping[str, object]:
        """Its inputs as the state has them."""

    @property
    def outputs(self) -> Mapping[str, object]:
        """Its outputs as the state has them."""
