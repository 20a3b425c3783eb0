"""The live clusters of a stack, each followed by what its kubeconfig says now.

A kubeconfig that says something else makes following start again; until the other cluster was read, and while the file
says nothing that can be used, what was read last counts. Not here: which clusters there are, and how one is followed
(`followed_cluster`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from locallb.config.settings import KubernetesSource
from locallb.kubernetes.api.errors import KubeError
from locallb.kubernetes.api.kubeconfig import Meaning, meaning
from locallb.kubernetes.watch_pace import Tempo
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_cluster import NOBODY, FollowedCluster
from locallb.sources.kubernetes.reading import health_ports, not_up_yet, read_cluster
from locallb.sources.kubernetes.told_writers import hold_back
from locallb.sources.readings import ReadCache, readings_directory
from locallb.sources.source import SourceRead, SourceResult, with_stale

KEEP_EVERY = 30.0
"""Seconds between two times that a followed cluster's last good reading is written."""

OPENING = 2.0
"""Seconds that a cluster which has just been read may take until it is followed; later, its Services are asked for one
by one."""


@dataclass(slots=True)
class _Live:
    """One cluster: how it is followed, and what it had at the last look."""

    source: KubernetesSource
    meant: Meaning | None
    """What the kubeconfig said when following began; None if that couldn't be used."""
    followed: FollowedCluster
    read: SourceRead
    fault: str = ""
    """Why the kubeconfig can't be used now."""
    keep_at: float = 0.0


@dataclass(slots=True)
class Following:
    """The clusters that are followed. For one thread; `changed` is called from any, with a cluster's name."""

    home: Home
    changed: Callable[[ClusterName], None]
    _live: dict[ClusterName, _Live] = field(default_factory=dict)

    def read(
        self, source: KubernetesSource, known: Collection[ObjectKey], *, everything: bool, moved: bool
    ) -> SourceRead:
        """Return what a cluster has; from the first time on, follow it.

        Args:
            source: which one.
            known: Services that hold something.
            everything: this is a look at everything: wait for the first answer, and ask what isn't told by events.
            moved: the kubeconfig may say something else.

        Raises:
            SourceError: if it is followed from now on, can't be read, and has no last good reading.

        """
        one = self._live.get(source.cluster)
        if one is not None and one.source != source == replace(one.source, silent=source.silent):
            one.source, one.read = source, with_stale(one.read)
        if one is not None and one.source != source:
            self._end(self._live.pop(source.cluster))
            one = None
        if one is None:
            one = self._live[source.cluster] = self._begun(source, known, wait=everything)
            return one.read
        if everything:
            one.followed.look_after()
        if moved:
            self._look_up(one)
        self._refresh(one, everything=everything)
        return one.read

    def forget(self, others: Collection[ClusterName]) -> None:
        """Follow these and no others."""
        for name in self._live.keys() - others:
            self._end(self._live.pop(name))

    def stop(self) -> None:
        """Follow nothing any more; keep what was read last."""
        self.forget(())

    def _end(self, one: _Live) -> None:
        """Follow one no more; keep what was read last."""
        one.followed.stop()
        self._keep(one, due=True)

    def _begun(self, source: KubernetesSource, known: Collection[ObjectKey], *, wait: bool) -> _Live:
        """Begin to follow a cluster. Before everything is listed, it is read once as `up` does.

        One that was just found may take seconds to answer, and nothing waits for it but its own Services.
        """
        meant = None
        with suppress(KubeError):  # reading it tells what is wrong
            meant = self._meaning(source)
            hold_back(meant.access)
        held = any(key.cluster == source.cluster for key in known)
        if meant and source.found and not held and not wait:
            read = _unready(source, meant.access)
        else:
            read = read_cluster(source, self.home, known, keep=True)
        access = meant.access if meant else read.access[source.cluster]
        followed = self._follow(source, access)
        if not (read.unready or read.reading.stale or source.silent):
            followed.await_answer(OPENING)
        return _Live(source, meant, followed, read)

    def _look_up(self, one: _Live) -> None:
        """Look at the kubeconfig, and follow whatever it means now."""
        try:
            meant = self._meaning(one.source)
        except KubeError as error:
            one.fault = str(error)
            return
        if one.fault:
            one.fault, one.read = "", with_stale(one.read)
        if meant == one.meant:
            return
        self._refresh(one, everything=False)
        self._end(one)
        one.meant, one.followed = meant, self._follow(one.source, meant.access, one.followed.tempos())
        one.read, one.keep_at = with_stale(one.read), 0.0

    def _refresh(self, one: _Live, *, everything: bool) -> None:
        """Take over what is known by now."""
        cluster, why = one.source.cluster, one.followed.stale()
        told = f"source {cluster}: {why}; its Services count as last read until it answers"
        stale = (told,) if why and not one.source.silent else ()
        if one.fault:
            stale = (f"source {cluster}: {one.fault}; its Services count as last read until that is repaired",)
        if one.read.unready and why and not everything:
            return  # an API that comes up answers some questions before others: that is no complaint yet
        if one.followed.ready():
            self._keep(one, due=False)
            parsed = one.followed.parsed()
            # Health ports appear with Nodes. Asking costs half a second where one is dead, so not at every event, and
            # not while the cluster doesn't answer.
            asked = one.read.health_ports
            if not (why or stale) and (everything or parsed.nodes != one.read.reading.parsed.nodes):
                asked = {cluster: health_ports(parsed)}
            one.read = SourceRead(SourceResult(parsed, stale), {cluster: one.followed.access}, asked)
        elif one.read.unready:
            one.read = _unready(one.source, one.followed.access, why) if why else one.read
        elif stale and (one.fault or not one.read.reading.stale):
            one.read = with_stale(one.read, *stale)

    def _meaning(self, source: KubernetesSource) -> Meaning:
        return meaning(source.kubeconfig, source.context, Path(self.home.root))

    def _follow(
        self, source: KubernetesSource, access: Access, tempos: Mapping[str, Tempo] = NOBODY
    ) -> FollowedCluster:
        return FollowedCluster(source.cluster, access, lambda: self.changed(source.cluster), tempos)

    def _keep(self, one: _Live, *, due: bool) -> None:
        """Write the last good reading, now and again."""
        now, followed = time.monotonic(), one.followed
        if not followed.ready() or followed.stale() or (not due and now < one.keep_at):
            return
        one.keep_at = now + KEEP_EVERY
        objects = tuple(followed.objects())
        ReadCache(readings_directory(self.home)).keep(followed.cluster, {followed.access.context: objects})


def _unready(source: KubernetesSource, access: Access, why: str = "") -> SourceRead:
    nothing = not_up_yet(source, access, why)
    return SourceRead(nothing.reading, {source.cluster: access}, unready=True)
