"""The registry of implementations: the words of the configuration, each with its package.

Packages are loaded on demand, so a stack loads only used ones, and a lower room can use a higher one by a protocol:
planning imports nothing that has effects. Not here: the interfaces of implementations
(`config.entries`, `planning.runs`, `runtimes.runtime`, `sources.source`, `kubernetes.frontend`, `outputs.output`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec import Struct


class Registry(Struct, frozen=True):
    """The implementations of one seam."""

    packages: Mapping[str, str]
    """The implementing package of each word, in the order of messages."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.packages)

    def __contains__(self, word: object) -> bool:
        return word in self.packages

    def having(self, module: str) -> tuple[str, ...]:
        """Return the words with packages that have this optional module."""
        return tuple(word for word, package in self.packages.items() if find_spec(f"{package}.{module}"))

    def load(self, word: str, module: str) -> Any:  # noqa: ANN401 - who asks knows the protocol
        """Return what the `module` of a word's package offers: its name in capitals."""
        return getattr(import_module(f"{self.packages[word]}.{module}"), module.upper())


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
FRONTENDS = Registry(
    {
        "services": "locallb.frontends.services",
    }
)
"""Kinds of objects that get addresses, as `ObjectKind` names them; a `frontend` each."""
