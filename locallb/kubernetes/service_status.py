"""The `status.loadBalancer` of a placement, as core/v1 has it (KEP-1860 for ipMode).

Only the body is made here; who writes it, and when it is true, is decided where it is published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locallb.kubernetes.status_patch import DOMAIN, SERVING, Published
from locallb.model.identities import Family, IPAddress
from locallb.model.reasons import Problem, Reason
from locallb.planning.planned import Placement, PlannedPort, Rejection

SERVES = "Serves"
"""The condition's reason where nothing is wrong."""
LONGEST_MESSAGE = 1024
"""Characters of a condition's message."""
CONDITION_NOT_AN_ERROR = frozenset({Reason.NO_BACKENDS})
"""A port without backends is told by condition and event; the port itself has no error."""


def publication(planned: Placement | Rejection) -> Published:
    """Return all that a Service's status shall say of ours.

    One ingress entry for each address, in the order of spec.ipFamilies, every port in each.
    """
    if isinstance(planned, Rejection):
        return Published((), not_serving([planned.problem]))
    return Published([_entry(planned, address) for address in _told(planned)], conditions(planned))


def ingress_fields(placement: Placement) -> Sequence[Mapping[str, object]]:
    """Write the same entries as the properties of a resource, where every field has a value."""
    return [
        {
            "ip": str(address),
            "mode": str(placement.ip_mode),
            "ports": [
                {"port": one.port.port, "protocol": str(one.port.protocol), "error": _error(one, address)}
                for one in placement.ports
            ],
        }
        for address in _told(placement)
    ]


def conditions(placement: Placement) -> Sequence[Mapping[str, str]]:
    """Return whether every port serves; of those that don't, the first one's reason and everybody's sentence."""
    problems = [port.problem for port in placement.ports if port.problem]
    if placement.withdrawn:
        return not_serving([placement.withdrawn])
    if not problems:
        return [{"type": SERVING, "status": "True", "reason": SERVES, "message": ""}]
    return not_serving(problems)


def not_serving(problems: Sequence[Problem]) -> Sequence[Mapping[str, str]]:
    """Return that it doesn't serve, or not everything, and why."""
    sentences = "; ".join(dict.fromkeys(problem.message for problem in problems))[:LONGEST_MESSAGE]
    return [{"type": SERVING, "status": "False", "reason": problems[0].reason, "message": sentences}]


def _told(placement: Placement) -> tuple[IPAddress, ...]:
    """Return the addresses that the Service is told to have."""
    return () if placement.withdrawn else placement.addresses


def _entry(placement: Placement, address: IPAddress) -> Mapping[str, object]:
    return {
        "ip": str(address),
        "ipMode": str(placement.ip_mode),
        "ports": [_port(port, address) for port in placement.ports],
    }


def _port(planned: PlannedPort, address: IPAddress) -> Mapping[str, object]:
    body: dict[str, object] = {"port": planned.port.port, "protocol": str(planned.port.protocol)}
    if error := _error(planned, address):
        body["error"] = error
    return body


def _error(planned: PlannedPort, address: IPAddress) -> str:
    """Return why the port isn't served at the address; empty where it is, or where only backends are missing."""
    problem = planned.problem
    return f"{DOMAIN}/{problem.reason}" if problem and _is_error(planned, problem, address) else ""


def _is_error(planned: PlannedPort, problem: Problem, address: IPAddress) -> bool:
    served = {Family.of(listener.address) for listener in planned.listeners}
    return problem.reason not in CONDITION_NOT_AN_ERROR and Family.of(address) not in served
