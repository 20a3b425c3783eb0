"""The Nodes in a plan that the stack initializes: Nodes that wait for a cloud provider, or that it initialized before.

A Node that was initialized is kept so. Nodes of another cloud provider, and those of Gardener's clusters, which have a
controller for that, are left alone. Not here: what a Node gets (`model.own_nodes`), and requests
(`provider.initialized_node`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.fields import is_name
from locallb.model.identities import ClusterName
from locallb.model.objects import Node, nodes_by_cluster
from locallb.model.own_nodes import (
    TAINT,
    InitializedNode,
    initialized,
    is_initialized_by_us,
    is_of_another,
    node_differences,
)
from locallb.model.snapshot import Snapshot
from locallb.model.texts import clipped, counted
from locallb.planning.planned import Plan, PlannedNode

RIGHTS = "deploy/rbac-nodes.yaml"
"""The file that gives the rights."""


def with_nodes(plan: Plan, snapshot: Snapshot, settings: Settings) -> Plan:
    """Return the plan with the Nodes that are initialized, and with what hinders others."""
    by_cluster = nodes_by_cluster(snapshot.nodes)
    nodes = {each: by_cluster.get(each, ()) for each in sorted(snapshot.access.keys() - snapshot.node_routes.keys())}
    if not settings.initializes_nodes:
        return replace(plan, notices=(*plan.notices, *_waiting(nodes))) if nodes else plan
    decided = [_Decisions.of(cluster, some, snapshot) for cluster, some in nodes.items()]
    return replace(
        plan,
        nodes=tuple(planned for each in decided for planned in each.planned),
        notices=(*plan.notices, *(notice for each in decided for notice in each.notices)),
    )


def _waiting(by_cluster: Mapping[ClusterName, Sequence[Node]]) -> Iterator[str]:
    """Name the clusters in which no pod can run, as every Node waits for a cloud provider."""
    for cluster, nodes in by_cluster.items():
        if nodes and all(TAINT in node.taints and not is_of_another(node) for node in nodes):
            yield (
                f"{cluster}: {counted(len(nodes), 'Node')} with the taint {TAINT} wait for a cloud provider, so that no"
                f" pod runs there; if the cluster has none, write `local-lb:nodes: initialize`"
            )


class _Decisions(Struct, frozen=True):
    """The Nodes of one cluster."""

    planned: tuple[PlannedNode, ...]
    notices: tuple[str, ...]

    @classmethod
    def of(cls, cluster: ClusterName, nodes: Sequence[Node], snapshot: Snapshot) -> _Decisions:
        planned, hindered = list[PlannedNode](), dict[str, list[Node]]()
        held = {(each.name, each.uid): each for each in snapshot.initialized_nodes if each.cluster == cluster}
        for node in sorted(nodes, key=attrgetter("name")):
            before = held.get((node.name, node.uid))
            if node.deleting or not (before or TAINT in node.taints or is_initialized_by_us(node)):
                continue
            wanted = initialized(node, before)
            if why := _hindrance(node, wanted):
                hindered.setdefault(why, []).append(node)
            else:
                planned.append(_planned(wanted, snapshot, node_differences(node, wanted)))
        if not nodes:
            planned += [_planned(each, snapshot) for each in held.values()]
        return cls(tuple(planned), tuple(_sentence(cluster, why, nodes) for why, nodes in hindered.items()))


def _planned(wanted: InitializedNode, snapshot: Snapshot, differing: tuple[str, ...] = ()) -> PlannedNode:
    return PlannedNode(wanted.cluster, snapshot.home, snapshot.access[wanted.cluster], wanted, differing)


_FOREIGN = (
    "the providerID {example} is of another cloud provider, which initializes it; start that one's controller, or"
    " delete the Node and start its kubelet without that ID"
)
_NO_ADDRESS = "nothing names its address; start its kubelet with --node-ip"
_NO_NAME = "its name isn't a DNS name; register it under one"


def _hindrance(node: Node, wanted: InitializedNode) -> str:
    """Explain why a Node isn't initialized; empty if it is."""
    if not is_name(node.name):
        return _NO_NAME
    if is_of_another(node):
        return _FOREIGN
    return "" if wanted.addresses else _NO_ADDRESS


def _sentence(cluster: ClusterName, why: str, nodes: Sequence[Node]) -> str:
    named = f"Node {clipped(nodes[0].name)} isn't initialized"
    if len(nodes) > 1:
        named = f"{len(nodes)} Nodes aren't initialized, such as {clipped(nodes[0].name)}"
    return f"{cluster}: {named}: {why.format(example=clipped(nodes[0].provider))}"
