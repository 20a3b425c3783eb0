"""Running clusters as a type of source. Its client takes 0.1 s to load, which stacks of manifests don't need."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from locallb.kubernetes.access.kubeconfig import kubeconfig_path
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.snapshot import Access
from locallb.sources.consents import allowed
from locallb.sources.kubernetes.entry import KubernetesSource, MachinesSource
from locallb.sources.kubernetes.following import Following
from locallb.sources.kubernetes.nodes import NodePolls, find_nodes
from locallb.sources.kubernetes.reading import read_cluster
from locallb.sources.source import FinderType, Found, SourceRead, SourceType


class Kubernetes(SourceType[KubernetesSource], FinderType[MachinesSource]):
    """APIs, read once or followed by watches; clusters with their Nodes as pods find the routes to them."""

    def read(self, source: KubernetesSource, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
        """List what the cluster has."""
        return read_cluster(source, home, existing, keep=keep)

    def follow(self, home: Home, changed: Callable[[ClusterName], None]) -> Following:
        return Following(home, changed)

    def access_files(self, source: KubernetesSource, root: Path) -> tuple[Path, ...]:
        return (kubeconfig_path(source.kubeconfig, root),)

    def access(self, source: KubernetesSource, root: Path) -> Access:
        """Return the access that the kubeconfig describes, if it may be used. Raises KubeError."""
        return allowed(source, root)

    def find(self, finder: MachinesSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        """Find the ways to Nodes that are pods."""
        return find_nodes(finder, root, directory, keep=keep)

    def watch(self, finder: MachinesSource, root: Path, changed: Callable[[str], None]) -> NodePolls:
        """Poll every few seconds whether the routes to Nodes changed."""
        return NodePolls(finder, root, changed)


SOURCE = Kubernetes()
