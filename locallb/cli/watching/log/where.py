"""The addresses and ports of a Service as a log line writes them. Not here: whether it is served there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from locallb.model.formatting import few
from locallb.model.identities import IPAddress, ObjectKey
from locallb.planning.of_keys import placements_of
from locallb.planning.planned import Plan

_MAX = 3
"""Ports that a sentence names."""


def where(addresses: Sequence[IPAddress], ports: Collection[str]) -> str:
    """Write addresses and ports behind a name; empty where it has none, as a route."""
    if not addresses:
        return ""
    return f" at {' '.join(map(str, addresses))}" + (f" ({few(ports, _MAX)})" if ports else "")


def planned_places(plan: Plan, keys: Collection[ObjectKey]) -> Mapping[ObjectKey, str]:
    """Return where some Services are, as far as this plan gives them addresses: for ports that can be served."""
    return {
        placement.key: where(placement.addresses, [port.port.label for port in placement.ports if not port.problem])
        for placement in placements_of(plan, keys)
    }
