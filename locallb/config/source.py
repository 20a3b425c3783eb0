"""The interface of a parsed source entry, whatever its type.

Not here: the list of types (`registry`), and reading sources (`sources`).
"""

from __future__ import annotations

from typing import Protocol

from locallb.model.identities import ClusterName, IPNetwork
from locallb.model.network.routes import PodRoute

LOOPBACK_BACKENDS = "loopbackBackends"
"""The key of a running cluster with Nodes and endpoints that may have addresses of this host's loopback."""


class Entry(Protocol):
    """A parsed entry of the list; frozen and comparable."""

    @property
    def type(self) -> str:
        """Its word in `registry.SOURCES`."""

    @property
    def live(self) -> bool:
        """Whether its sources are running clusters."""

    @property
    def place(self) -> str:
        """Its location, which distinguishes sources of one name in messages."""


class Finder(Entry, Protocol):
    """More sources, found when they are read."""

    @property
    def name(self) -> str:
        """Its name, where there may be several of its type; otherwise empty."""

    @property
    def is_foreign(self) -> bool:
        """Whether other users than this stack's control its results."""


class Source(Entry, Protocol):
    """A source: a configured entry that represents one cluster."""

    @property
    def cluster(self) -> ClusterName:
        """The cluster's name, unique in the stack."""

    @property
    def found(self) -> bool:
        """Whether a finder found it."""

    @property
    def pod_cidrs(self) -> tuple[IPNetwork, ...]:
        """The ranges of its pods' addresses; empty: the ranges that its Nodes name."""

    def with_pod_ranges(self) -> Source:
        """Return the same source, of which the CNI's ranges of pods are read too."""

    @property
    def node_routes(self) -> tuple[PodRoute, ...] | None:
        """The routes to its Nodes, if they are pods of another cluster; None if the source doesn't define them."""

    def with_node_routes(self, pod_paths: tuple[PodRoute, ...]) -> Source:
        """Return the same with these ways to its Nodes, where they are pods of another cluster."""

    @property
    def nodes(self) -> Finder | None:
        """The finder of routes to its Nodes, where its entry has one."""
