"""Ranges of pods as a CNI states them."""

from __future__ import annotations

from typing import Any

from locallb.kubernetes.object_parsing import Parsed
from locallb.kubernetes.pod_ranges import with_ranges

CORE = ("Service", "Node", "EndpointSlice")


def block(cidr: str, version: str = "1") -> dict[str, Any]:
    """Write a block of Calico's that the Node has."""
    metadata = {"name": f"a-{cidr.replace('/', '-')}", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"node": "a", "cidr": cidr, "state": "confirmed"}}


def ranges_of(parsed: Parsed) -> list[str]:
    """Return where the pods of the Node are."""
    return [str(network) for one in with_ranges(parsed.nodes, parsed.ranges) for network in one.pod_cidrs]
