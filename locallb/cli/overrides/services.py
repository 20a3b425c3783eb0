"""The Services, Gateways and Ingresses that an order can be for, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from locallb.cli.failures import Refused
from locallb.cli.session import Session
from locallb.cli.targets import matching
from locallb.gateway.routes.bound import Bound
from locallb.model.formatting import clipped, few
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.backends.drained import names_of, names_of_endpoints
from locallb.planning.gateways.gateways import gateways_of, with_gateways, with_overrides
from locallb.planning.planned import Placement, Via


class Served(NamedTuple):
    """What gets addresses, and what was read and planned with it."""

    services: Mapping[ObjectKey, Service]
    """Gateways and Ingresses among them, as they are planned."""
    gateways: Mapping[ObjectKey, Bound]
    placements: Mapping[ObjectKey, Placement]
    snapshot: Snapshot


def served(session: Session) -> Served:
    """Return what gets addresses, as it is ordered now."""
    reading, plan = session.plan()
    snapshot = reading.snapshot
    bound = gateways_of(snapshot.gateway_api, session.settings, snapshot.authority)
    gateways = with_overrides(bound, snapshot.overrides).bound
    placed = {placement.key: placement for placement in plan.placements}
    every = with_gateways(snapshot, gateways).services
    return Served({service.key: service for service in every if service.key in placed}, gateways, placed, snapshot)


def with_referencing_gateways(keys: Iterable[ObjectKey], existing: Served) -> tuple[ObjectKey, ...]:
    """Return these and the Gateways and Ingresses that lead to them."""
    wanted = dict.fromkeys(keys)
    leading = (
        key for key, bound in existing.gateways.items() if key in existing.placements and wanted.keys() & _behind(bound)
    )
    return tuple(wanted | dict.fromkeys(leading))


def _behind(gateway: Bound) -> frozenset[ObjectKey]:
    return frozenset(target.service for target in gateway.targets.values())


def chosen_of(names: Iterable[str], existing: Served) -> tuple[ObjectKey, ...]:
    """Return the named Services. Raises TargetError if a name matches none or several."""
    keys = {str(key): key for key in existing.services}
    return tuple(dict.fromkeys(keys[matching(name, keys)] for name in names))


def require_backends(existing: Served, key: ObjectKey, names: Iterable[str]) -> None:
    """Check that a Service has backends of these names. Raises Refused."""
    nodes = names_of(node for node in existing.snapshot.nodes if node.cluster == key.cluster)
    behind = _behind(existing.gateways[key]) if key in existing.gateways else {key}
    endpoints = names_of_endpoints(slice_ for slice_ in existing.snapshot.slices if slice_.service in behind)
    straight = any(port.via in {Via.PODS, Via.BOTH} for port in existing.placements[key].ports)
    for name in names:
        if name in endpoints and name not in nodes and not straight:
            raise Refused(
                f"{key}: {clipped(name)} is behind NodePorts, where Kubernetes chooses the pod; name a Node,"
                " or have pods reached straight (local-lb:backends)"
            )
        if name not in nodes | endpoints:
            choices = few(sorted(nodes | (endpoints if straight else frozenset()))) or "none"
            raise Refused(f"{key} has no backend {clipped(name)}; name a Node, a Pod or an address: {choices}")
