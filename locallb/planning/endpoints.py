"""Endpoints of a Service that take connections, by the rules of kube-proxy, and pod addresses that this host reaches.

Drained Nodes and endpoints are left out: they get no new connections, and open connections stay. A pod address counts
as reached only if the routes of this host and the cluster's Nodes prove it (`reach_of`). Whether a pod accepts this
host is found out by the proxy.

Not here: which of the endpoints and Nodes become backends (`backends`), and drains as data (`model/faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from locallb.model.faults import ALL
from locallb.model.identities import Family, IPAddress, IPNetwork, Protocol
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, Node, ServicePort
from locallb.model.ranges import span_of
from locallb.model.routes import Diversion, HostRoute, inside
from locallb.model.texts import counted


def nodes_without(nodes: Iterable[Node], names: Collection[str]) -> Sequence[Node]:
    """Return the Nodes that none of these names means."""
    return [*nodes] if not names else [node for node in nodes if not _node_is_among(node, names)]


def endpoints_without(endpoints: Iterable[Usable], names: Collection[str]) -> tuple[Usable, ...]:
    """Return which endpoints that take connections none of these names means, nor those of their Nodes."""
    if not names:
        return tuple(endpoints)
    return tuple(endpoint for endpoint in endpoints if not _is_among(endpoint.endpoint, names))


def names_of(nodes: Iterable[Node]) -> frozenset[str]:
    """Return all that Nodes may be called by."""
    return frozenset(name for node in nodes for name in (node.name, *map(str, node.addresses)))


def names_of_endpoints(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return all that endpoints may be called by, those of their Nodes apart."""
    endpoints = (endpoint for slice_ in slices for endpoint in slice_.endpoints)
    called = (name for endpoint in endpoints for name in (endpoint.pod, *map(str, endpoint.addresses)))
    return frozenset(filter(None, called))


def _node_is_among(node: Node, names: Collection[str]) -> bool:
    return ALL in names or not names_of([node]).isdisjoint(names)


def _is_among(endpoint: Endpoint, names: Collection[str]) -> bool:
    called = {endpoint.pod, endpoint.node, *map(str, endpoint.addresses)}
    return ALL in names or not called.isdisjoint(names)


class Usable(Struct, frozen=True):
    """An endpoint that takes connections, and the slice's port for a Service's port."""

    endpoint: Endpoint
    port: EndpointPort


def usable(
    port: ServicePort, family: Family, slices: Sequence[EndpointSlice], ports: Sequence[ServicePort]
) -> tuple[Usable, ...]:
    """Return the usable endpoints of one of a Service's `ports`, which slices' ports match by name and protocol.

    Usable are the ready ones; if none is ready, terminating ones that still serve (KEP-1669), so that the last pod of a
    Service drains.
    """
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


class Destination(NamedTuple):
    """A destination of this host's routes, as numbers, and whether it leads to the cluster."""

    version: int
    first: int
    last: int
    leads: bool


class Reach(Struct, frozen=True):
    """The pod addresses of one cluster that this host reaches."""

    destinations: tuple[Destination, ...] = ()
    """Longest prefixes first; empty if no route leads to the cluster."""

    def has(self, address: IPAddress) -> bool:
        """Return whether packets to `address` reach the cluster."""
        version, number = address.version, int(address)
        return next(
            (leads for v, first, last, leads in self.destinations if v == version and first <= number <= last), False
        )


def reach_of(nodes: Sequence[Node], routes: Iterable[HostRoute], diversions: tuple[Diversion, ...] = ()) -> Reach:
    """Return the reach of the cluster that has `nodes`: the identical object if nothing has changed.

    A route names the next hop, not the owner of the destination: a VPN's 10.0.0.0/8, Docker's bridge and another
    cluster's Node all lead away from pods with such addresses here. So only these count, unless a longer prefix leads
    elsewhere: a route by one of the cluster's own Nodes, a network of the Nodes themselves except the pod ranges behind
    each (spec.podCIDRs), and any route but the default one if this host is one of the Nodes. Destinations of a rule
    (`ip rule`) never count.
    """
    addresses = frozenset(address for node in nodes for address in node.addresses)
    behind = frozenset(network for node in nodes for network in node.pod_cidrs)
    return _reach(addresses, behind, tuple(routes), diversions)


@lru_cache(maxsize=64)  # all routes are gone through: not for each Node or EndpointSlice that changes
def _reach(
    nodes: frozenset[IPAddress],
    behind: frozenset[IPNetwork],
    routes: tuple[HostRoute, ...],
    diversions: tuple[Diversion, ...],
) -> Reach:
    """Compute the reach; `behind` are networks behind Nodes: their addresses don't answer in the Nodes' own network."""
    by_destination: dict[IPNetwork, list[HostRoute]] = {}
    for route in routes:
        by_destination.setdefault(route.destination, []).append(route)
    is_node = any(route.is_own and route.destination[0] in nodes for route in routes)
    destinations = [
        Destination(
            where.version, *span_of(where), all(_leads(route, nodes, is_node=is_node) for route in existing_routes)
        )
        for where, existing_routes in by_destination.items()
    ]
    links = (
        []
        if is_node
        else [where for where, existing_routes in by_destination.items() if any(map(_is_link, existing_routes))]
    )
    destinations += [_nowhere(route) for route in behind if _is_passed_on(route, links, by_destination)]
    destinations += [
        _nowhere(diversion.network)
        for diversion in diversions
        if diversion.yields and diversion.network not in by_destination
    ]
    destinations.sort(key=lambda destination: (destination.last - destination.first, destination))
    destinations[:0] = [_nowhere(diversion.network) for diversion in diversions if not diversion.yields]
    return Reach(tuple(destinations)) if any(destination.leads for destination in destinations) else Reach()


def _nowhere(network: IPNetwork) -> Destination:
    return Destination(network.version, *span_of(network), leads=False)


def _is_link(route: HostRoute) -> bool:
    return route.gateway is None and not route.is_local


def _is_passed_on(network: IPNetwork, links: Iterable[IPNetwork], routes: Collection[IPNetwork]) -> bool:
    around = max((link.prefixlen for link in links if network != link and inside(network, link)), default=None)
    if around is None:
        return False
    return not any(network.supernet(new_prefix=bits) in routes for bits in range(network.prefixlen, around, -1))


def _leads(route: HostRoute, nodes: Iterable[IPAddress], *, is_node: bool) -> bool:
    if route.is_default or not (route.is_local or route.kind == "unicast"):
        return False
    if is_node and not route.is_local:
        return True
    if route.gateway is not None:
        return route.gateway in nodes
    return (route.is_local or (route.is_connected and bool(route.device))) and any(
        node in route.destination for node in nodes
    )
