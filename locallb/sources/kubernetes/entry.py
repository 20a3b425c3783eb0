"""The entry of a running cluster in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.parsing.pod_routes import parse_pod_cidrs
from locallb.config.source import LOOPBACK_BACKENDS
from locallb.config.values import Mistakes
from locallb.model.formatting import clipped
from locallb.model.identities import ClusterName, ContextName, IPNetwork
from locallb.model.network.routes import PodRoute
from locallb.sources.kubernetes.machine_pods import INFRA

_EXAMPLE = "{kubernetes: {name: CLUSTER, kubeconfig: FILE, context: CONTEXT}}"
_TEXTS = {"kubeconfig": "a file such as ~/.kube/config", "context": "a name such as kind-shop"}

_RANGES = "podCIDRs"
_NODES, _NAMESPACE = "nodes", "namespace"
_OTHER = "{kubeconfig: FILE, context: CONTEXT, namespace: infra-CLUSTER}"


class MachinesSource(Struct, frozen=True):
    """Where the Nodes of a cluster are pods: in a namespace of another one."""

    cluster: ClusterName
    """The cluster of the Nodes."""
    namespace: str
    kubeconfig: str = ""
    """The kubeconfig of the cluster that runs the Nodes, as in a source; a named file may belong to another user."""
    context: ContextName = ContextName("")
    consents: ClassVar[str] = ""
    """No consent is needed: a cluster that isn't of this host is named by its context."""
    type: ClassVar[str] = "kubernetes"
    live: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The finder's name: the cluster's."""
        return self.cluster

    @property
    def is_foreign(self) -> bool:
        """Whether another user's kubeconfig leads there, as one that is named here may."""
        return bool(self.kubeconfig)

    @property
    def place(self) -> str:
        """The context, or where there is none the kubeconfig, and the namespace."""
        return clipped(f"{self.context or self.kubeconfig or 'the current context'}, {self.namespace}")


class KubernetesSource(Struct, frozen=True):
    """A running cluster, by its API. Empty fields mean kubectl's own defaults."""

    cluster: ClusterName
    kubeconfig: str = ""
    """As written, relative to the project; empty: `$KUBECONFIG`, otherwise ~/.kube/config."""
    context: ContextName = ContextName("")
    """Empty: the kubeconfig's current context."""
    pod_cidrs: tuple[IPNetwork, ...] = ()
    """The ranges of its pods' addresses; empty: the ranges that its Nodes name."""
    found: bool = False
    """It was found and not named: it may not be up yet, which is not an error."""
    silent: str = ""
    """The reason that its API needn't answer, such as `is hibernated`; then it counts as last read, without error."""
    node_routes: tuple[PodRoute, ...] | None = None
    """The ways to its Nodes, where they are pods of another cluster; with any, even none, pods of its own have none."""
    reads_pod_ranges: bool = False
    """Its CNI is asked where its pods have their addresses."""
    loopback_backends: bool = False
    """Whether its Nodes and endpoints may have addresses of this host's loopback."""
    nodes: MachinesSource | None = None
    """The source of the routes to its Nodes, where that is configured."""
    consents: str = ""
    """The file with the clusters that users confirmed; empty if there is none."""
    type: ClassVar[str] = "kubernetes"
    live: ClassVar[bool] = True

    def with_pod_ranges(self) -> KubernetesSource:
        """Return the same source, with the CNI's pod ranges read too, unless they make no difference."""
        return self if self.pod_cidrs or self.node_routes is not None else replace(self, reads_pod_ranges=True)

    def with_node_routes(self, pod_paths: tuple[PodRoute, ...]) -> KubernetesSource:
        """Return this source with these routes to its Nodes."""
        return replace(self, node_routes=pod_paths)

    @property
    def place(self) -> str:
        """The context, or where there is none the kubeconfig."""
        return clipped(self.context or self.kubeconfig or "the current context")


class KubernetesEntry(Struct, frozen=True):
    """A cluster's name, its kubeconfig and the context in that."""

    keys: tuple[str, ...] = ("kubernetes",)
    finds: bool = False
    once: str = ""

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> KubernetesSource | None:
        """Read them."""
        key = f"{key}.kubernetes"
        cluster = mistakes.mapping(key, entry["kubernetes"], _EXAMPLE)
        mistakes.unknown(f"{key}.", cluster, ("name", *_TEXTS, _RANGES, _NODES, LOOPBACK_BACKENDS))
        texts = mistakes.optional_texts(f"{key}.", cluster, _TEXTS)
        if not cluster.get("name"):
            mistakes.add(key, f"the cluster has no name; write {_EXAMPLE}, the last two as needed")
            return None
        name = mistakes.label(f"{key}.name", cluster["name"], "shop")
        ranges = parse_pod_cidrs(mistakes, f"{key}.{_RANGES}", cluster.get(_RANGES, []))
        if not name:
            return None
        source = KubernetesSource(
            ClusterName(name),
            texts["kubeconfig"],
            ContextName(texts["context"]),
            ranges,
            loopback_backends=mistakes.flag(f"{key}.{LOOPBACK_BACKENDS}", cluster.get(LOOPBACK_BACKENDS, False)),
        )
        if _NODES not in cluster:
            return source
        if ranges:
            mistakes.add(f"{key}.{_RANGES}", "no route leads to pods where Nodes are pods themselves; remove it")
        nodes = _machines(mistakes, f"{key}.{_NODES}", cluster[_NODES], source.cluster)
        return replace(source, nodes=nodes, node_routes=())


def _machines(mistakes: Mistakes, key: str, value: object, cluster: ClusterName) -> MachinesSource:
    """Read where Nodes are pods."""
    given = mistakes.mapping(key, value, _OTHER)
    mistakes.unknown(f"{key}.", given, (*_TEXTS, _NAMESPACE))
    texts = mistakes.optional_texts(f"{key}.", given, _TEXTS)
    usual = f"{INFRA}{cluster}"
    namespace = mistakes.label(f"{key}.{_NAMESPACE}", given.get(_NAMESPACE, usual), usual)
    return MachinesSource(cluster, namespace, texts["kubeconfig"], ContextName(texts["context"]))


ENTRY = KubernetesEntry()
