"""The entry of a directory of manifests in the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from locallb.config.values import Mistakes
from locallb.model.identities import ClusterName, IPNetwork
from locallb.model.objects import ServiceType
from locallb.model.routes import PodRoute
from locallb.model.texts import clipped, shown

_EXAMPLE = "{manifests: DIRECTORY, name: CLUSTER}"


class ManifestsSource(Struct, frozen=True):
    """A directory of manifests in place of a cluster. `directory` is as written, relative to the project."""

    cluster: ClusterName
    directory: str
    type: ClassVar[str] = "manifests"
    live: ClassVar[bool] = False
    found: ClassVar[bool] = False
    pod_cidrs: ClassVar[tuple[IPNetwork, ...]] = ()
    node_routes: ClassVar[None] = None
    nodes: ClassVar[None] = None

    def with_pod_ranges(self) -> ManifestsSource:
        """Return this source unchanged: its pod ranges are read anyway."""
        return self

    def with_forwarding(self, _types: frozenset[ServiceType]) -> ManifestsSource:
        """Return the same: it has no API."""
        return self

    def with_node_routes(self, _node_routes: tuple[PodRoute, ...]) -> ManifestsSource:
        """Return the same: no Node of it is a pod of another cluster."""
        return self

    @property
    def place(self) -> str:
        return clipped(self.directory)


class ManifestsEntry(Struct, frozen=True):
    """A directory, and the name of its cluster."""

    keys: tuple[str, ...] = ("manifests", "name")
    finds: bool = False
    single_entry_example: str = ""

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> ManifestsSource | None:
        """Read them; the directory names the cluster where nothing else does."""
        directory = mistakes.text(f"{key}.manifests", entry["manifests"], "a directory such as examples/shop/manifests")
        if not directory:
            return None
        if "name" in entry:
            name = mistakes.label(f"{key}.name", entry["name"], "shop")
        else:
            name = cluster_name(directory)
            if not name:
                mistakes.add(key, f"{shown(directory)} gives the cluster no name; add `name`, such as {_EXAMPLE}")
        return ManifestsSource(ClusterName(name), directory) if name else None


def cluster_name(directory: str) -> str:
    """Make a DNS label of a directory's last part; empty if nothing is left of it."""
    last = directory.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:63].rstrip("-")


ENTRY = ManifestsEntry()
