"""The interface of a source type: read, follow, and name the files and APIs that it depends on.

A finder is a type of source that names others: the existing clusters. What it needs and can't watch is polled every few
seconds (`Polls`). Not here: how an entry of the configuration is
parsed (`config.registry`), and when sources are read.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.registry import SOURCES, Finder, Source
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Family, Home, ObjectKey, ObjectKind
from locallb.model.own_classes import ClassFacts
from locallb.model.pacing import Backoff, Pace
from locallb.model.relays import ForwardingFacts
from locallb.model.routes import PodRoute
from locallb.model.snapshot import Access, Contents, Place
from locallb.sources import SourceError
from locallb.threads import SupervisedThread, Task, jitter

S = TypeVar("S", bound=Source)
Source_co = TypeVar("Source_co", bound=Source, covariant=True)
Source_contra = TypeVar("Source_contra", bound=Source, contravariant=True)
FinderT = TypeVar("FinderT", bound=Finder)


class SourceResult(Struct, frozen=True):
    """Contents of a source, and whether they are current."""

    parsed: Parsed
    stale: tuple[str, ...] = ()
    """The failures of reading: a sentence each, with the source, the file, the line and the remedy."""
    contents: Contents | None = None
    """Number of objects read; None if unknown."""


class SourceRead(Struct, frozen=True):
    """Result of reading one source, and the access to publish statuses to it."""

    reading: SourceResult
    access: Mapping[ClusterName, Access] = field(default_factory=dict)
    health_ports: Mapping[ClusterName, frozenset[Family]] = field(default_factory=dict)
    """The families in which Nodes of live clusters answer on kube-proxy's health port."""
    forwarding: Mapping[ClusterName, ForwardingFacts] = field(default_factory=dict)
    """As `Snapshot` has it."""
    unready: bool = False
    """It is being created: nothing of it is known yet, which is not an error."""
    node_routes: Mapping[ClusterName, tuple[PodRoute, ...]] = field(default_factory=dict)
    """The ways to Nodes that are pods of another cluster, by theirs."""
    classes: Mapping[ClusterName, Mapping[ObjectKind, ClassFacts]] = field(default_factory=dict)
    """As `Snapshot` has it."""
    retry: float | None = None
    """Time of the next read, by the monotonic clock, if no event reports changes; None: no such read."""


def with_stale(read: SourceRead, *stale: str) -> SourceRead:
    """Return the same with these sentences of why it may be old; none: it isn't."""
    return replace(read, reading=replace(read.reading, stale=stale))


class Followed(Protocol[Source_contra]):
    """The sources of one type that the loop follows. For one thread."""

    def open(self, sources: Iterable[Source_contra], existing: Collection[ObjectKey], *, everything: bool) -> None:
        """Begin to read what isn't followed yet of the sources that are read next; arguments as of `read`."""

    def read(
        self, source: Source_contra, existing: Collection[ObjectKey], *, everything: bool, moved: bool
    ) -> SourceRead:
        """Return what a source has; from the first time on, follow it. Raises SourceError.

        Args:
            source: which one.
            existing: Services that hold something.
            everything: this is a look at everything; nothing that is remembered counts.
            moved: it may be reached in another way now.

        """

    def forget(self, others: Collection[ClusterName]) -> None:
        """Follow these and no others."""

    def stop(self) -> None:
        """Follow nothing any more; keep what was read last."""


class SourceType(ABC, Generic[S]):
    """One type of source."""

    @abstractmethod
    def read(self, source: S, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
        """Read one source.

        Args:
            source: which one.
            home: of which stack.
            existing: Services that hold something: with one of this cluster among them, it can't be passed over.
            keep: remember what it has, for a time when it can't be read.

        Raises:
            SourceError: if it can't be read and there is nothing to go by instead.

        """

    @abstractmethod
    def follow(self, home: Home, changed: Callable[[ClusterName], None]) -> Followed[S]:
        """Follow sources of this type; `changed` may be called from any thread."""

    def contents(self, source: S, root: Path) -> tuple[Path, ...]:
        """Return the directories and files that it reads, for file watches."""
        del source, root
        return ()

    def places(self, source: S, root: Path) -> Mapping[ObjectKey, Place]:
        """Return where objects with an address are written, as far as that is known."""
        del source, root
        return {}

    def access_files(self, source: S, root: Path) -> tuple[Path, ...]:
        del source, root
        return ()

    def access(self, source: S, root: Path) -> Access | None:
        """Return how its API is reached; None where there is none. Raises ClientError where that can't be found out."""
        del source, root
        return None

    def compared(self, source: S, root: Path, nowhere: Path) -> SourceResult:
        """Read it below another root than the project's, where `nowhere` has no reading. Raises SourceError."""
        del root, nowhere
        raise SourceError(f"source {source.cluster} is a running cluster and can't be compared; compare manifests")

    def tree(self, source: S) -> tuple[str, tuple[str, ...]]:
        """Return what of a repository it needs to be compared: a path, and the endings of files. Raises SourceError."""
        raise SourceError(f"source {source.cluster} is a running cluster and can't be compared; compare manifests")

    def elsewhere(self, source: S, directory: Path) -> S:
        """Return this source with its files in `directory` instead of its own. Raises SourceError."""
        del directory
        raise SourceError(f"source {source.cluster} is a running cluster and can't be compared; compare manifests")


class Found(Struct, Generic[Source_co], frozen=True):
    """The sources that a finder names, and notices for the user."""

    sources: tuple[Source_co, ...] = ()
    complaints: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    unready: bool = False
    """A cluster is being created, or changed during the search: a search in a second finds more."""
    node_routes: Mapping[ClusterName, tuple[PodRoute, ...]] = field(default_factory=dict)
    """Its routes to Nodes of clusters that another finder may have."""
    removed: tuple[ClusterName, ...] = ()
    """Clusters that disappeared since the last search. A later one of the same name is another cluster."""


class Watch(Protocol):
    """Something that calls back from a thread of its own."""

    def stop(self) -> None:
        """End it."""


class FinderType(ABC, Generic[FinderT]):
    """One type of finder."""

    @abstractmethod
    def find(self, finder: FinderT, root: Path, directory: Path, *, keep: bool) -> Found[Source]:
        """Find the sources. The finder's files are in `directory`, which is only written to `keep` them.

        `root` is the project's directory. Raises SourceError if the search fails and nothing is stored.
        """

    @abstractmethod
    def watch(self, finder: FinderT, root: Path, changed: Callable[[str], None]) -> Watch:
        """Call `changed` with the name of a source that may have been added or removed; empty if unknown."""


@cache
def source_type(source_word: str) -> SourceType[Any]:
    return cast("SourceType[Any]", SOURCES.load(source_word, "source"))


@cache
def finder_type(finder_word: str) -> FinderType[Any]:
    return cast("FinderType[Any]", SOURCES.load(finder_word, "source"))


def reached(sources: Iterable[Source], root: Path) -> dict[ClusterName, Access]:
    """Return the access to the live clusters among `sources`, as far as it is known."""
    existing = {}
    for source in sources:
        with suppress(ClientError):
            existing[source.cluster] = source_type(source.type).access(source, root) if source.live else None
    return {cluster: access for cluster, access in existing.items() if access}


PACE = Pace(first=5.0, longest=20.0, floor=5.0)
"""A Node or a cluster takes minutes to come, and half a minute to wake."""


class Polls:
    """Calls `changed` from a thread of its own where `inspect` sees something different, and at first, until `stop`.

    `inspect` may raise KubeError: then nothing is seen, and it looks less often.
    """

    def __init__(
        self, subject: str, name: str, inspect: Callable[[], object], changed: Callable[[str], None], pace: Pace = PACE
    ) -> None:
        self._ask = inspect
        self._changed = changed
        self._backoff = Backoff(pace)
        self._thread = SupervisedThread(Task.FOLLOWER, name, self._follow, subject=subject, failed=self._lose)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking, once the last answer has come."""
        self._thread.stop()

    def _follow(self) -> None:
        observed: list[object] = []
        while not self._thread.stopped.wait(self._backoff.wait(time.monotonic())):
            answer = self._inspect()
            if observed != [answer] and not self._thread.stopped.is_set():
                observed = [answer]
                self._changed("")

    def _inspect(self) -> object:
        """Return what is seen; None where there is no answer."""
        try:
            observed = self._ask()
        except KubeError:
            self._backoff = self._backoff.failed(time.monotonic(), jitter())
            return None
        self._backoff = self._backoff.succeeded(time.monotonic())
        return observed

    def _lose(self, _sentence: str) -> None:
        """Report a change, so that readers ask themselves while this thread does not."""
        self._changed("")
