"""Selects the endpoints of a Service's EndpointSlices that take connections, by the rules of kube-proxy.

Ready ones; if none is ready, terminating ones that still serve (KEP-1669), so that the last pod of a Service drains.
Not here: how they are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from locallb.model.formatting import counted
from locallb.model.identities import Family, Protocol
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, ServicePort


class Usable(Struct, frozen=True):
    """An endpoint that takes connections, and the slice's port for a Service's port."""

    endpoint: Endpoint
    port: EndpointPort


def usable(
    port: ServicePort, family: Family, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> tuple[Usable, ...]:
    """Return the usable endpoints of one of a Service's `ports`, which slices' ports match by name and protocol."""
    here = [endpoint_slice for endpoint_slice in slices if endpoint_slice.family is family]
    match_of = _matching(port, here, ports)
    matching = [
        Usable(endpoint, match)
        for endpoint_slice in here
        if (match := match_of(endpoint_slice))
        for endpoint in endpoint_slice.endpoints
    ]
    ready = tuple(match for match in matching if match.endpoint.ready)
    return ready or tuple(match for match in matching if match.endpoint.draining)


def _matching(
    port: ServicePort, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> Callable[[EndpointSlice], EndpointPort | None]:
    """Return a function that finds a port in a slice: by its name, or by its previous name.

    The slices' controller writes the new name a moment after the Service has it. Until then a numeric targetPort finds
    the port by its number; a named one as the only port that the Service no longer names.
    """
    if any(_named(port.name, port.protocol, each) for each in slices):
        return lambda each: _named(port.name, port.protocol, each)
    if isinstance(port.target_port, str):
        former = _former_name(port, slices, ports)
        return lambda each: None if former is None else _named(former, port.protocol, each)
    number = port.port if port.target_port is None else port.target_port
    return lambda each: _numbered(number, port.protocol, each)


def _named(name: str, protocol: Protocol, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    return next((p for p in endpoint_slice.ports if (p.name, p.protocol) == (name, protocol)), None)


def _numbered(number: int, protocol: Protocol, endpoint_slice: EndpointSlice) -> EndpointPort | None:
    if not endpoint_slice.managed:
        return None
    return next((p for p in endpoint_slice.ports if (p.port, p.protocol) == (number, protocol)), None)


def _former_name(port: ServicePort, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]) -> str | None:
    """Return the name that slices still have for a port, if one port has changed its name and nothing else could be.

    Where ports were added or removed as well, the pods behind another port could be taken for this one's.
    """
    protocol = port.protocol
    named_by_slices = {p.name for each in slices for p in each.ports if p.protocol is protocol}
    named_by_service = {p.name for p in ports if p.protocol is protocol}
    changed = len(named_by_slices - named_by_service) == len(named_by_service - named_by_slices) == 1
    if not changed or not all(each.managed for each in slices):
        return None
    return next(iter(named_by_slices - named_by_service))


def why_none_is(
    port: ServicePort, family: Family, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> str:
    """Return why there is no usable endpoint: half a sentence, with a remedy."""
    here = [endpoint_slice for endpoint_slice in slices if endpoint_slice.family is family]
    existing = sum(len(endpoint_slice.endpoints) for endpoint_slice in here)
    named = f' named "{port.name}"' if port.name else ""
    if existing and not any(map(_matching(port, here, ports), here)):
        return f"no EndpointSlice has a {port.protocol} port{named or ' without a name'}; look at its targetPort"
    state = (
        f"none of its {counted(existing, family + ' endpoint')} is ready"
        if existing
        else f"it has no {family} endpoint"
    )
    return f"{state}; look at its pods and selector"
