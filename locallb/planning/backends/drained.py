"""Which Nodes and endpoints are left where some are drained: those get no new connections, and open ones stay.

Not here: what becomes a backend (`backends`), and who ordered it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from locallb.model.faults import ALL
from locallb.model.objects import Endpoint, EndpointSlice, Node
from locallb.planning.backends.index import BackendIndex


def without(around: BackendIndex, names: Collection[str]) -> BackendIndex:
    """Return the index of one Service without the backends of these names."""
    if not names:
        return around
    return replace(
        around,
        nodes={
            cluster: [node for node in nodes if not _node_is_among(node, names)]
            for cluster, nodes in around.nodes.items()
        },
        slices={key: [_left(each, names) for each in slices] for key, slices in around.slices.items()},
    )


def names_of(nodes: Iterable[Node]) -> frozenset[str]:
    """Return all that Nodes may be called by."""
    return frozenset(name for node in nodes for name in (node.name, *map(str, node.addresses)))


def names_of_endpoints(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return all that endpoints may be called by, those of their Nodes apart."""
    endpoints = (endpoint for each in slices for endpoint in each.endpoints)
    called = (name for endpoint in endpoints for name in (endpoint.pod, *map(str, endpoint.addresses)))
    return frozenset(filter(None, called))


def _left(slice_: EndpointSlice, names: Collection[str]) -> EndpointSlice:
    left = tuple(endpoint for endpoint in slice_.endpoints if not _is_among(endpoint, names))
    return slice_ if left == slice_.endpoints else replace(slice_, endpoints=left)


def _node_is_among(node: Node, names: Collection[str]) -> bool:
    return ALL in names or not names_of([node]).isdisjoint(names)


def _is_among(endpoint: Endpoint, names: Collection[str]) -> bool:
    called = {endpoint.pod, endpoint.node, *map(str, endpoint.addresses)}
    return ALL in names or not called.isdisjoint(names)
