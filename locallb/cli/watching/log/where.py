"""The addresses and ports of a Service as a log line writes them. Not here: whether it is served there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from locallb.model.formatting import few
from locallb.model.identities import IPAddress, ObjectKey
from locallb.planning.planned import Plan

_MOST = 3
"""Ports that a sentence names."""


def where(addresses: Sequence[IPAddress], ports: Collection[str]) -> str:
    """Write addresses and ports behind a name; empty where it has none, as a route."""
    if not addresses:
        return ""
    return f" at {' '.join(map(str, addresses))}" + (f" ({few(ports, _MOST)})" if ports else "")


def planned_places(plan: Plan, keys: Collection[ObjectKey]) -> Mapping[ObjectKey, str]:
    """Return where some Services are, as far as this plan gives them addresses: for ports that can be served."""
    numbers = (bisect_left(plan.placements, key, key=attrgetter("key")) for key in keys)
    return {
        placement.key: where(placement.addresses, [port.port.label for port in placement.ports if not port.problem])
        for placement in (plan.placements[number] for number in numbers if number < len(plan.placements))
        if placement.key in keys
    }
