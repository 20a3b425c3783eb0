"""Objects as a stage's manifests and a cluster have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def service(name: str, *ports: Mapping[str, object], namespace: str = "n", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Make a Service of type LoadBalancer; `more` goes into its spec, `annotations` into its metadata."""
    metadata: dict[str, object] = {"name": name, "namespace": namespace}
    for key in ("annotations", "labels", "uid"):
        if key in more:
            metadata[key] = more.pop(key)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "LoadBalancer", "ports": list(ports), **more},
    }


def port(number: int, node_port: int, protocol: str = "TCP") -> dict[str, object]:
    return {"name": f"{protocol.lower()}-{number}", "port": number, "nodePort": node_port, "protocol": protocol}


def node(name: str = "node-a", address: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
