"""Single Secrets and ConfigMaps of a cluster, read and watched by name; kept are digests and authorities' certificates.

Of a Secret only a digest leaves this module, of a ConfigMap only certificates of authorities. One that can't be read
delays no other: it counts as last read, and is retried at growing intervals. One watch for each, of its metadata alone,
says only that it changed, so that no key is transferred; the right to watch is optional: an object that may not be
watched, or exceeds the limit, is read at intervals. Not here: which may be read (`gateway.kinds`, `ingress.parsing`),
and reading a key when a proxy's certificates are written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from locallb.gateway.kinds import CONFIG_MAP, SECRET
from locallb.gateway.parsing import BUNDLE_REFERENCE, SECRET_REFERENCE, parse_referred
from locallb.kubernetes.answers import BOOKMARK
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.feed import OPENED, ExpiredError, Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, RefusedError
from locallb.kubernetes.relevant import Document
from locallb.kubernetes.tls_parsing import listed_authorities
from locallb.model.gateway_objects import Named, Reference
from locallb.model.gateway_of_cluster import ApiObject
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.configuration import TYPE, certificate_summary
from locallb.sources.kubernetes.informers import Fault, Follow
from locallb.threads import SupervisedThread, Task, jitter

KINDS = (SECRET, CONFIG_MAP)
RETRY_DELAY = Pace(first=2.0, longest=60.0, floor=1.0)
"""Of one that can't be read."""
FIRST, LATER = 0.2, 1.0
"""Seconds without any request after the first failure of an object, and after a further one; they add up in a pass."""
MAX = 1.0
"""Seconds of that after which a pass ends: no more is refused in one."""


class _Kind(Struct, frozen=True):
    """How objects of a kind are read, and the part of them that is kept."""

    read: Callable[[Access, str, str], Mapping[str, object] | None]
    stated: Callable[[Document], Mapping[str, str | bool] | Mapping[str, str]]
    mark: Document
    role: str
    """The ClusterRole that gives the right."""


class _Failure(NamedTuple):
    error: KubeError
    backoff: Backoff

    def is_due(self) -> bool:
        return self.backoff.is_due(time.monotonic())


class NamedObjects(Struct):
    """Stand-ins of the named objects, as one thread read them last; readable from any thread."""

    access: Access
    _read: Mapping[Reference, Document | None] = field(default_factory=dict)
    _failures: Mapping[Reference, _Failure] = field(default_factory=dict)
    _waiting: frozenset[Reference] = frozenset()
    _not_before: float = -math.inf
    """Time of the next request: failures cost time, so many failing objects cause no load."""

    def read(self, named: Collection[Reference], *, retry: Collection[Reference] = ()) -> None:
        """Read references that are new or in `retry`, until too many fail; unread ones stay as they were, and due."""
        documents = {reference: self._read[reference] for reference in named if reference in self._read}
        failures = {reference: self._failures[reference] for reference in named if reference in self._failures}
        waiting = {*self._waiting.union(retry).intersection(named), *failures, *(set(named) - documents.keys())}
        waiting = {reference for reference in waiting if reference not in failures or failures[reference].is_due()}
        if time.monotonic() >= self._not_before:
            self._not_before = self._ask(waiting, documents, failures) + time.monotonic()
        self._read, self._failures, self._waiting = documents, failures, frozenset(waiting)

    def _ask(
        self, waiting: set[Reference], documents: dict[Reference, Document | None], failures: dict[Reference, _Failure]
    ) -> float:
        """Read the waiting objects, failed ones last and in turn. Returns the seconds that failures cost."""
        cost = 0.0
        for reference in sorted(waiting, key=lambda key: (_turn(failures.get(key)), key)):
            waiting.discard(reference)
            try:
                documents[reference] = stand_in(self.access, reference)
                failures.pop(reference, None)
            except KubeError as error:
                cost += LATER if reference in failures else FIRST
                failures[reference] = _failed(error, failures.get(reference))
                if not isinstance(error, RefusedError) or cost >= MAX:
                    break
        return cost

    @property
    def due(self) -> float:
        """Return the time of the next read of a failed or unread object; infinite if none remains."""
        at = min((failure.backoff.not_before for failure in self._failures.values()), default=math.inf)
        return max(self._not_before, -math.inf if self._waiting else at)

    @property
    def unreadable(self) -> Collection[Reference]:
        return self._failures.keys()

    @property
    def failure(self) -> Fault:
        """Return the fault of an unreadable object; empty if all can be read."""
        return next((Fault().then(failure.error) for failure in self._failures.values()), Fault())

    def know(self, named: Collection[Reference]) -> bool:
        return self._read.keys() >= set(named)

    def existing(self, named: Iterable[Reference], last: Mapping[Reference, ApiObject]) -> Iterator[ApiObject]:
        """Return these as they were read, else as they were in `last`, else why they can't be read."""
        read, failures = self._read, self._failures
        for reference in sorted(named):
            if reference not in read and reference in last:
                yield last[reference]
                continue
            instead = unreadable(reference, failures[reference].error) if reference in failures else None
            if referred := parse_referred(read.get(reference, instead) or {}):
                yield referred

    def objects(self) -> list[Document]:
        """Return the stand-ins of existing objects."""
        read = self._read
        return [document for reference in sorted(read) if (document := read[reference]) is not None]


def _turn(failure: _Failure | None) -> float:
    return failure.backoff.not_before if failure else -math.inf


def _failed(error: KubeError, before: _Failure | None) -> _Failure:
    backoff = before.backoff if before else Backoff(RETRY_DELAY)
    same = before and type(before.error) is type(error)
    return _Failure(before.error if before and same else error, backoff.failed(time.monotonic(), jitter()))


def stand_in(access: Access, named: Reference) -> Document | None:
    """Return the stand-in of an object; None if it doesn't exist. Raises KubeError if it can't be read."""
    kind = _KINDS[named.kind]
    try:
        live = kind.read(access, *named.key)
    except KubeError as error:
        why = _missing(kind) if isinstance(error, RefusedError) else str(error)
        raise type(error)(f"{named.kind} {named.key}: {why}") from None
    if live is None:
        return None
    document: dict[object, object] = {key: live[key] for key in live}
    return _made(named.key, kind.stated(document), kind.mark)


def unreadable(named: Reference, error: KubeError) -> Document:
    """Return the stand-in of an object that can't be read, and never was."""
    kind = _KINDS[named.kind]
    why = "it can't be read; a notice about its source tells why"
    return _made(named.key, {"problem": _missing(kind) if isinstance(error, RefusedError) else why}, kind.mark)


def _missing(kind: _Kind) -> str:
    return f"local-lb may not read it; bind the ClusterRole {kind.role} of deploy/ in its namespace"


def _secret_summary(document: Document) -> Mapping[str, str | bool]:
    if document.get("type") != TYPE:
        return {"problem": f"its type isn't {TYPE}; make one of that type"}
    return certificate_summary(document)


def _made(named: Named, stated: object, mark: Document) -> Document:
    metadata = {"name": named.name, "namespace": named.namespace}
    reference: dict[object, object] = {"metadata": metadata, "spec": stated, **mark}
    return reference


_KINDS = {
    SECRET: _Kind(live_object.secret, _secret_summary, SECRET_REFERENCE, "local-lb-secrets"),
    CONFIG_MAP: _Kind(live_object.config_map, listed_authorities, BUNDLE_REFERENCE, "local-lb-authorities"),
}


MAX_FOLLOWED = 20
"""Names that are followed: each takes a connection and a thread."""
WATCH_RETRY_DELAY = Pace(first=1.0, longest=30.0, floor=0.5, idle=10.0)
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
            for reference in sorted(wanted - self._followers.keys())[: MAX_FOLLOWED - len(self._followers)]:
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
        backoff = Backoff(WATCH_RETRY_DELAY)
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
                backoff = Backoff(WATCH_RETRY_DELAY) if idle else backoff.failed(time.monotonic(), jitter())
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
