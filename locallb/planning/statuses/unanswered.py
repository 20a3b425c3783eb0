"""Ports without a backend that takes connections, as their proxies reported for a while, for statuses in clusters.

Addresses stay: the port is served as soon as a backend answers. Not here: how long is long enough (`watch.failures`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import ObjectKey, UpstreamName
from locallb.model.objects import ServicePort
from locallb.planning.planned import Placement, Plan, PlannedPort


class SilentPort(Struct, frozen=True):
    """A port, and an upstream of it of which no backend takes connections."""

    key: ObjectKey
    port: ServicePort
    upstream: UpstreamName


def mark_unanswered(plan: Plan, silent: Collection[SilentPort]) -> Plan:
    """Return the plan in which ports of objects of live clusters say that they are silent."""
    keys = {each.key for each in silent}
    if not keys:
        return plan
    placements = (
        _marked(placement, silent) if placement.access and placement.key in keys else placement
        for placement in plan.placements
    )
    return replace(plan, placements=tuple(placements))


def _marked(placement: Placement, silent: Collection[SilentPort]) -> Placement:
    ports = tuple(_marked_port(placement.key, port, silent) for port in placement.ports)
    return replace(placement, ports=ports) if ports != placement.ports else placement


def _marked_port(key: ObjectKey, port: PlannedPort, silent: Collection[SilentPort]) -> PlannedPort:
    problems = (problem for name, problem in port.silence.items() if SilentPort(key, port.port, name) in silent)
    problem = None if port.problem else next(problems, None)
    return replace(port, unanswered=problem) if problem else port
