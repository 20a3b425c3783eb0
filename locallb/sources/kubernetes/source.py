"""Running clusters as a type of source, each read once, or followed by the current meaning of its kubeconfig.

A changed meaning restarts following; until the other cluster was read, and while the file can't be used, the last read
objects count. The client takes 0.1 s to load, which stacks of manifests don't need. Not here: which clusters exist, and
how one is followed (`followed_cluster`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.kubernetes.answers import WatchPace
from locallb.kubernetes.api.kubeconfig import Meaning, kubeconfig_path
from locallb.kubernetes.api.servers import KubeError, UnconfirmedError, UnreachableError
from locallb.kubernetes.events import Identity
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.identities import ClusterName, ContextName, Family, Home, ObjectKey
from locallb.model.relays import ForwardingFacts
from locallb.model.snapshot import Access
from locallb.sources import SourceError
from locallb.sources.consents import allowed, allowed_meaning, note_served
from locallb.sources.entries import KubernetesSource, MachinesFinder
from locallb.sources.kubernetes.followed_cluster import FollowedCluster, of_ranges
from locallb.sources.kubernetes.gateway_listing import of_gateways, word_of
from locallb.sources.kubernetes.informers import NO_PACES
from locallb.sources.kubernetes.nodes import NodePolls, find_nodes
from locallb.sources.kubernetes.reading import (
    classes_of,
    forwarding_facts,
    health_ports,
    is_held,
    last_reading,
    may_need_api,
    not_up_yet,
    read_cluster,
)
from locallb.sources.kubernetes.write_hints import hold_back
from locallb.sources.readings import ReadCache
from locallb.sources.source import FinderType, Found, SourceRead, SourceResult, SourceType, with_stale
from locallb.storage.paths import stack_directory
from locallb.threads import Task, in_background

KEEP_EVERY = 30.0
"""Seconds between two times that a followed cluster's last good reading is written."""

REQUEST_EVERY = 2.0
"""Seconds between two questions by which way pods of a cluster are reached."""
OPENING = 2.0
"""Seconds that clusters may take for their first reads, which go on side by side, and each from there until it is
followed; then others go on without it or, if it was read, its Services are read one by one.
"""


class _Live(Struct):
    """One cluster: its follower, and its last result."""

    source: KubernetesSource
    intended: Meaning | None
    """Meaning of the kubeconfig when following began; None if it couldn't be used."""
    followed: FollowedCluster
    read: SourceRead
    late: Future[SourceRead] | None
    """The first read, where it takes long."""
    request: Future[ForwardingFacts | None] | None = None
    """The question by which way its pods are reached."""
    fault: str = ""
    """The reason that the kubeconfig can't be used now."""
    keep_at: float = 0.0
    request_at: float = 0.0


class _Opening(Struct, frozen=True):
    """A cluster before it is followed, and its first read."""

    intended: Meaning | None
    """As `_Live` has it."""
    is_refused: bool
    """The meaning of its kubeconfig isn't confirmed."""
    reading: Future[SourceRead] | None
    """None for one that was just found, which is waited for by nobody."""
    until: float
    """When others go on without the read, by the monotonic clock."""


class Following(Struct):
    """The clusters that are followed. For one thread; `changed` is called from any, with a cluster's name."""

    home: Home
    changed: Callable[[ClusterName], None]
    _live: dict[ClusterName, _Live] = field(default_factory=dict)
    _openings: dict[ClusterName, _Opening] = field(default_factory=dict)

    def open(self, sources: Iterable[KubernetesSource], existing: Collection[ObjectKey], *, everything: bool) -> None:
        """Begin the first reads of clusters that aren't followed yet, so that dead ones take one wait together."""
        for source in sources:
            if source.cluster not in self._live and source.cluster not in self._openings:
                self._openings[source.cluster] = self._opening(source, existing, wait=everything)

    def read(
        self, source: KubernetesSource, existing: Collection[ObjectKey], *, everything: bool, moved: bool
    ) -> SourceRead:
        """Return a cluster's contents; follow it from the first call on.

        Args:
            source: which one.
            existing: Services that hold something.
            everything: this is a full pass: wait for the first answer, and read what events don't report.
            moved: the kubeconfig may say something else.

        Raises:
            SourceError: if it is followed from now on, can't be read, and has no last good reading.
        """
        live = self._live.get(source.cluster)
        same_api = live and replace(live.source, silent=source.silent, node_routes=source.node_routes) == source
        if live is not None and same_api and live.source != source:
            live.source, live.read = source, with_stale(live.read)
        if live is not None and live.source != source:
            self._end(self._live.pop(source.cluster))
            live = None
        if live is None:
            opening = self._openings.pop(source.cluster, None) or self._opening(source, existing, wait=everything)
            live = self._live[source.cluster] = self._begun(source, existing, opening)
            return live.read
        if everything:
            live.followed.follow_up()
        if moved:
            self._find(live)
        self._refresh(live, everything=everything)
        return live.read

    def forget(self, others: Collection[ClusterName]) -> None:
        for name in self._live.keys() - others:
            self._end(self._live.pop(name))
        for name in self._openings.keys() - others:
            del self._openings[name]

    def stop(self) -> None:
        """Follow nothing any more; keep what was read last."""
        self.forget(())

    def _end(self, live: _Live) -> None:
        """Follow one no more; keep what was read last."""
        live.followed.stop()
        self._keep(live, due=True)

    def _opening(self, source: KubernetesSource, existing: Collection[ObjectKey], *, wait: bool) -> _Opening:
        """Begin to read a cluster, once, as `up` does: it counts until everything is listed.

        One that was just found may take seconds to answer, and any may hang: nothing waits for it but its own Services.
        """
        intended, refused, reading = None, False, None
        try:
            intended = self._meaning(source)
            hold_back(intended.access, opens=True)
            self._remember(source, intended)
        except UnconfirmedError:
            refused = True
        except KubeError:  # reading it tells what is wrong
            pass
        if wait or not (intended and source.found) or is_held(source, existing):
            work = partial(read_cluster, source, self.home, existing, keep=True)
            reading = in_background(Task.OPENING, f"first read of {source.cluster}", work)
        return _Opening(intended, refused, reading, time.monotonic() + OPENING)

    def _begun(self, source: KubernetesSource, existing: Collection[ObjectKey], opening: _Opening) -> _Live:
        """Follow a cluster from now on. Raises SourceError."""
        intended = opening.intended
        if opening.reading:
            read, late = self._first_read(source, existing, opening.reading, opening.until)
        else:
            read, late = _unready(source, intended.access if intended else _nowhere(source, self.home)), None
        access = intended.access if intended else read.access.get(source.cluster)
        followed = self._follow(source, _nowhere(source, self.home) if opening.is_refused or not access else access)
        if not (read.unready or read.reading.stale or source.silent):
            followed.await_answer(OPENING)
        return _Live(source, intended, followed, read, late)

    def _first_read(
        self, source: KubernetesSource, existing: Collection[ObjectKey], reading: Future[SourceRead], until: float
    ) -> tuple[SourceRead, Future[SourceRead] | None]:
        """Return the result of a read; a cluster that doesn't answer in time counts as last read, and is still read.

        Raises SourceError.
        """
        try:
            return reading.result(max(0.0, until - time.monotonic())), None
        except TimeoutError:
            why = UnreachableError(f"it hasn't answered within {OPENING:g} s")
        try:
            last = last_reading(source, self.home, existing, why)
        except SourceError:  # nothing may be planned without it
            return reading.result(), None
        reading.add_done_callback(lambda _: self.changed(source.cluster))
        return last, reading

    def _find(self, live: _Live) -> None:
        """Read the kubeconfig, and follow the cluster it means now."""
        try:
            intended = self._meaning(live.source, live.intended)
        except UnconfirmedError as error:  # its old name in the kubeconfig may lead there as well
            if live.intended is not None:
                self._refresh(live, everything=False)
                self._end(live)
                live.intended, live.followed = None, self._follow(live.source, _nowhere(live.source, self.home))
            live.fault = str(error)
            return
        except KubeError as error:
            live.fault = str(error)
            return
        if live.fault:
            live.fault, live.read = "", with_stale(live.read)
        if intended == live.intended:
            return
        self._refresh(live, everything=False)
        self._end(live)
        self._remember(live.source, intended)
        live.intended, live.followed = intended, self._follow(live.source, intended.access, live.followed.paces())
        live.read, live.late, live.request, live.keep_at = with_stale(live.read), None, None, 0.0

    def _remember(self, source: KubernetesSource, intended: Meaning) -> None:
        """Write down that this source is served. Raises SourceError."""
        note_served(source, intended, Path(self.home.root))

    def _refresh(self, live: _Live, *, everything: bool) -> None:
        """Take over what is known by now."""
        if live.late and live.late.done():
            with suppress(SourceError):
                live.read = live.late.result()
            live.late = None
        cluster, why = live.source.cluster, live.followed.stale()
        sentence = f"source {cluster}: {why}; its Services count as last read until it answers"
        stale = (sentence,) if why and not live.source.silent else ()
        if live.fault:
            stale = (f"source {cluster}: {live.fault}; its Services count as last read until that is repaired",)
        if live.read.unready and why and not everything:
            return  # an API that comes up answers some questions before others: that is no complaint yet
        if live.followed.ready():
            self._keep(live, due=False)
            before = live.read.reading.parsed
            parsed = live.followed.parsed(before.gateway_api, before.ranges)
            # Health ports appear with Nodes. Asking costs half a second where one is dead, so not at every event, and
            # not while the cluster doesn't answer.
            requested, is_new = live.read.health_ports, everything or parsed.nodes != before.nodes
            if not (why or stale) and is_new:
                requested = {cluster: health_ports(parsed)}
            forwarding = self._forwarding(live, parsed, requested, ask=is_new and not (why or stale))
            last = live.read.classes.get(cluster, {}).items()
            known = {kind: replace(facts, is_current=False) for kind, facts in last} | dict(live.followed.classes())
            classes = classes_of(live.source, known)
            access = {cluster: live.followed.access}
            live.read = SourceRead(SourceResult(parsed, stale), access, requested, forwarding, classes=classes)
        elif live.read.unready:
            live.read = _unready(live.source, live.followed.access, why) if why else live.read
        elif stale and (live.fault or not live.read.reading.stale):
            live.read = with_stale(live.read, *stale)

    def _forwarding(
        self, live: _Live, parsed: Parsed, ports: Mapping[ClusterName, frozenset[Family]], *, ask: bool
    ) -> Mapping[ClusterName, ForwardingFacts]:
        """Return what is known of the way through the API; ask again if `ask`, or where it matters and is unknown.

        The answer takes seconds where nothing answers, and isn't waited for.
        """
        cluster, existing = live.source.cluster, live.read.forwarding
        if live.request and live.request.done():
            facts, live.request = live.request.result(), None
            existing = {cluster: facts} if facts else {}
        if live.source.forwarding is None:
            return {}
        before, families = existing.get(cluster), ports.get(cluster, frozenset())
        if families and not may_need_api(live.source, parsed):
            return {cluster: ForwardingFacts()}
        is_needed = not (before and before.requested) and may_need_api(live.source, parsed)
        if (ask or is_needed) and live.request is None and time.monotonic() >= live.request_at:
            live.request_at = time.monotonic() + REQUEST_EVERY
            work = partial(forwarding_facts, live.source, live.followed.access, parsed, families, before)
            live.request = in_background(Task.OPENING, f"way to pods of {cluster}", work)
            live.request.add_done_callback(lambda _: self.changed(cluster))
        return existing

    def _meaning(self, source: KubernetesSource, existing: Meaning | None = None) -> Meaning:
        """Return what the kubeconfig means; raises UnconfirmedError if that cluster may not be used, KubeError."""
        return allowed_meaning(source, Path(self.home.root), existing)

    def _follow(
        self, source: KubernetesSource, access: Access, paces: Mapping[str, WatchPace] = NO_PACES
    ) -> FollowedCluster:
        return FollowedCluster(
            source.cluster,
            access,
            lambda: self.changed(source.cluster),
            paces,
            reads_ranges=source.reads_pod_ranges,
            loopback=source.loopback_backends,
            classes=source.classes,
        )

    def _keep(self, live: _Live, *, due: bool) -> None:
        """Write the last good reading, now and again."""
        now, followed = time.monotonic(), live.followed
        if not followed.ready() or followed.stale() or (not due and now < live.keep_at):
            return
        live.keep_at = now + KEEP_EVERY
        cache, lacking = ReadCache(stack_directory(self.home)), followed.lacks()
        last = cache.load(followed.cluster) or {} if lacking else {}
        objects = followed.objects()
        retained = [
            document for listed in last.values() for document in of_gateways(listed) if word_of(document) in lacking
        ]
        retained += [
            document for listed in last.values() for document in of_ranges(listed) if document["kind"] in lacking
        ]
        existing = {Identity.of(document) for document in objects} if retained else set()
        others = (document for document in retained if Identity.of(document) not in existing)
        cache.keep(followed.cluster, {followed.access.context: (*objects, *others)})


def _nowhere(source: KubernetesSource, home: Home) -> Access:
    """Return the access of a cluster that may not be used: no context has an empty name, so nothing is asked."""
    return Access(str(kubeconfig_path(source.kubeconfig, Path(home.root))), ContextName(""))


def _unready(source: KubernetesSource, access: Access, why: str = "") -> SourceRead:
    nothing = not_up_yet(source, access, why)
    return SourceRead(nothing.reading, {source.cluster: access}, unready=True, classes=classes_of(source, {}))


class Kubernetes(SourceType[KubernetesSource], FinderType[MachinesFinder]):
    """APIs, read once or followed by watches; clusters with their Nodes as pods find the routes to them."""

    def read(self, source: KubernetesSource, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
        """List what the cluster has."""
        return read_cluster(source, home, existing, keep=keep)

    def follow(self, home: Home, changed: Callable[[ClusterName], None]) -> Following:
        return Following(home, changed)

    def access_files(self, source: KubernetesSource, root: Path) -> tuple[Path, ...]:
        return (kubeconfig_path(source.kubeconfig, root),)

    def access(self, source: KubernetesSource, root: Path) -> Access:
        """Return the access that the kubeconfig describes, if it may be used. Raises KubeError."""
        return allowed(source, root)

    def find(self, finder: MachinesFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        """Find the ways to Nodes that are pods."""
        return find_nodes(finder, root, directory, keep=keep)

    def watch(self, finder: MachinesFinder, root: Path, changed: Callable[[str], None]) -> NodePolls:
        """Poll every few seconds whether the routes to Nodes changed."""
        return NodePolls(finder, root, changed)


SOURCE = Kubernetes()
