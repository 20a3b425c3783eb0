"""Clusters of kind as a finder: containers of this host's Docker say which there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from locallb.runtimes.docker.events import LIFE, ContainerEvents
from locallb.sources.kind.entry import KindClusters
from locallb.sources.kind.finding import CLUSTER_LABEL, client, find_clusters
from locallb.sources.kubernetes.entry import KubernetesSource
from locallb.sources.source import FinderType, Found


class Kind(FinderType[KindClusters]):
    """Clusters of kind: found through Docker, and followed by its events."""

    def find(self, finder: KindClusters, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        del root
        found = find_clusters(finder, directory, keep=keep)
        sources = tuple(
            replace(source, loopback_backends=finder.loopback_backends, classes=finder.classes)
            for source in found.sources
        )
        return replace(found, sources=sources)

    def watch(self, finder: KindClusters, root: Path, changed: Callable[[str], None]) -> ContainerEvents:
        """Follow containers. After Docker went away or came back, the clusters are listed again."""
        del finder, root
        return ContainerEvents(CLUSTER_LABEL, LIFE, changed, lambda _fault: changed(""), client)


SOURCE = Kind()
