"""Directories of manifests as a type of source."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from msgspec.structs import replace

from locallb.guarded.reader import expanded
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.sources import SourceError
from locallb.sources.manifests.entry import ManifestsSource
from locallb.sources.manifests.reading import ENDINGS, LIMITS, ParseCache, manifests_path, read_manifests
from locallb.sources.source import SourceRead, SourceResult, SourceType, with_stale
from locallb.storage.folder_watch import FollowedFolder
from locallb.storage.paths import stack_directory
from locallb.threads import THREADS


class Manifests(SourceType[ManifestsSource]):
    """Files, read as they are; file watches report when they change."""

    def read(self, source: ManifestsSource, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
        """Read the directory."""
        return _read(source, home, existing, keep=keep)

    def follow(self, home: Home, changed: Callable[[ClusterName], None]) -> FollowedManifests:
        """Remember what files meant that haven't changed."""
        del changed
        return FollowedManifests(home)

    def contents(self, source: ManifestsSource, root: Path) -> tuple[Path, ...]:
        """Return the directory."""
        return (manifests_path(source, root),)

    def compared(self, source: ManifestsSource, root: Path, nowhere: Path) -> SourceResult:
        """Read the directory below another root, following no link out of it: its author is untrusted."""
        place = expanded(source.directory)
        written = os.path.normpath(Path(os.path.realpath(root)) / place)
        if not place.is_absolute() and os.path.realpath(root / place) != written:
            raise SourceError(
                f"source {source.cluster}: {source.place} leads through a link; name the directory itself"
            )
        return read_manifests(source, root, nowhere, contained=True)

    def tree(self, source: ManifestsSource) -> tuple[str, tuple[str, ...]]:
        """Return the directory, and what manifests end in."""
        return source.directory, ENDINGS

    def elsewhere(self, source: ManifestsSource, directory: Path) -> ManifestsSource:
        """Name the other directory."""
        return replace(source, directory=str(directory))


class FollowedManifests:
    """Directories that are read again and again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._memories: dict[ClusterName, ParseCache] = {}

    def open(self, sources: Iterable[ManifestsSource], existing: Collection[ObjectKey], *, everything: bool) -> None:
        """Begin nothing: directories are read as fast one after the other."""

    def read(
        self, source: ManifestsSource, existing: Collection[ObjectKey], *, everything: bool, moved: bool
    ) -> SourceRead:
        """Read what is different; `everything` relies on nothing that was read before."""
        del moved
        if everything or source.cluster not in self._memories:
            before = self._memories.get(source.cluster, ParseCache())
            self._close(source.cluster)
            self._memories[source.cluster] = ParseCache(FollowedFolder(ENDINGS, LIMITS), written=before.written)
        read = _read(source, self._home, existing, keep=True, memory=self._memories[source.cluster])
        why = THREADS.failure(source.cluster)
        sentence = f"source {source.cluster}: {why}; until it works again, changes are seen late"
        return with_stale(read, *read.reading.stale, sentence) if why else read

    def forget(self, others: Collection[ClusterName]) -> None:
        """Forget all directories but these."""
        self._close(*(name for name in self._memories if name not in others))

    def stop(self) -> None:
        """Stop following the directories."""
        self._close(*self._memories)

    def _close(self, *names: ClusterName) -> None:
        """Forget these."""
        for name in names:
            memory = self._memories.pop(name, None)
            if memory and memory.followed:
                memory.followed.close()


def _read(
    source: ManifestsSource,
    home: Home,
    existing: Collection[ObjectKey],
    *,
    keep: bool,
    memory: ParseCache | None = None,
) -> SourceRead:
    readings = stack_directory(home)
    result = read_manifests(source, Path(home.root), readings, held_services=existing, keep=keep, memory=memory)
    return SourceRead(result, retry=memory.written.due if memory else None)


SOURCE = Manifests()
