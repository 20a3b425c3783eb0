"""What the loop knows of the world: each source as last read, what is held, the ledger, the host.

Only what a mark says is read again. Clusters are followed, so nothing is asked of them. Not here: what to do with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from locallb.clients import places
from locallb.engine import Engine
from locallb.planning.known import Known
from locallb.planning.model import Claim, ClusterName, Home, HostFacts, ServiceKey
from locallb.planning.settings import KubernetesSource, ManifestsSource, Settings, Source
from locallb.sources.held import HeldByState, held_by
from locallb.sources.kubernetes import health_ports
from locallb.sources.manifests import Memory, SourceReading
from locallb.sources.readings import Readings
from locallb.sources.snapshot import (
    Reading,
    SourceRead,
    assemble,
    find_sources,
    known_services,
    read_claims,
    read_host,
    read_source,
    readings_directory,
    refuse_another_runtime,
)
from locallb.watch.clusters import FollowedCluster
from locallb.watch.happenings import Cause, Mark

HOST_FRESH = 30.0
"""Seconds that what was found out about the host counts. Where it has changed meanwhile an update fails, which says so,
and is planned again with what is true now."""
KEEP_EVERY = 30.0
"""Seconds between two times that a followed cluster's last good reading is written."""


@dataclass(slots=True)
class World:
    """Everything that plans are made from. For one thread, but `mark` is called from any."""

    home: Home
    settings: Settings
    engine: Engine
    mark: Callable[[Mark], None]
    _sources: tuple[Source, ...] = ()
    """Those that are configured, and those that were found."""
    _found: tuple[SourceRead, ...] = ()
    _read: dict[ClusterName, SourceRead] = field(default_factory=dict)
    _memories: dict[ClusterName, Memory] = field(default_factory=dict)
    """What directories of manifests had; a full pass doesn't rely on it."""
    _followed: dict[ClusterName, FollowedCluster] = field(default_factory=dict)
    _kept: dict[ClusterName, float] = field(default_factory=dict)
    _held: HeldByState | None = None
    _known: tuple[HeldByState, tuple[Claim, ...], set[ServiceKey]] | None = None
    """Which Services hold something, by this state and these claims."""
    _resources: Known = field(default_factory=Known)
    """What the state's resources said when they were read last."""
    _claims: tuple[tuple[object, ...], tuple[Claim, ...]] = ((), ())
    _host: tuple[float, HostFacts] | None = None

    def read(self, marks: Collection[Mark]) -> Reading:
        """Read what the marks are about, and give it with the rest.

        Raises:
            SourceError: if a source can't be read and has no copy.
            ClientError: if the host or the ledger can't be read.

        """
        if self._held is None:
            self._held = held_by(self.engine.resources(), self._resources)
            refuse_another_runtime(self.settings, self._held)
        claims = self._ledger()
        known = self._holders(self._held, claims)
        everything = any(mark.cause in {Cause.START, Cause.FULL, Cause.CONFIGURATION} for mark in marks)
        named = {mark.subject for mark in marks if mark.cause is Cause.SOURCE}
        if everything or not self._sources:
            self._sources, self._found = find_sources(self.home, self.settings)
            self._forget({source.cluster for source in self._sources})
        for source in self._sources:
            if everything or source.cluster in named or source.cluster not in self._read:
                self._read[source.cluster] = self._source(source, known, anew=everything)
        read = [*self._found, *(self._read[source.cluster] for source in self._sources)]
        return assemble(self.home, self._held, claims, read, self._facts(everything))

    def stale(self) -> Mapping[ClusterName, str]:
        """Tell which sources count as last read, and why."""
        return {name: one.reading.stale[0] for name, one in self._read.items() if one.reading.stale}

    def updated(self) -> None:
        """Note that the stack changed: what is held is no longer what it was."""
        self._held = None

    def surprised(self) -> None:
        """Note that something failed that should not have: the host may be different."""
        self._host = None

    def stop(self) -> None:
        """Follow nothing any more; keep what was read last."""
        for cluster in self._followed.values():
            cluster.stop()
            self._keep(cluster, due=True)

    def _forget(self, clusters: Collection[ClusterName]) -> None:
        """Follow no cluster that is a source no more."""
        for name in self._followed.keys() - clusters:
            self._followed.pop(name).stop()
        for name in self._read.keys() - clusters:
            del self._read[name]

    def _source(self, source: Source, known: Collection[object], *, anew: bool) -> SourceRead:
        match source:
            case ManifestsSource():
                if anew or source.cluster not in self._memories:
                    self._memories[source.cluster] = Memory()
                memory = self._memories[source.cluster]
                return read_source(self.home, source, known, keep=True, memory=memory)  # type: ignore[arg-type]
            case KubernetesSource():
                return self._cluster(source, known, anew=anew)

    def _cluster(self, source: KubernetesSource, known: Collection[object], *, anew: bool) -> SourceRead:
        """Give what a followed cluster has; before everything is listed, read it once as `up` does."""
        followed = self._followed.get(source.cluster)
        if followed is None:
            read = read_source(self.home, source, known, keep=True)  # type: ignore[arg-type]
            access = read.access[source.cluster]
            self._followed[source.cluster] = FollowedCluster(
                source.cluster, access, lambda: self.mark(Mark(Cause.SOURCE, source.cluster))
            )
            return read
        before = self._read[source.cluster]
        why = followed.stale()
        if not followed.ready():
            return before
        self._keep(followed, due=False)
        stale = (f"source {source.cluster}: {why}; its Services count as last read until it answers",) if why else ()
        parsed = followed.parsed()
        # Health ports appear with Nodes. Asking costs half a second where one is dead, so not at every event.
        asked = before.health_ports
        if anew or parsed.nodes != before.reading.parsed.nodes:
            asked = {source.cluster: health_ports(parsed)}
        return replace(before, reading=SourceReading(parsed, stale), health_ports=asked)

    def _keep(self, cluster: FollowedCluster, *, due: bool) -> None:
        """Write the last good reading, now and again."""
        now = time.monotonic()
        if not cluster.ready() or cluster.stale() or (not due and now < self._kept.get(cluster.cluster, 0)):
            return
        self._kept[cluster.cluster] = now + KEEP_EVERY
        objects = tuple(cluster.objects())
        Readings(readings_directory(self.home)).keep(cluster.cluster, {cluster.access.context: objects})

    def _holders(self, held: HeldByState, claims: tuple[Claim, ...]) -> set[ServiceKey]:
        if self._known is None or self._known[0] is not held or self._known[1] is not claims:
            self._known = held, claims, known_services(self.home, held, claims)
        return self._known[2]

    def _ledger(self) -> tuple[Claim, ...]:
        """Read the ledger where one of its directories is different; files in it are replaced, never rewritten."""
        stamps = tuple(_stamp(path) for path in places.ledgers())
        if stamps != self._claims[0] or not stamps:
            self._claims = stamps, read_claims()
        return self._claims[1]

    def _facts(self, anew: bool) -> HostFacts:  # noqa: FBT001 - one caller
        now = time.monotonic()
        if anew or self._host is None or now > self._host[0] + HOST_FRESH:
            self._host = now, read_host(self.home, self.settings, self._held or HeldByState())
        return self._host[1]


def _stamp(path: Path) -> object:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns
