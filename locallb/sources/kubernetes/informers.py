"""Informers of some kinds of a cluster: their current objects by lists and watches, each parsed once.

One thread a kind. When a feed breaks, known objects stay and count as broken until the feed is back; a feed that the
server has forgotten starts again with a list. Kinds that a cluster may lack are discovered once, or at intervals while
they are followed. A failed discovery is reported, and the last answer counts.

Not here: which kinds (`followed_cluster`), the pace (`kubernetes.answers`), and reactions to a change.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.kubernetes.answers import BOOKMARK, DELETED, Object, WatchPace
from locallb.kubernetes.api.feed import OPENED, ApiPath, Event, ExpiredError, Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, PermanentKubeError, TransientKubeError
from locallb.kubernetes.events import Identity
from locallb.kubernetes.object_parsing import Parsed
from locallb.kubernetes.relevant import Document
from locallb.model.identities import ClusterName
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.write_hints import WriteHints
from locallb.sources.readings import slim
from locallb.threads import SupervisedThread, Task, jitter

PASSING = 30.0
"""Seconds for which a right may be missing until what was read before counts no more."""


class Fault(Struct, frozen=True):
    """The reason that known objects may be old; empty if they are current."""

    sentence: str = ""
    error: type[KubeError] = KubeError

    def __bool__(self) -> bool:
        return bool(self.sentence)

    @property
    def is_refusal(self) -> bool:
        """Return whether it lasts until a user changes something, such as a right."""
        return issubclass(self.error, PermanentKubeError)

    def then(self, error: KubeError) -> Fault:
        """Return the fault after another error: an outage keeps its first sentence, whatever later attempts say."""
        return self if self and self.error is type(error) else Fault(str(error), type(error))


def lasting(reported: Fault, faults: Iterable[Fault]) -> Fault:
    """Return the fault to report: the same one for as long as any of its kind goes on, whichever ends first."""
    present = [fault for fault in faults if fault]
    if any(fault.error is reported.error for fault in present) and reported:
        return reported
    return present[0] if present else Fault()


class FollowedObjects(Struct):
    """Objects of one kind, as they are and as they are understood."""

    objects: dict[Identity, Document] = field(default_factory=dict)
    parsed: dict[Identity, Parsed] = field(default_factory=dict)
    listed: bool = False
    fault: Fault = field(default_factory=Fault)
    refused_since: float | None = None
    """When the right to read them was first missing; None while it isn't."""
    _order: tuple[Identity, ...] = ()

    def put(self, identity: Identity, document: Document | None, parsed: Parsed) -> None:
        """Store an object and its parse result; None removes it."""
        if document is None:
            self.objects.pop(identity, None)
            self.parsed.pop(identity, None)
        else:
            self.objects[identity], self.parsed[identity] = document, parsed

    def order(self) -> tuple[Identity, ...]:
        """Return the objects' names, sorted."""
        if len(self._order) != len(self.parsed) or any(identity not in self.parsed for identity in self._order):
            self._order = tuple(sorted(self.parsed))
        return self._order

    def fail(self, error: KubeError, now: float) -> bool:
        """Note why they can't be followed; return whether that may make a difference to readers."""
        before, self.fault = self.fault, self.fault.then(error)
        self.refused_since = (self.refused_since or now) if isinstance(error, ForbiddenError) else None
        return self.fault != before or self.is_forbidden(now)

    def mend(self) -> bool:
        """Note that they are followed; return whether they weren't."""
        was, self.fault, self.refused_since = bool(self.fault), Fault(), None
        return was

    def is_forbidden(self, now: float) -> bool:
        """Return whether they may not be read, and that is no passing whim of a server that has just started."""
        return self.refused_since is not None and (not self.listed or now - self.refused_since > PASSING)


NO_PACES: Mapping[str, WatchPace] = MappingProxyType({})
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
    places: Mapping[str, ApiPath]
    understood: Callable[[Document], Parsed]
    changed: Callable[[], None]
    """Called from any thread whenever something relevant is different."""
    writers: WriteHints
    concerns: Callable[[Document | None, Document | None], bool] = no_more
    """Returns whether a change is relevant that makes no difference to what is understood."""
    paces: Mapping[str, WatchPace] = field(default_factory=lambda: NO_PACES)
    refused: float = 0.0
    """Seconds more until what was refused is asked for again."""


class FollowedKinds:
    """Informers of several kinds of one cluster; calls `changed` from their threads when something relevant differs."""

    def __init__(self, how: Follow) -> None:
        self.how = how
        self._lock = threading.Lock()
        self._existing = {kind: FollowedObjects() for kind in how.places}
        self._reported = Fault()
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._feeds: dict[str, Feed] = {}
        self._paces = {kind: how.paces.get(kind, WatchPace()) for kind in how.places}
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

    def paces(self) -> Mapping[str, WatchPace]:
        """Return the paces for a replacing follower, with minimal delays: the cause of failures may be gone."""
        now = time.monotonic()
        return {kind: pace.expedited(now) for kind, pace in self._paces.items()}

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
        while not self._stopped.wait(self._paces[kind].lists.wait(time.monotonic())):
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
        self._paces[kind] = note(self._paces[kind], time.monotonic(), jitter())

    def _run(self, kind: str, feed: Feed) -> None:
        """List, then watch for as long as the list is good for."""
        objects, version = feed.list(self._stopped.wait)
        self._replace(kind, objects)
        listed = time.monotonic()
        while not self._stopped.wait(self._paces[kind].watches.wait(time.monotonic())):
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
            self._paces[kind] = self._paces[kind].opened(time.monotonic())
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


EVERY = 30.0
"""Seconds between two times that a cluster is asked for its kinds."""
QUERIED = Pace(first=2.0, longest=EVERY, floor=1.0, idle=EVERY)


class Question(Struct, frozen=True):
    """A request for the kinds of one subject that a cluster has."""

    subject: str
    connect: Callable[[Access], Feed]
    places: Callable[[Feed], Mapping[str, ApiPath]]
    """Returns where each kind that there is can be listed."""

    def ask(self, access: Access) -> Mapping[str, ApiPath]:
        """Ask once. Raises KubeError."""
        with closing(self.connect(access)) as asking:
            return self.places(asking)


class DiscoveredKinds(ABC):
    """Discovered kinds of one cluster, requested and followed by threads until stopped.

    The subclass decides in stages which of the existing kinds it needs.
    """

    def __init__(self, question: Question, how: Follow) -> None:
        """Prepare it; `how.changed` is called from its threads whenever something is different."""
        self.places: Mapping[str, ApiPath] | None = None
        """Served kinds; None until the cluster has answered."""
        self.failure = Fault()
        """The reason that they may be old."""
        self._reported = Fault()
        self.how = how
        self._question = question
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._stages: dict[str, FollowedKinds] = {}
        self._paces: dict[str, WatchPace] = {}
        self._requested = how.paces.get(question.subject, WatchPace(Backoff(QUERIED))).lists
        self._due = self._requested.not_before
        self._asking: Feed | None = None
        self._thread = SupervisedThread(
            Task.FOLLOWER,
            f"{how.cluster} {question.subject}",
            self._run,
            subject=how.cluster,
            failed=lambda why: self._fail(TransientKubeError(why)),
            stopped=self._stopped,
        )

    @abstractmethod
    def adjust(self, *, requested: bool) -> float:
        """Call `follow` for each stage; return when to be called again at the latest.

        Called after the cluster was asked, by `requested`, and after `wake`; always from the same thread.
        """

    def ask(self, asking: Feed) -> Mapping[str, ApiPath]:
        """Ask the cluster which kinds it has, in the thread of `adjust`. Raises KubeError."""
        return self._question.places(asking)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        self._wake.set()
        if asking := self._asking:
            asking.cut()
        with self._lock:
            stages, self._stages = self._stages, {}
        for stage in stages.values():
            self._paces |= stage.paces()
            stage.stop()

    def wake(self) -> None:
        """Wake the thread that adjusts what is followed: other kinds may be needed."""
        self._wake.set()

    def paces(self) -> Mapping[str, WatchPace]:
        """Return how often a new follower in its place may ask."""
        for stage in self.running():
            self._paces |= stage.paces()
        return {**self._paces, self._question.subject: WatchPace(self._requested.expedited(time.monotonic()))}

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        if asking := self._asking:
            asking.cut_if_overdue(time.monotonic())
        for stage in self.running():
            stage.follow_up()

    def running(self, *stages: str) -> list[FollowedKinds]:
        with self._lock:
            return [kinds for name, kinds in self._stages.items() if not stages or name in stages]

    def fault(self) -> Fault:
        """Return why what is known may be old."""
        self._reported = lasting(self._reported, (self.failure, *(stage.fault() for stage in self.running())))
        return self._reported

    def follow(self, stage: str, how: Follow) -> None:
        """Follow in a stage the kinds that `how` names from now on, and no others."""
        with self._lock:
            running = self._stages.get(stage)
            self._paces |= running.paces() if running else {}
            if (running.how.places if running else {}) == how.places or self._stopped.is_set():
                return
            self._stages.pop(stage, None)
            if how.places:
                self._stages[stage] = FollowedKinds(replace(how, paces={**self.how.paces, **self._paces}))
        if running:
            running.stop()
            how.writers.remaining(running.how.places.keys() - how.places.keys())
        self.how.changed()

    def _run(self) -> None:
        """Ask for the kinds now and again, and follow what is needed whenever that may be something else."""
        while not self._stopped.is_set():
            is_due = time.monotonic() >= self._due
            if is_due:
                self._inspect()
            retry = self.adjust(requested=is_due)
            self._wake.wait(max(0.0, min(self._due, retry) - time.monotonic()))
            self._wake.clear()  # not before: a stop in between would be slept through

    def _inspect(self) -> None:
        """Ask the cluster which kinds it has."""
        self._requested = self._requested.succeeded(time.monotonic())  # also if this is cut off: others may ask instead
        try:
            with closing(self._question.connect(self.how.access)) as asking:
                self._asking = asking
                if self._stopped.is_set():
                    return
                places = self.ask(asking)
        except KubeError as error:
            self._fail(error)
            self._requested = self._requested.failed(time.monotonic(), jitter())
            self._due = self._requested.not_before
            return
        former_places, former_failure = self.places, self.failure
        self.places, self.failure = places, Fault()
        self._due = time.monotonic() + EVERY
        if former_failure or (former_places is None and places):
            self.how.changed()

    def _fail(self, error: KubeError) -> None:
        before, self.failure = self.failure, self.failure.then(error)
        if self.failure != before and not self._stopped.is_set():
            self.how.changed()
