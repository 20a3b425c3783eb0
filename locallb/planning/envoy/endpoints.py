"""Endpoints: the backends of an upstream, in a file of their own (EDS) or inside the cluster (STATIC)."""

from __future__ import annotations

import re

from locallb.planning.envoy.document import Message, socket_address
from locallb.planning.serving import Backend, HttpCheck, Upstream

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def file_name(upstream: Upstream) -> str:
    """Name the EDS file of an upstream.

    Raises ValueError for a name that isn't one of ours: it would become a path.
    """
    if not _NAME.fullmatch(upstream.name):
        raise ValueError(
            f"Upstream {upstream.name!r} can't name a file: use at most 63 lower-case letters, digits and hyphens."
        )
    return f"eds-{upstream.name}.json"


def assignment(upstream: Upstream) -> Message:
    """Make the ClusterLoadAssignment: each backend once, in the order of family, address and port."""
    endpoints = [_endpoint(backend, upstream) for backend in sorted(set(upstream.backends))]
    return {"cluster_name": upstream.name, "endpoints": [{"lb_endpoints": endpoints}]}


def _endpoint(backend: Backend, upstream: Upstream) -> Message:
    endpoint: Message = {"address": socket_address(str(backend.address), backend.port)}
    if isinstance(upstream.health, HttpCheck):
        return {"endpoint": {**endpoint, "health_check_config": {"port_value": upstream.health.port}}}
    return {"endpoint": endpoint}
