"""The registry of implementations, by the words of the configuration, and the interface of parsed source entries.

Modules are loaded on demand, so a stack loads only used ones, and a lower room can use a higher one by a protocol:
planning imports nothing that has effects.

Not here: the interfaces of implementations (`planning.planned`, `runtimes.runtime`, `sources.source`,
`outputs.output`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

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


class Registry(Struct, frozen=True):
    """The implementations of one seam, each loaded when it is asked for."""

    places: Mapping[str, Mapping[str, str]]
    """By word, in the order of messages: what it has for each role, as `module:NAME`."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def having(self, role: str) -> tuple[str, ...]:
        """Return the words with something for an optional role."""
        return tuple(word for word, roles in self.places.items() if role in roles)

    def load(self, word: str, role: str) -> Any:  # noqa: ANN401 - who asks knows the protocol
        module, _, name = self.places[word][role].partition(":")
        return getattr(import_module(module), name)


RUNTIMES = Registry(
    {
        "process": {
            "planner": "locallb.runtimes.planners:PROCESS_PLANNER",
            "runtime": "locallb.runtimes.process_runtime:RUNTIME",
            "resource_type": "locallb.runtimes.resource_types:EnvoyProcess",
        },
        "docker": {
            "planner": "locallb.runtimes.planners:DOCKER_PLANNER",
            "runtime": "locallb.runtimes.docker.runtime:RUNTIME",
            "route_helper": "locallb.runtimes.docker.route_helper:ROUTE_HELPER",
        },
        "podman": {
            "planner": "locallb.runtimes.planners:PODMAN_PLANNER",
            "runtime": "locallb.runtimes.podman:RUNTIME",
            "resource_type": "locallb.runtimes.resource_types:PodmanContainer",
            "route_helper": "locallb.runtimes.podman:ROUTE_HELPER",
        },
    }
)
"""Runtimes of Envoy, as `runtime` names them."""
SOURCES = Registry(
    {
        "manifests": {"entry": "locallb.sources.entries:MANIFESTS_ENTRY", "source": "locallb.sources.manifests:SOURCE"},
        "kubernetes": {
            "entry": "locallb.sources.entries:KUBERNETES_ENTRY",
            "source": "locallb.sources.kubernetes.source:SOURCE",
        },
        "kind": {"entry": "locallb.sources.entries:KIND_ENTRY", "source": "locallb.sources.kind:SOURCE"},
        "gardener": {"entry": "locallb.sources.entries:GARDENER_ENTRY", "source": "locallb.sources.gardener:SOURCE"},
    }
)
"""Where objects come from, as an entry of `sources` names it."""
OUTPUTS = Registry({word: {"output": f"locallb.outputs.{word}:OUTPUT"} for word in ("status", "events", "names")})
"""Publishers of addresses, in order."""


class SourceEntry(Struct, frozen=True):
    """The parser of source entries of one type."""

    keys: tuple[str, ...]
    """The keys that it may have, its own word first."""
    parse: Callable[..., Source | Finder | None]
    """Takes `values.Mistakes`, a key, and the entry there; returns it parsed, None if it is invalid, which is noted."""
    finds: bool = False
    """Whether it gives a finder, not a source."""
    single_entry_example: str = ""
    """An example with everything in one entry, if only one is allowed; otherwise empty."""


@cache
def source_entry(word: str) -> SourceEntry:
    return cast("SourceEntry", SOURCES.load(word, "entry"))
