"""The clusters with pods that are reached through the API server, and the relays of a plan.

Not here: the relay (`relay`), and which pods are backends (`backends`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.model.identities import ClusterName
from locallb.model.relays import RelayedPort, RelayId, relay_id
from locallb.model.serving import Upstream
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Plan, PlannedRelay


def relayed_clusters(snapshot: Snapshot, settings: Settings) -> Mapping[ClusterName, RelayId]:
    """Return the relays of the clusters that are reached through their API servers, whether they have pods or not."""
    if settings.pod_routes is not PodRouting.API:
        return {}
    return {cluster: relay_id(snapshot.home, cluster) for cluster in sorted(snapshot.access)}


def with_relays(plan: Plan, relays: Mapping[ClusterName, RelayId], snapshot: Snapshot) -> Plan:
    """Return the plan with a relay for each of these clusters that has backends."""
    if not relays:
        return plan
    ports: dict[RelayId, set[RelayedPort]] = {}
    for upstream in _upstreams(plan):
        for backend in upstream.backends:
            if backend.relayed:
                ports.setdefault(backend.relayed.relay, set()).add(backend.relayed.port)
    return replace(
        plan,
        relays=tuple(
            PlannedRelay(cluster, snapshot.home, snapshot.access[cluster], tuple(sorted(ports[relay])))
            for cluster, relay in relays.items()
            if relay in ports
        ),
    )


def _upstreams(plan: Plan) -> Iterator[Upstream]:
    for planned in plan.proxies:
        yield from planned.proxy.upstreams
    for placement in plan.placements:
        if placement.part:
            yield from placement.part.part.upstreams
