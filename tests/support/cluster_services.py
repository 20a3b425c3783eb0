"""Services of a real cluster, and what their statuses say."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.backends import Backend
from tests.support.control_plane import Document, Objects
from tests.support.manifests import port, service

Backends = Callable[..., Backend]
FOREIGN = {"ip": "192.0.2.7", "ipMode": "VIP"}


def made(cluster: Objects, backend: Backends, name: str, number: int = 8080) -> Document:
    """Create a Service with one port and start what answers on its NodePort."""
    document = cluster.service(service(name, port(number, 0)))
    backend(name, port=document["spec"]["ports"][0]["nodePort"])
    return document


def ingress(cluster: Objects, name: str) -> list[Document]:
    """Return what the Service's status says of addresses."""
    document = cluster.read(name)
    assert document is not None
    entries: list[Document] = document["status"].get("loadBalancer", {}).get("ingress", [])
    return entries


def address(cluster: Objects, name: str) -> str:
    """Return the one address in the Service's status."""
    (entry,) = ingress(cluster, name)
    return str(entry["ip"])


def condition(cluster: Objects, name: str, kind: str = "local-lb.dev/Serving") -> Document:
    """Return a condition of ours of a Service."""
    document = cluster.read(name)
    assert document is not None
    (serving,) = (condition for condition in document["status"].get("conditions", ()) if condition["type"] == kind)
    return dict(serving)


def finalizers(cluster: Objects, name: str) -> list[str]:
    document = cluster.read(name)
    assert document is not None
    return list(document["metadata"].get("finalizers", ()))
