"""Selects Nodes that may be backends, by the rules of Kubernetes' own service controller.

NotReady Nodes stay in: the proxy's health check decides. Not here: whether a Node answers, or has an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from locallb.model.formatting import counted
from locallb.model.identities import ClusterName
from locallb.model.objects import Node

EXCLUSION_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""Texts that Go's strconv.ParseBool takes as false. Everything else, also a text that isn't a boolean, excludes."""


def eligible(nodes: Iterable[Node]) -> tuple[tuple[Node, ...], Mapping[ClusterName, str]]:
    """Return the Nodes of every cluster that may be backends, sorted, and a notice where only excluded are left."""
    staying = sorted((node for node in nodes if _remains(node)), key=lambda node: (node.cluster, node.name))
    retained: list[Node] = []
    notices: dict[ClusterName, str] = {}
    for cluster, group in groupby(staying, key=lambda node: node.cluster):
        alive = list(group)
        included = [node for node in alive if not _excluded(node)]
        retained.extend(included or alive)
        if not included:
            notices[cluster] = _all_excluded(cluster, alive)
    return tuple(retained), notices


def _remains(node: Node) -> bool:
    return not node.deleting and AUTOSCALER_TAINT not in node.taints


def _excluded(node: Node) -> bool:
    return EXCLUSION_LABEL in node.labels and node.labels[EXCLUSION_LABEL] not in _FALSE


def _all_excluded(cluster: str, nodes: Sequence[Node]) -> str:
    return (
        f"{cluster}: the label {EXCLUSION_LABEL} excludes every Node ({counted(len(nodes), 'Node')}), so all are used; "
        "remove it from those that shall be backends"
    )
