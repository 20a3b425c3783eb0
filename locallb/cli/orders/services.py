"""The Services for which something can be ordered, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from locallb.cli.commands.targets import matching
from locallb.cli.failures import Refused
from locallb.cli.session import Session
from locallb.model.formatting import clipped, few
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.backends.drained import names_of, names_of_endpoints
from locallb.planning.planned import Placement, Via


class Served(NamedTuple):
    """Services that get addresses, and what was read and planned with them."""

    services: Mapping[ObjectKey, Service]
    placements: Mapping[ObjectKey, Placement]
    snapshot: Snapshot


def served(session: Session) -> Served:
    """Return the Services that get addresses, as they are ordered now."""
    reading, plan = session.plan()
    placed = {placement.key: placement for placement in plan.placements}
    services = {service.key: service for service in reading.snapshot.services if service.key in placed}
    return Served(services, placed, reading.snapshot)


def chosen_of(names: Iterable[str], known: Served) -> tuple[ObjectKey, ...]:
    """Return which Services are named. Raises TargetError if a name is nobody's, or not only one's."""
    keys = {str(key): key for key in known.services}
    return tuple(dict.fromkeys(keys[matching(name, keys)] for name in names))


def require_backends(known: Served, key: ObjectKey, names: Iterable[str]) -> None:
    """Check that a Service has backends of these names. Raises Refused."""
    nodes = names_of(node for node in known.snapshot.nodes if node.cluster == key.cluster)
    endpoints = names_of_endpoints(each for each in known.snapshot.slices if each.service == key)
    straight = any(port.via in {Via.PODS, Via.BOTH} for port in known.placements[key].ports)
    for name in names:
        if name in endpoints and name not in nodes and not straight:
            raise Refused(
                f"{key}: {clipped(name)} is behind NodePorts, where Kubernetes chooses the pod; name a Node,"
                " or have pods reached straight (local-lb:backends)"
            )
        if name not in nodes | endpoints:
            there = few(sorted(nodes | (endpoints if straight else frozenset()))) or "none"
            raise Refused(f"{key} has no backend {clipped(name)}; name a Node, a Pod or an address: {there}")
