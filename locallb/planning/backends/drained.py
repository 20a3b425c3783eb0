"""Draining: the Nodes and endpoints that remain when some get no new connections; open connections stay.

Not here: which of them become backends (`backends`), and the orders themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from locallb.model.faults import ALL
from locallb.model.objects import Endpoint, EndpointSlice, Node
from locallb.planning.backends.usable_endpoints import Usable


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
