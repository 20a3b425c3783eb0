"""The `status.loadBalancer` of a placement, as core/v1 has it (KEP-1860 for ipMode).

Only the content is made here; when it is true and who writes it is decided where it is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.config.status_settings import StatusOrder
from locallb.kubernetes.status_patch import DOMAIN, PORT_MAPPING, SERVED, SERVING, Published
from locallb.model.identities import Family, IPAddress, place
from locallb.model.reasons import Problem, Reason
from locallb.model.status_entries import Condition, EntryName, Ingress, IngressPort
from locallb.planning.notices import ordered_of
from locallb.planning.planned import Placement, PlannedPort, Rejection

MAPPED = "Loopback"
"""The reason of the condition for mapped ports; its message is `80/TCP=127.0.0.1:18080`, comma-separated."""
LONGEST_MESSAGE = 1024
"""Characters of a condition's message."""
CONDITION_NOT_AN_ERROR = frozenset({Reason.NO_BACKENDS})
"""A port without backends is reported by condition and event; the port itself has no error."""


def publication(planned: Placement | Rejection) -> Published:
    """Return our complete part of a Service's desired status.

    One ingress entry for each address, every port in each, in the order that the stack says.
    """
    if isinstance(planned, Rejection):
        return _not_serving([planned.problem])
    if planned.withdrawn:
        return _not_serving([planned.withdrawn])
    ingress = tuple(_entry(planned, address) for address in _ordered(planned))
    problems = [problem for port in planned.ports if (problem := port.problem or port.unanswered)]
    sibling = (*_mapping_events(planned), *_override_events(planned))
    if not problems:
        return Published(ingress, (SERVED, *sibling))
    return Published(ingress, (*_not_serving(problems, ingress).conditions, *sibling))


def _mapping_events(placement: Placement) -> Iterator[Condition]:
    """Return where clients find its ports, which their entries can't say."""
    addresses = _ordered(placement)
    places = [f"{port.port}/{port.protocol}={place(at, port.number)}" for port in placement.mapped for at in addresses]
    if places:
        yield Condition(PORT_MAPPING, "True", MAPPED, ",".join(places))


def _override_events(placement: Placement) -> Iterator[Condition]:
    """Return conditions for ordered faults, so that users don't search for their cause."""
    for notice in ordered_of(placement.notices):
        yield Condition(f"{DOMAIN}/{notice.reason}", "True", notice.reason, notice.message[:LONGEST_MESSAGE])


def _ordered(placement: Placement) -> Sequence[IPAddress]:
    if placement.status_order is StatusOrder.IPV4_FIRST:
        return sorted(placement.addresses, key=lambda address: address.version)
    return placement.addresses


def _not_serving(problems: Sequence[Problem], ingress: tuple[Ingress, ...] = ()) -> Published:
    """Return the status of a Service that isn't served, at least in part: the first reason, and all sentences."""
    sentences = "; ".join(dict.fromkeys(problem.message for problem in problems))[:LONGEST_MESSAGE]
    return Published(ingress, (Condition(SERVING, "False", problems[0].reason, sentences),))


def _entry(placement: Placement, address: IPAddress) -> Ingress:
    ports = (
        IngressPort(planned.port.port, str(planned.port.protocol), _error(planned, address))
        for planned in placement.ports
    )
    return Ingress(str(address), str(placement.ip_mode), tuple(ports), EntryName(placement.hostname))


def _error(planned: PlannedPort, address: IPAddress) -> str:
    """Return why the port isn't served at the address; empty where it is, or where only backends are missing."""
    problem = planned.problem
    return f"{DOMAIN}/{problem.reason}" if problem and _is_error(planned, problem, address) else ""


def _is_error(planned: PlannedPort, problem: Problem, address: IPAddress) -> bool:
    served = {Family.of(listener.address) for listener in planned.listeners}
    return problem.reason not in CONDITION_NOT_AN_ERROR and Family.of(address) not in served
