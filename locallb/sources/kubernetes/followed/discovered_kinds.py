"""Informers of kinds that a cluster may lack: discovered once, or at intervals while they are followed.

The subclass decides in stages which of the existing kinds it needs. A failed request is reported, and the last answer
counts. Not here: how a kind is followed (`kinds`), and what the objects are for.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing

from msgspec import Struct
from msgspec.structs import replace

from locallb.kubernetes.access.errors import KubeError, TransientKubeError
from locallb.kubernetes.api.feed import Feed, Place
from locallb.kubernetes.watch_pace import WatchPace
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed.kinds import Follow, FollowedKinds
from locallb.sources.kubernetes.followed.objects import Fault, lasting
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

EVERY = 30.0
"""Seconds between two times that a cluster is asked for its kinds."""
QUERIED = Pace(first=2.0, longest=EVERY, floor=1.0, idle=EVERY)


class Question(Struct, frozen=True):
    """A request for the kinds of one subject that a cluster has."""

    subject: str
    connect: Callable[[Access], Feed]
    places: Callable[[Feed], Mapping[str, Place]]
    """Returns where each kind that there is can be listed."""

    def ask(self, access: Access) -> Mapping[str, Place]:
        """Ask once. Raises KubeError."""
        with closing(self.connect(access)) as asking:
            return self.places(asking)


class DiscoveredKinds(ABC):
    """Discovered kinds of one cluster, requested and followed by threads until stopped."""

    def __init__(self, question: Question, how: Follow) -> None:
        """Prepare it; `how.changed` is called from its threads whenever something is different."""
        self.places: Mapping[str, Place] | None = None
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
        self._tempos: dict[str, WatchPace] = {}
        """Prepare without starting threads; `how.changed` is called from its threads on each change."""
        self._requested = how.tempos.get(question.subject, WatchPace(Backoff(QUERIED))).lists
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

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Follow it no more."""
        self._thread.stop()
        self._wake.set()
        if asking := self._asking:
            asking.cut()
        with self._lock:
            stages, self._stages = self._stages, {}
        for stage in stages.values():
            self._tempos |= stage.tempos()
            stage.stop()

    def wake(self) -> None:
        """Wake the thread that adjusts what is followed: other kinds may be needed."""
        self._wake.set()

    def tempos(self) -> Mapping[str, WatchPace]:
        """Return how often a new follower in its place may ask."""
        for stage in self.running():
            self._tempos |= stage.tempos()
        return {**self._tempos, self._question.subject: WatchPace(self._requested.expedited(time.monotonic()))}

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        if asking := self._asking:
            asking.cut_if_overdue(time.monotonic())
        for stage in self.running():
            stage.follow_up()

    def running(self, *stages: str) -> list[FollowedKinds]:
        """Return what is followed, all or in these stages."""
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
            self._tempos |= running.tempos() if running else {}
            if (running.how.places if running else {}) == how.places or self._stopped.is_set():
                return
            self._stages.pop(stage, None)
            if how.places:
                self._stages[stage] = FollowedKinds(replace(how, tempos={**self.how.tempos, **self._tempos}))
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
                places = self._question.places(asking)
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
