"""Ports without a backend that takes connections, as their proxies reported for a while, for statuses in clusters.

Addresses stay: the port is served as soon as a backend answers. Not here: how long is long enough (`watch.failures`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import ObjectKey, UpstreamName
from locallb.model.objects import ServicePort
from locallb.model.reasons import Reason
from locallb.model.status_entries import Condition
from locallb.planning.planned import Placement, Plan, PlannedPort
from locallb.planning.status import Observation

SILENCES = frozenset({Reason.BACKENDS_DOWN, Reason.UNREACHABLE})
"""Reasons of what may be published of such a port."""


class SilentPort(Struct, frozen=True):
    """A port, and an upstream of it of which no backend takes connections."""

    key: ObjectKey
    port: ServicePort
    upstream: UpstreamName


def published_silence(placement: Placement, condition: Condition) -> frozenset[SilentPort]:
    """Return the ports of a Service that a condition in its cluster calls silent; all that may be where it names none.

    What was published stands until the proxy reports otherwise, whatever has been restarted.
    """
    silence = {
        SilentPort(placement.key, port.port, name): problem
        for port in placement.ports
        for name, problem in port.silence.items()
    }
    if condition.status != "False" or condition.reason not in SILENCES:
        return frozenset()
    named = frozenset(port for port, problem in silence.items() if problem.message in condition.message)
    return named or frozenset(silence)


def is_answered(placement: Placement, observed: Observation | None) -> bool:
    """Return whether every port serves by what its proxy reports, and by what is published."""
    names = [name for port in placement.ports for name in port.silence]
    served = not placement.withdrawn and not any(port.problem or port.unanswered for port in placement.ports)
    return observed is not None and served and bool(names) and all(observed.healthy.get(name) for name in names)


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
