"""Where a CNI says that the pods of a running cluster have their addresses: read once, as `up` does, and followed.

Read only where routes to pods are asked for. What can't be read counts as last read, and is told. Not here: what the
objects say (`kubernetes.pod_ranges`), and routes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import replace

from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.range_kinds import range_discovery, range_kinds
from locallb.kubernetes.parsing.relevant import Document
from locallb.kubernetes.pod_ranges import VERSIONS
from locallb.model.identities import ClusterName
from locallb.model.objects import PodRanges
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_kinds import Follow, FollowedKinds
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

EVERY = 30.0
"""Seconds between two times that a cluster is asked for its kinds."""
ASKED = Pace(first=2.0, longest=EVERY, floor=1.0, calm=EVERY)
KINDS = frozenset(VERSIONS)


def notices_of_ranges(cluster: ClusterName, why: str) -> tuple[str, ...]:
    """Tell why ranges of pods may be old, if they may."""
    until = "the ranges of its pods count as last read until it is given, by the rights of deploy/rbac-pod-ranges.yaml"
    return (f"source {cluster}: {why}; {until}",) if why else ()


def of_ranges(objects: Iterable[Document]) -> tuple[Document, ...]:
    """Return those of a last reading that say where pods are."""
    return tuple(one for one in objects if one.get("kind") in KINDS)


def list_ranges(access: Access, last: Collection[Document]) -> tuple[tuple[Document, ...], str]:
    """Read them; where that fails return those of the last reading, and why."""
    try:
        with closing(range_discovery(access)) as asking:
            places = range_kinds(asking)
        listed: list[Document] = []
        for kind, place in places.items():
            with closing(Feed(access, kind, place)) as feed:
                listed += (dict(one.items()) for one in feed.list()[0])
    except KubeError as error:
        return of_ranges(last), str(error)
    return tuple(listed), ""


class FollowedRanges:
    """Calls `changed` from its threads whenever something is different."""

    def __init__(self, how: Follow) -> None:
        """Follow it as `how` says, whichever kinds it names."""
        self._how = how
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._asked = Backoff(ASKED)
        self._asking: Feed | None = None
        self._trouble = ""
        self._is_known = False
        self._kinds: FollowedKinds | None = None
        self._last: tuple[PodRanges, ...] | None = None
        self._thread = SupervisedThread(
            Task.FOLLOWER,
            f"{how.cluster} ranges of pods",
            self._run,
            subject=how.cluster,
            failed=self._fail,
            stopped=self._stopped,
        )
        self._thread.start()

    def stop(self) -> None:
        """Follow it no more."""
        self._thread.stop()
        if asking := self._asking:
            asking.cut()
        with self._lock:
            kinds, self._kinds = self._kinds, None
        if kinds:
            kinds.stop()

    def look_after(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        if asking := self._asking:
            asking.cut_if_overdue(time.monotonic())
        if kinds := self._kinds:
            kinds.look_after()

    def is_known(self) -> bool:
        """Return whether all that there is was listed once."""
        kinds = self._kinds
        return self._is_known and (kinds is None or kinds.ready())

    def notices(self) -> tuple[str, ...]:
        """Return why what is known may be old, if it may."""
        kinds = self._kinds
        return notices_of_ranges(self._how.cluster, self._trouble or (kinds.broken() if kinds else ""))

    def ranges(self, last: tuple[PodRanges, ...]) -> tuple[PodRanges, ...]:
        """Return what is known; until it is, what there was at the last look, at first `last`. For one thread."""
        kinds = self._kinds
        if self.is_known():
            self._last = tuple(each for part in kinds.parts() for each in part.ranges) if kinds else ()
        return last if self._last is None else self._last

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        kinds = self._kinds
        return kinds.objects() if kinds else ()

    def _run(self) -> None:
        """Ask for the kinds now and again, and follow those that there are."""
        while not self._stopped.wait(self._asked.wait(time.monotonic())):
            self._look()
            if self._asked.is_well and self._stopped.wait(EVERY):
                return

    def _look(self) -> None:
        try:
            with closing(range_discovery(self._how.access)) as asking:
                self._asking = asking
                if self._stopped.is_set():
                    return
                places = range_kinds(asking)
        except KubeError as error:
            self._asked = self._asked.failed(time.monotonic(), jitter())
            self._fail(str(error))
            return
        self._asked = self._asked.succeeded(time.monotonic())
        with self._lock:
            running = self._kinds
            same = (running.how.places if running else {}) == places
            if self._stopped.is_set() or (same and self._is_known and not self._trouble):
                return
            if not same:
                self._kinds = FollowedKinds(replace(self._how, places=places)) if places else None
            self._is_known, self._trouble = True, ""
        if running and not same:
            running.stop()
        self._how.changed()

    def _fail(self, why: str) -> None:
        new, self._trouble = not self._trouble, why
        if new and not self._stopped.is_set():
            self._how.changed()
