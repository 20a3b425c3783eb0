"""Kubernetes objects as a source hands them over, with just the fields that a test talks about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.kubernetes.object_parsing import Parsed, parse_objects
from locallb.model.identities import ClusterName

DEMO = ClusterName("demo")

JsonObject = dict[str, Any]


def service(
    name: object = "web", *, namespace: object = "shop", meta: JsonObject | None = None, **spec: object
) -> JsonObject:
    """Make a Service of type LoadBalancer with one port; `spec` adds or replaces fields of its spec."""
    metadata = {"name": name, "namespace": namespace, **(meta or {})}
    whole = {"type": "LoadBalancer", "ports": [{"port": 8080, "nodePort": 30080}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": whole}


def node(name: str = "worker", *addresses: str, meta: JsonObject | None = None, taints: object = None) -> JsonObject:
    """Make a Node with these InternalIPs, and a Hostname that nobody shall use."""
    listed = [{"type": "InternalIP", "address": address} for address in addresses or ("127.0.0.1",)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"taints": taints},
        "status": {"addresses": [*listed, {"type": "Hostname", "address": name}]},
    }


def endpoints(
    *entries: Mapping[str, object],
    name: str = "web-abc",
    service: str = "web",
    family: str = "IPv4",
    ports: object = ({"name": "", "port": 9376, "protocol": "TCP"},),
) -> JsonObject:
    """Make an EndpointSlice of the Service shop/`service`."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "ports": ports,
        "endpoints": list(entries),
    }


def endpoint(address: str = "10.0.0.7", node_name: str | None = "worker", *, ready: bool | None = True) -> JsonObject:
    return {"addresses": [address], "conditions": {"ready": ready}, "nodeName": node_name}


def parsed(*objects: object) -> Parsed:
    """Parse objects of the cluster `demo`."""
    return parse_objects(DEMO, objects)
