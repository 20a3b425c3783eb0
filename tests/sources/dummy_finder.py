"""A finder as a stranger writes it, in this file alone: clusters that are named in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from locallb.config.registry import Source, SourceEntry
from locallb.config.values import Mistakes
from locallb.model.identities import ClusterName
from locallb.sources.entries import KubernetesSource
from locallb.sources.source import FinderType, Found, Polls, Watch


class DummyClusters(Struct, frozen=True):
    """Clusters by name."""

    names: tuple[str, ...]
    is_administered: bool = False
    type: ClassVar[str] = "dummy"
    name: ClassVar[str] = ""
    place: ClassVar[str] = "dummy"
    live: ClassVar[bool] = True
    is_foreign: ClassVar[bool] = False


def parse(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> DummyClusters:
    """Read a list of names, of clusters of this host or not."""
    names = tuple(str(name) for _, name in mistakes.items(f"{key}.dummy", entry["dummy"], "[shop]"))
    return DummyClusters(names, mistakes.flag(f"{key}.here", entry.get("here", False)))


class Dummy(FinderType[DummyClusters]):
    """Finds what it is given."""

    def find(self, finder: DummyClusters, root: Path, directory: Path, *, keep: bool) -> Found[Source]:
        del root, directory, keep
        return Found(tuple(KubernetesSource(ClusterName(name), found=True) for name in finder.names))

    def watch(self, finder: DummyClusters, root: Path, changed: Callable[[str], None]) -> Watch:
        del root
        return Polls("dummy", "locallb dummy", lambda: finder.names, changed)


ENTRY = SourceEntry(("dummy", "here"), parse, finds=True, single_entry_example="{dummy: [shop]}")
SOURCE = Dummy()
