"""The registry of implementations, by the words of the configuration, and the interface of parsed source entries.

Packages are loaded on demand, so a stack loads only used ones, and a lower room can use a higher one by a protocol:
planning imports nothing that has effects.

Not here: the interfaces of implementations (`config.parsing`, `planning.planned`, `runtimes.runtime`, `sources.source`,
`outputs.output`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from msgspec import Struct

from locallb.model.identities import ClusterName, IPNetwork
from locallb.model.objects import ServiceType
from locallb.model.routes import PodRoute

CLASSES = "classes"
"""The key of a running cluster that says whether it gets classes `local-lb`."""
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

    @property
    def is_administered(self) -> bool:
        """Whether its clusters are containers of this host, of which local-lb is an administrator anyway.

        Then the CNI's ranges of pods are read and routes to pods are made without a key of the configuration.
        """


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

    def with_forwarding(self, types: frozenset[ServiceType]) -> Source:
        """Return the same source, of which pods may be reached through an API: of LoadBalancers and these `types`."""

    @property
    def node_routes(self) -> tuple[PodRoute, ...] | None:
        """The routes to its Nodes, if they are pods of another cluster; None if the source doesn't define them."""

    def with_node_routes(self, node_routes: tuple[PodRoute, ...]) -> Source:
        """Return the same with these ways to its Nodes, where they are pods of another cluster."""

    @property
    def nodes(self) -> Finder | None:
        """The finder of routes to its Nodes, where its entry has one."""


def _has(package: str, module: str) -> bool:
    try:
        return find_spec(f"{package}.{module}") is not None
    except ModuleNotFoundError:  # it is no package but a module
        return False


class Registry(Struct, frozen=True):
    """The implementations of one seam."""

    packages: Mapping[str, str]
    """The implementing package or module of each word, in the order of messages."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.packages)

    def __contains__(self, word: object) -> bool:
        return word in self.packages

    def having(self, module: str) -> tuple[str, ...]:
        """Return the words with packages that have this optional module."""
        return tuple(word for word, package in self.packages.items() if _has(package, module))

    def load(self, word: str, module: str) -> Any:  # noqa: ANN401 - who asks knows the protocol
        """Return what a word's module, or the `module` of its package, offers: its name in capitals."""
        whole = import_module(self.packages[word])
        offering = whole if hasattr(whole, module.upper()) else import_module(f"{self.packages[word]}.{module}")
        return getattr(offering, module.upper())


RUNTIMES = Registry(
    {
        "process": "locallb.runtimes.process",
        "docker": "locallb.runtimes.docker",
        "podman": "locallb.runtimes.podman",
    }
)
"""Runtimes of Envoy, as `runtime` names them; a `planner` and a `runtime` each."""
SOURCES = Registry(
    {
        "manifests": "locallb.sources.manifests",
        "kubernetes": "locallb.sources.kubernetes",
        "kind": "locallb.sources.kind",
        "gardener": "locallb.sources.gardener",
    }
)
"""Where objects come from, as an entry of `sources` names it; an `entry` and a `source` each."""
OUTPUTS = Registry(
    {
        "status": "locallb.outputs.status",
        "events": "locallb.outputs.events",
        "names": "locallb.outputs.names",
    }
)
"""Publishers of addresses, in order: an `output` each, and an `entry` if a key of the stack turns it on."""
