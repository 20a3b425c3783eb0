"""The entry of a running cluster in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from locallb.config.parsing.pod_routes import parse_pod_cidrs
from locallb.config.values import Mistakes
from locallb.model.formatting import clipped
from locallb.model.identities import ClusterName, IPNetwork
from locallb.model.network.routes import PodRoute

_EXAMPLE = "{kubernetes: {name: CLUSTER, kubeconfig: FILE, context: CONTEXT}}"
_TEXTS = {"kubeconfig": "a file such as ~/.kube/config", "context": "a name such as kind-shop"}

_RANGES = "podCIDRs"


@dataclass(frozen=True, slots=True)
class KubernetesSource:
    """A running cluster, by its API. Empty fields stand for kubectl's own defaults."""

    cluster: ClusterName
    kubeconfig: str = ""
    """As written, relative to the project; empty: `$KUBECONFIG`, otherwise ~/.kube/config."""
    context: str = ""
    """Empty: the kubeconfig's current context."""
    pod_cidrs: tuple[IPNetwork, ...] = ()
    """Where its pods have their addresses; empty: where its Nodes say."""
    found: bool = False
    """It was found and not named: it may not be up yet, which is no mistake of anybody's."""
    silent: str = ""
    """Why its API needn't answer, such as `is hibernated`; then it counts as last read, and nothing is wrong."""
    node_routes: tuple[PodRoute, ...] | None = None
    """The ways to its Nodes, where they are pods of another cluster; with any, even none, pods of its own have none."""
    reads_pod_ranges: bool = False
    """Its CNI is asked where its pods have their addresses."""
    type: ClassVar[str] = "kubernetes"
    live: ClassVar[bool] = True

    def with_pod_ranges(self) -> KubernetesSource:
        """Return the same, of which is also read what its CNI says; not where that makes no difference."""
        return self if self.pod_cidrs or self.node_routes is not None else replace(self, reads_pod_ranges=True)

    def with_node_routes(self, ways: tuple[PodRoute, ...]) -> KubernetesSource:
        """Return the same, whose Nodes are reached so."""
        return replace(self, node_routes=ways)

    @property
    def place(self) -> str:
        """The context, or where there is none the kubeconfig."""
        return clipped(self.context or self.kubeconfig or "the current context")


@dataclass(frozen=True, slots=True)
class KubernetesEntry:
    """A cluster's name, its kubeconfig and the context in that."""

    keys: tuple[str, ...] = ("kubernetes",)
    finds: bool = False
    once: str = ""

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> KubernetesSource | None:
        """Read them."""
        key = f"{key}.kubernetes"
        cluster = mistakes.mapping(key, entry["kubernetes"], _EXAMPLE)
        mistakes.unknown(f"{key}.", cluster, ("name", *_TEXTS, _RANGES))
        texts = mistakes.optional_texts(f"{key}.", cluster, _TEXTS)
        if not cluster.get("name"):
            mistakes.add(key, f"the cluster has no name; write {_EXAMPLE}, the last two as needed")
            return None
        name = mistakes.label(f"{key}.name", cluster["name"], "shop")
        ranges = parse_pod_cidrs(mistakes, f"{key}.{_RANGES}", cluster.get(_RANGES, []))
        return KubernetesSource(ClusterName(name), texts["kubeconfig"], texts["context"], ranges) if name else None


ENTRY = KubernetesEntry()
