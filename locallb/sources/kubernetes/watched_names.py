"""Watches of single Secrets and ConfigMaps by name: only that one changed, never its content.

One watch for each, of its metadata alone, so that no key is transferred; the caller reads the object by its name. The
right to watch is optional: an object that may not be watched, or exceeds the limit, is read at intervals. Not here:
reading (`named_objects`), and which are named (`gateway.kinds`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial

from msgspec import Struct, field

from locallb.gateway.kinds import SECRET
from locallb.kubernetes.answers import BOOKMARK
from locallb.kubernetes.api.feed import OPENED, ExpiredError, Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError
from locallb.model.gateway_objects import Reference
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.informers import Follow
from locallb.threads import SupervisedThread, Task, jitter

MAX = 20
"""Names that are followed: each takes a connection and a thread."""
RETRY_DELAY = Pace(first=1.0, longest=30.0, floor=0.5, idle=10.0)
"""Pace of retries of a broken watch. Slower than for whole kinds: there are many, and reads find missed changes."""
PAUSE = 0.25
"""Seconds between two events of all followed objects together, however often these are written."""
REFUSED = 60.0
"""Seconds until the right is tried again."""
RIGHTS = "deploy/rbac-certificates.yaml"
_WATCH = {"resourceVersion": "0", "timeoutSeconds": "90"}
"""Lists from the API's cache before the first event. Bookmarks with that need newer storage: so each watch ends before
its silence could mean a broken connection.
"""
_METADATA = "PartialObjectMetadata"
_ACCEPT = f"application/json;as={_METADATA};g=meta.k8s.io;v=v1"


class _Follower(Struct):
    """One that is followed, or tried to be."""

    thread: SupervisedThread | None = None
    feed: Feed | None = None
    is_open: bool = False
    is_refused: bool = False
    is_other: bool = False
    """Since it was asked for."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.stopped.set()
        if self.thread:
            self.thread.stop()
        if feed := self.feed:
            feed.cut()


class FollowedNames:
    """Calls `wake` from its threads whenever one may be another."""

    def __init__(self, how: Follow, wake: Callable[[], None]) -> None:
        self._cluster, self._access, self._changed, self._wake = how.cluster, how.access, how.changed, wake
        self._lock = threading.Lock()
        self._is_over = False
        self._followers: dict[Reference, _Follower] = {}

    def follow(self, named: Collection[Reference]) -> None:
        """Follow these and no others, up to the limit; what is followed already keeps its place."""
        with self._lock:
            wanted = set() if self._is_over else set(named)
            removed = [self._followers.pop(reference) for reference in self._followers.keys() - wanted]
            for reference in sorted(wanted - self._followers.keys())[: MAX - len(self._followers)]:
                self._followers[reference] = self._started(reference)
        for follower in removed:
            follower.stop()

    def stop(self) -> None:
        """Follow nothing any more, and refuse later requests."""
        self._is_over = True
        self.follow(())

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        for follower in tuple(self._followers.values()):
            if feed := follower.feed:
                feed.cut_if_overdue(time.monotonic())

    def due(self, named: Iterable[Reference], *, retry: bool) -> frozenset[Reference]:
        """Return references that may have changed since they were read; with `retry` also all that can't be watched."""
        return frozenset(reference for reference in named if self._is_due(self._followers.get(reference), retry=retry))

    @staticmethod
    def _is_due(existing: _Follower | None, *, retry: bool) -> bool:
        if existing and existing.is_other:
            existing.is_other = False  # before it is read: what changes from now on is another time
            return True
        return retry and not (existing and existing.is_open)

    def hints(self) -> tuple[str, ...]:
        """Tell how changes would be seen at once, where a right is missing."""
        refused = min(
            (reference for reference, existing in tuple(self._followers.items()) if existing.is_refused), default=None
        )
        consequence = "is read every 30 s only, as local-lb may not watch it; to have its changes at once"
        requested = f"bind the ClusterRole local-lb-certificates of {RIGHTS} in its namespace"
        return (f"source {self._cluster}: {refused.kind} {refused.key} {consequence}, {requested}",) if refused else ()

    def _started(self, named: Reference) -> _Follower:
        follower = _Follower()
        follower.thread = SupervisedThread(
            Task.FOLLOWER,
            f"{self._cluster} {named.kind} {named.key}",
            partial(self._run, named, follower),
            subject=self._cluster,
            stopped=follower.stopped,
        )
        follower.thread.start()
        return follower

    def _run(self, named: Reference, follower: _Follower) -> None:
        backoff = Backoff(RETRY_DELAY)
        while not follower.stopped.wait(backoff.wait(time.monotonic())):
            try:
                with closing(_NameFeed(self._access, named)) as feed:
                    follower.feed = feed
                    for event in feed.watch(""):
                        if follower.stopped.is_set():
                            return
                        if event.type == OPENED:
                            backoff = backoff.succeeded(time.monotonic())
                            follower.is_open = True
                            self._note(follower, is_refused=False)
                        if event.type != BOOKMARK:
                            follower.is_other = True  # or may have gone before the watch began
                            self._wake()
                        if event.type != OPENED:
                            follower.stopped.wait(PAUSE * len(self._followers))
                idle = backoff.is_idle(time.monotonic())
                backoff = Backoff(RETRY_DELAY) if idle else backoff.failed(time.monotonic(), jitter())
            except (KubeError, ExpiredError) as error:
                backoff = backoff.failed(time.monotonic(), jitter())
                if isinstance(error, ForbiddenError):
                    follower.is_open = False
                    self._note(follower, is_refused=True)
                    follower.stopped.wait(REFUSED)
            finally:
                follower.is_open = False

    def _note(self, follower: _Follower, *, is_refused: bool) -> None:
        """Set whether watching is refused, and report a change of it."""
        before, follower.is_refused = follower.is_refused, is_refused
        if before != is_refused:
            self._changed()


class _NameFeed(Feed):
    """A feed of one object's metadata; its watch begins with the existing object."""

    def __init__(self, access: Access, named: Reference) -> None:
        plural = "secrets" if named.kind == SECRET else "configmaps"
        super().__init__(access, _METADATA, ("meta.k8s.io/v1", f"/api/v1/namespaces/{named.key.namespace}/{plural}"))
        self._client.headers["accept"] = _ACCEPT
        self._one = {"fieldSelector": f"metadata.name={named.key.name}"}

    def _watching(self, version: str) -> Mapping[str, str]:
        del version
        return {**_WATCH, **self._one}
