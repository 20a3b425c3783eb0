"""Which endpoints of a Service's EndpointSlices take connections, by the rules of kube-proxy.

Ready ones; where none is ready, those that are terminating and still serve (KEP-1669), so that the last pod of a
Service drains. Not here: how they are reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from locallb.model.formatting import counted
from locallb.model.identities import Family
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, ServicePort


class Usable(Struct, frozen=True):
    """An endpoint that takes connections, and the slice's port that it serves a Service's port on."""

    endpoint: Endpoint
    port: EndpointPort


def usable(port: ServicePort, family: Family, slices: Sequence[EndpointSlice]) -> tuple[Usable, ...]:
    """Return the usable endpoints of a port in a family; the ports of slice and Service match by name and protocol."""
    match_of = _by_name if _is_known(port, family, slices) else _by_number
    matching = [
        Usable(endpoint, match)
        for endpoint_slice in slices
        if endpoint_slice.family is family and (match := match_of(port, endpoint_slice))
        for endpoint in endpoint_slice.endpoints
    ]
    ready = tuple(match for match in matching if match.endpoint.ready)
    return ready or tuple(match for match in matching if match.endpoint.draining)


def _is_known(port: ServicePort, family: Family, slices: Sequence[EndpointSlice]) -> bool:
    return any(_by_name(port, each) for each in slices if each.family is family)


def _by_name(port: ServicePort, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    return next((p for p in endpoint_slice.ports if (p.name, p.protocol) == (port.name, port.protocol)), None)


def _by_number(port: ServicePort, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    """Match a port that has just got another name: the slice's controller writes that name a moment later."""
    number = port.port if port.target_port is None else port.target_port
    if not endpoint_slice.managed:
        return None
    return next((p for p in endpoint_slice.ports if (p.port, p.protocol) == (number, port.protocol)), None)


def why_none_is(port: ServicePort, family: Family, slices: Sequence[EndpointSlice]) -> str:
    """Return why there is no usable endpoint: half a sentence, with a remedy."""
    here = [endpoint_slice for endpoint_slice in slices if endpoint_slice.family is family]
    known = sum(len(endpoint_slice.endpoints) for endpoint_slice in here)
    named = f' named "{port.name}"' if port.name else ""
    if known and not any(_by_name(port, each) or _by_number(port, each) for each in here):
        return f"no EndpointSlice has a {port.protocol} port{named or ' without a name'}; look at its targetPort"
    state = f"none of its {counted(known, family + ' endpoint')} is ready" if known else f"it has no {family} endpoint"
    return f"{state}; look at its pods and selector"
