"""The cache of a Snapshot's parts: only possibly changed parts are read again.

Clusters are followed, so they cost no requests. Not here: detecting changes (`sources.kubernetes.source`,
`watch.triggers`), and reactions to them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import Struct, field

from locallb.config.registry import Source
from locallb.config.settings import Settings
from locallb.kubernetes.object_parsing import Parsed
from locallb.ledger.claims import ClaimFile
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim, HostFacts
from locallb.sources import SourceError
from locallb.sources.found import find_sources, routes_to_nodes
from locallb.sources.held import HeldByState, HeldMemory, HeldResource, held_by
from locallb.sources.overrides import read_overrides
from locallb.sources.snapshot import (
    SnapshotResult,
    assemble,
    existing_services,
    glance_at_host,
    mode_notices,
    notices_of_pools,
    read_authority,
    read_claims,
    read_host,
    read_routes,
    refuse_another_runtime,
    unread,
    with_overrides,
)
from locallb.sources.source import Followed, SourceRead, SourceResult, source_type
from locallb.storage import paths
from locallb.storage.files import stamp_of

HOST_FRESH = 30.0
"""Seconds that facts of the host count. If they changed meanwhile, an update fails with a message, and is planned again
with current facts.
"""
TIMEOUT = 600.0
"""Seconds that a kind cluster may take to start: afterwards only the full pass checks it."""


class Changes(Struct, frozen=True):
    """Possible changes since the last pass; a first read needs none."""

    everything: bool = False
    """Nothing that is remembered counts."""
    sources: frozenset[str] = frozenset()
    """Clusters with possible changes in their sources."""
    moved: bool = False
    """Clusters may be reached in another way."""
    found: bool = False
    """Finders may find others."""
    maker: bool = False
    """Another process is just creating or removing one."""
    routes: bool = False


class SnapshotCache(Struct):
    """Cached inputs of the snapshot. For one thread, but `changed` is called from any, with the cluster that changed.

    `resources` returns the stack's state: identical resources where nothing changed.
    """

    home: Home
    settings: Settings
    resources: Callable[[], Iterable[HeldResource]]
    changed: Callable[[ClusterName], None]
    _sources: tuple[Source, ...] | None = None
    """Configured and found sources; None before the first search."""
    _found: tuple[SourceRead, ...] = ()
    _read: dict[ClusterName, SourceRead] = field(default_factory=dict)
    following: dict[str, Followed[Any]] = field(default_factory=dict)
    """The follower of each source type: a source that remains is followed further, whatever else is configured now."""
    _unready: float | None = None
    """Since when a cluster is in the making and no container came or went, by the monotonic clock."""
    _held: HeldByState | None = None
    _existing: Memo[set[ObjectKey]] = field(default_factory=Memo)
    """Services that hold something, by this state and these claims."""
    _understood: HeldMemory = field(default_factory=HeldMemory)
    _claims: Memo[tuple[Claim, ...]] = field(default_factory=Memo)
    _remembered: Memo[ClaimFile | None] = field(default_factory=Memo)
    """Contents of the ledger's files at the last read."""
    _host: tuple[float, HostFacts, SourceRead] | None = None
    """Time of the last read of the host, its facts, and the notices of the pools."""

    def configured(self, settings: Settings) -> SnapshotCache:
        """Return one for another configuration: everything is read again, but clusters that stay are followed on."""
        return SnapshotCache(self.home, settings, self.resources, self.changed, following=self.following)

    def read(self, changes: Changes) -> SnapshotResult:
        """Read what may have changed; return it with the rest.

        Raises:
            SourceError: if a source can't be read and has no copy.
            ClientError: if the host or the ledger can't be read.

        """
        if self._held is None:
            self._held = held_by(self.resources(), self._understood)
            refuse_another_runtime(self.settings, self._held)
        claims = self._ledger()
        existing = self._existing.of(None, existing_services, self.home, self._held, claims)
        due = [each for each in self._find(changes) if each.cluster not in self._read or _about(each, changes)]
        for word, several in groupby(sorted(due, key=attrgetter("type")), attrgetter("type")):
            self.followed(word).open(several, existing, everything=changes.everything)
        for source in due:
            self._read[source.cluster] = self._source(source, existing, changes)
        read = [*self._found, *(self._read[source.cluster] for source in self._sources or ())]
        host, reported = self._facts(changes)
        authority = read_authority(self.settings, self._held.authority, keep=True)
        all_notices = reported, mode_notices(self.settings, read)
        result = assemble(self.home, self.settings, self._held, claims, [*read, *all_notices], host, authority)
        return with_overrides(result, read_overrides(self.home))

    def stale(self) -> Mapping[ClusterName, str]:
        """Return which sources count as last read, and why."""
        return {name: source.reading.stale[0] for name, source in self._read.items() if source.reading.stale}

    def retry(self) -> Mapping[ClusterName, float]:
        """Return which sources are to be read again without an event, and when, by the monotonic clock."""
        return {name: source.retry for name, source in self._read.items() if source.retry is not None}

    def unready(self) -> bool:
        """Return whether a cluster is in the making: finding is worth another look in a second."""
        return self._unready is not None and time.monotonic() < self._unready + TIMEOUT

    def updated(self) -> None:
        """Drop the cached state after the stack changed."""
        self._held = None

    def invalidate_host_facts(self) -> None:
        """Note that something failed that should not have: the host may be different."""
        if self._host:
            self._host = -math.inf, *self._host[1:]

    def stop(self) -> None:
        """Follow nothing any more; keep what was read last."""
        for followed in self.following.values():
            followed.stop()

    def _find(self, changes: Changes) -> tuple[Source, ...]:
        """Return the sources, searched again if they may have changed; drop removed ones."""
        if self._sources is not None and not (changes.everything or changes.found):
            return self._sources
        try:
            self._sources, self._found = find_sources(self.home, self.settings, keep=True)
        except SourceError as error:  # what was found last counts, also if that was nothing
            if self._sources is None:
                raise
            unready = any(finder.unready for finder in self._found)
            reported, routes = SourceResult(Parsed(), (str(error),)), routes_to_nodes(self._sources)
            self._found = (SourceRead(reported, unready=unready, node_routes=routes),)
        if not any(finder.unready for finder in self._found):
            self._unready = None
        elif self._unready is None or changes.maker:
            self._unready = time.monotonic()
        for word, followed in self.following.items():
            followed.forget({source.cluster for source in self._sources if source.type == word})
        for name in self._read.keys() - {source.cluster for source in self._sources}:
            del self._read[name]
        return self._sources

    def _source(self, source: Source, existing: Collection[ObjectKey], changes: Changes) -> SourceRead:
        moved = changes.everything or changes.moved or changes.found
        return self.followed(source.type).read(source, existing, everything=changes.everything, moved=moved)

    def followed(self, word: str) -> Followed[Any]:
        """Return what follows the sources of a type."""
        if word not in self.following:
            follow = source_type(word).follow
            self.following[word] = follow(self.home, self.changed)
        return self.following[word]

    def _ledger(self) -> tuple[Claim, ...]:
        """Read the ledger where one of its directories is different; files in it are replaced, never rewritten.

        Where one of them can't be read just now, the directory doesn't tell when it can.
        """
        stamps = map(stamp_of, paths.ledgers())
        claims = self._claims.of(None, lambda *_stamps: read_claims(self._remembered), *stamps)
        if any(unread(claims)):
            self._claims.forget(None)
        return claims

    def _facts(self, changes: Changes) -> tuple[HostFacts, SourceRead]:
        now = time.monotonic()
        if changes.everything or self._host is None or now > self._host[0] + HOST_FRESH:
            host, unknown = self._read_host(self._held or HeldByState())
            self._host = time.monotonic(), host, notices_of_pools(self.settings, host, unknown)
        elif changes.routes:
            host = read_routes(self.settings, self._host[1])
            self._host = self._host[0], host, notices_of_pools(self.settings, host)
        return self._host[1:]

    def _read_host(self, held: HeldByState) -> tuple[HostFacts, str]:
        """Read the host, and why its engine can't be asked: what was known last counts then; most changes need none."""
        if self._host is None:
            return read_host(self.home, self.settings, held), ""
        host, unknown = glance_at_host(self.home, self.settings, held)
        return (self._host[1] if unknown else host), unknown


def _about(source: Source, changes: Changes) -> bool:
    """Return whether a source may be different. Which clusters were found is also how each is reached."""
    return changes.everything or (changes.found and source.found) or source.cluster in changes.sources
