"""Endpoints: the backends of an upstream, in a file of their own (EDS) or inside the cluster (STATIC)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from locallb.envoy.document import Message, socket_address
from locallb.model.serving import Backend, HttpCheck, Upstream, distinct

STANDBY = 1
"""The priority of standby backends where clients keep theirs: MAGLEV knows no degraded ones."""
_FIRST, _BEHIND = 100, 1
"""Weights of backends and of standby backends. They count if no check passes and Envoy tries all: most attempts then go
where the plan wants them, instead of anywhere with the chance of one Node among many.
"""
_WHOLE: Message = {"overprovisioning_factor": 1_000_000}
"""One healthy backend of thousands keeps all traffic: with Envoy's 140 %, 3 dead of 8 would send some to standbys."""
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
    """Make the ClusterLoadAssignment: each backend once, in the order of family, address and port; standby behind."""
    first, behind = _endpoints(upstream.backends, upstream), _endpoints(upstream.standby, upstream)
    localities: list[Message] = [{"lb_endpoints": first}]
    if not behind:
        return {"cluster_name": upstream.name, "endpoints": localities}
    if upstream.client_ip_affinity:
        localities.append({"lb_endpoints": behind, "priority": STANDBY})
    else:
        weighed = [{**endpoint, "load_balancing_weight": _FIRST} for endpoint in first]
        degraded: Message = {"health_status": "DEGRADED", "load_balancing_weight": _BEHIND}
        localities = [{"lb_endpoints": [*weighed, *({**endpoint, **degraded} for endpoint in behind)]}]
    return {"cluster_name": upstream.name, "endpoints": localities, "policy": _WHOLE}


def _endpoints(backends: Iterable[Backend], upstream: Upstream) -> list[Message]:
    weights = dict(zip(upstream.backends, upstream.weights, strict=True)) if upstream.weights else {}
    return [_weighed(_endpoint(backend, upstream), weights.get(backend, 0)) for backend in distinct(backends)]


def _weighed(endpoint: Message, weight: int) -> Message:
    return {**endpoint, "load_balancing_weight": weight} if weight else endpoint


def _endpoint(backend: Backend, upstream: Upstream) -> Message:
    endpoint: Message = {"address": socket_address(str(backend.address), backend.port)}
    number = upstream.health.port if isinstance(upstream.health, HttpCheck) else 0
    if upstream.health is None or not (number or backend.checked_port):
        return {"endpoint": endpoint}
    return {"endpoint": {**endpoint, "health_check_config": _checked(backend, number)}}


def _checked(backend: Backend, number: int) -> Message:
    """Return where a backend is checked, if not at `number` of its own address."""
    if backend.checked_port is None:
        return {"disable_active_health_check": True}
    port = backend.checked_port or number
    if backend.checked_at is None:
        return {"port_value": port}
    return {"address": socket_address(str(backend.checked_at), port)}
