"""Informers of some kinds: their current objects by lists and watches, each parsed once.

One thread a kind. When a feed breaks, known objects stay and count as broken until the feed is back; a feed that the
server has forgotten starts again with a list. Not here: which kinds (`followed_cluster`, `followed_gateways`), the
pace (`watch_pace`), and reactions to a change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.kubernetes.access.errors import KubeError, TransientKubeError
from locallb.kubernetes.answers import BOOKMARK, DELETED, Object
from locallb.kubernetes.api.feed import OPENED, Event, ExpiredError, Feed, Place
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing.objects import Parsed
from locallb.kubernetes.parsing.relevant import Document
from locallb.kubernetes.watch_pace import WatchPace
from locallb.model.identities import ClusterName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed.objects import Fault, FollowedObjects, lasting
from locallb.sources.kubernetes.followed.write_hints import WriteHints
from locallb.sources.readings import slim
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

NO_OWNER: Mapping[str, WatchPace] = MappingProxyType({})
"""No earlier follower."""
_SERVICE = "Service"
_RELIST = 600.0
"""Seconds after which everything is listed again, whatever the watch said."""


def no_more(_before: Document | None, _after: Document | None) -> bool:
    """Return that a change is of no other concern."""
    return False


class Follow(Struct, frozen=True):
    """The kinds to follow, and the callback for changes."""

    cluster: ClusterName
    access: Access
    places: Mapping[str, Place]
    understood: Callable[[Document], Parsed]
    changed: Callable[[], None]
    """Called from any thread whenever something relevant is different."""
    writers: WriteHints
    concerns: Callable[[Document | None, Document | None], bool] = no_more
    """Returns whether a change is relevant that makes no difference to what is understood."""
    tempos: Mapping[str, WatchPace] = field(default_factory=lambda: NO_OWNER)
    refused: float = 0.0
    """Seconds more until what was refused is asked for again."""


class FollowedKinds:
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(self, how: Follow) -> None:
        self.how = how
        self._lock = threading.Lock()
        self._existing = {kind: FollowedObjects() for kind in how.places}
        self._reported = Fault()
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._feeds: dict[str, Feed] = {}
        self._tempos = {kind: how.tempos.get(kind, WatchPace()) for kind in how.places}
        self._threads = [self._follower(kind) for kind in how.places]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Follow it no more: threads and connections end as soon as they see it, also in the midst of an answer."""
        for thread in self._threads:
            thread.stop()
        for feed in tuple(self._feeds.values()):
            feed.cut()

    def await_answer(self, seconds: float) -> None:
        """Wait until a watch of Services is open, or it is known why not; no longer than this."""
        self._answered.wait(seconds)

    def tempos(self) -> Mapping[str, WatchPace]:
        """Return the paces for a replacing follower, with minimal delays: the cause of failures may be gone."""
        now = time.monotonic()
        return {kind: tempo.expedited(now) for kind, tempo in self._tempos.items()}

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        now = time.monotonic()
        for feed in tuple(self._feeds.values()):
            feed.cut_if_overdue(now)

    def ready(self) -> bool:
        """Return whether everything was listed once."""
        return len(self.listed()) == len(self.how.places)

    def listed(self) -> frozenset[str]:
        """Return the kinds that were listed once."""
        with self._lock:
            return frozenset(kind for kind, existing in self._existing.items() if existing.listed)

    def broken(self) -> str:
        """Return the reason that known objects may be old; empty if they are current."""
        return self.fault().sentence

    def fault(self) -> Fault:
        """Return why what is known may be old."""
        with self._lock:
            self._reported = lasting(self._reported, (existing.fault for existing in self._existing.values()))
            return self._reported

    def forbidden(self) -> bool:
        """Return whether reading a kind has been forbidden for so long that nothing of it is known."""
        with self._lock:
            return any(existing.is_forbidden(time.monotonic()) for existing in self._existing.values())

    def parts(self) -> list[Parsed]:
        """Return what is understood, object by object."""
        with self._lock:
            return [existing.parsed[name] for existing in self._existing.values() for name in existing.order()]

    def objects(self, *kinds: str) -> tuple[Document, ...]:
        """Return the objects themselves, all or of these kinds."""
        with self._lock:
            wanted = [existing for kind, existing in self._existing.items() if not kinds or kind in kinds]
            return tuple(existing.objects[name] for existing in wanted for name in existing.order())

    def _follower(self, kind: str) -> SupervisedThread:
        return SupervisedThread(
            Task.FOLLOWER,
            f"{self.how.cluster} {kind}",
            partial(self._follow, kind),
            subject=self.how.cluster,
            failed=lambda why: self._break(kind, TransientKubeError(why)),
            stopped=self._stopped,
        )

    def _follow(self, kind: str) -> None:
        """List and watch one kind until stopped."""
        while not self._stopped.wait(self._tempos[kind].lists.wait(time.monotonic())):
            try:
                with closing(Feed(self.how.access, kind, self.how.places[kind])) as feed:
                    self._feeds[kind] = feed
                    self._run(kind, feed)
            except ExpiredError:
                self._pace(kind, WatchPace.broken)
            except KubeError as error:
                self._pace(kind, WatchPace.broken)
                self._break(kind, error)
                if self._existing[kind].is_forbidden(time.monotonic()):
                    self._stopped.wait(self.how.refused)

    def _pace(self, kind: str, note: Callable[[WatchPace, float, float], WatchPace]) -> None:
        self._tempos[kind] = note(self._tempos[kind], time.monotonic(), jitter())

    def _run(self, kind: str, feed: Feed) -> None:
        """List, then watch for as long as the list is good for."""
        objects, version = feed.list(self._stopped.wait)
        self._replace(kind, objects)
        listed = time.monotonic()
        while not self._stopped.wait(self._tempos[kind].watches.wait(time.monotonic())):
            if time.monotonic() - listed > _RELIST:
                return
            with self.how.writers.watching(kind):
                for event in feed.watch(version):
                    if self._stopped.is_set():
                        return
                    version = event.version
                    self._take(kind, event)
            self._pace(kind, WatchPace.ended)

    def _break(self, kind: str, error: KubeError) -> None:
        if self._stopped.is_set():
            return
        with self._lock:
            new = self._existing[kind].fail(error, time.monotonic())
        self._answered.set()
        if new:
            self.how.changed()

    def _mend(self, kind: str) -> None:
        with self._lock:
            was = self._existing[kind].mend()
        if was:
            self.how.changed()

    def _replace(self, kind: str, objects: Iterable[Object]) -> None:
        fresh = {Identity.of(document): document for document in map(_slim, objects)}
        parsed = {identity: self.how.understood(document) for identity, document in fresh.items()}
        self.how.writers.listed(kind, fresh, parsed.values())
        with self._lock:
            existing = self._existing[kind]
            different = not existing.listed or parsed != existing.parsed or self._concern(existing.objects, fresh)
            self._existing[kind] = replace(existing, objects=fresh, parsed=parsed, listed=True)
        if different:
            self.how.changed()

    def _take(self, kind: str, event: Event) -> None:
        if event.type == OPENED:
            self._tempos[kind] = self._tempos[kind].opened(time.monotonic())
            self._mend(kind)
            self.how.writers.opened(kind)
            if kind == _SERVICE:
                self._answered.set()
        if event.type in {OPENED, BOOKMARK}:
            return
        document = _slim(event.object)
        identity = Identity.of(document)
        after, parsed = (None, Parsed()) if event.type == DELETED else (document, self.how.understood(document))
        existing = self._existing[kind]  # which this thread alone changes
        before, was = existing.parsed.get(identity), existing.objects.get(identity)
        self.how.writers.changed(identity, after)
        if after:
            self.how.writers.wanted(before or Parsed(), parsed)
        with self._lock:
            existing.put(identity, after, parsed)
            if before is None:
                self.how.writers.grown(kind, existing.parsed.values())
        if parsed != (before or Parsed()) or self.how.concerns(was, after):
            self.how.changed()

    def _concern(self, before: Mapping[Identity, Document], after: Mapping[Identity, Document]) -> bool:
        return any(self.how.concerns(before.get(name), after.get(name)) for name in before.keys() | after.keys())


def _slim(item: Object) -> Document:
    document: dict[object, object] = {key: item[key] for key in item}
    return slim(document)
