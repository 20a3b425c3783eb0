"""Two Services of a cluster, planned with own and with shared proxies."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from msgspec.structs import replace

from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import ProxySettings, Settings, Sharing
from locallb.model.identities import ClusterName, Home, NodeName, ObjectKey, Protocol
from locallb.model.objects import Node, Service, ServicePort
from locallb.model.snapshot import Snapshot

C = ClusterName("demo")
HOME = Home("p", "s", "/p")
NODE = Node(C, NodeName("worker"), (ip_address("172.18.0.3"),), pod_cidrs=(ip_network("10.244.1.0/24"),))
OWN = Settings((), (DEFAULT_POOL,))
SHARED = replace(OWN, proxies=ProxySettings(Sharing.SHARED))


def port(number: int, protocol: Protocol = Protocol.TCP) -> ServicePort:
    return ServicePort(number, protocol, str(number), 30000 + number % 1000)


def service(name: str, number: int = 8080, **fields: Any) -> Service:  # noqa: ANN401 - fields by name
    """Make a Service with one port; by its name it is the older one of those that come later in the alphabet."""
    made = Service(ObjectKey(C, "shop", name), (port(number),), created=f"2026-01-01T00:00:0{'abc'.index(name)}Z")
    return replace(made, **fields)


A, B = service("a"), service("b", 8081)


def snapshot(*services: Service, **others: Any) -> Snapshot:  # noqa: ANN401 - fields by name
    """Read these Services of a cluster with one Node."""
    return Snapshot(**{"home": HOME, "services": services, "nodes": (NODE,), **others})
