"""The annotation `local-lb.dev/fault`: the fault that it orders, and its parts without effect.

Not here: the syntax of a fault (`faults`), and when a fault ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.model.faults import Fault, parse_fault

FAULT_ANNOTATION = "local-lb.dev/fault"
"""The fault of a Service, a Gateway, a route or an Ingress, as `parse_fault` reads it."""


def fault_in(annotations: Mapping[str, str]) -> Fault | None:
    """Read the ordered fault; None for none, and for an invalid one: that prevents no serving."""
    try:
        return parse_fault(annotations[FAULT_ANNOTATION])
    except (KeyError, ValueError):
        return None


def annotation_problem(annotations: Mapping[Any, object], *, routed: bool) -> str:
    """Return what of the annotation orders nothing, for what has requests (`routed`) or connections; empty for none."""
    value = annotations.get(FAULT_ANNOTATION)
    if not isinstance(value, str):
        return ""
    terms = "delay=200ms,status=503:10%" if routed else "refuse=10%,hang=5%,reset=1%"
    try:
        fault = parse_fault(value)
    except ValueError as error:
        why = f"nothing, because {error}"
    else:
        if not (fault.of_connections if routed else fault.of_requests):
            return ""
        others = "refuse, hang and reset for connections of Services"
        why = f"{others if routed else 'delay and status for requests to Gateways'} only"
    return f"the annotation {FAULT_ANNOTATION} orders {why}; write {terms},until=2026-11-22T18:00:00Z, or remove it"
