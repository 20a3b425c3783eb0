"""What a cluster has of Gateway API or of Ingresses, followed as far as something of ours needs it, in stages.

A cluster is asked now and again which of the kinds there are to read. Classes are followed where there are any, what is
of a class where one is ours, and all else, with the Secrets and ConfigMaps that are named, where such an object is.
What isn't known counts as last read, whatever the reason. Not here: how a kind is followed (`followed_kinds`), and
which (`routed`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from locallb.gateway.needs import NAMESPACE, SERVICE, by_kind, kind_of
from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.api.feed import Feed, Place
from locallb.kubernetes.parsing.gateway_api import parse_gateway_api
from locallb.kubernetes.parsing.objects import Said
from locallb.kubernetes.parsing.relevant import Document
from locallb.kubernetes.watch_pace import Tempo
from locallb.model.gateway.objects import Reference
from locallb.model.gateway.of_cluster import ApiObject, AuthorityBundle, ObjectOfCluster, TlsSecret
from locallb.model.identities import ObjectKey
from locallb.model.memory import Memory
from locallb.model.pacing import Backoff, Pace
from locallb.sources.kubernetes.followed_kinds import Follow, FollowedKinds, no_more
from locallb.sources.kubernetes.gateway_listing import objects_in, parsed, refer_alike
from locallb.sources.kubernetes.named_objects import KINDS, NamedObjects
from locallb.sources.kubernetes.routed import Routed
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

OTHERS = "others"
"""The stage of all that is neither a class nor of one."""
EVERY = 30.0
"""Seconds between two times that a cluster is asked for its kinds, and for each object that is named."""
REFUSED = 60.0
"""Seconds until a kind that may not be read is asked for again."""
ASKED = Pace(first=2.0, longest=EVERY, floor=1.0, calm=EVERY)


class FollowedGateways:
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(self, routed: Routed, how: Follow) -> None:
        """Follow it as `how` says, whichever kinds it names."""
        self._routed, self._how = routed, how
        self._cluster, self._access, self._changed = how.cluster, how.access, how.changed
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._places: Mapping[str, Place] | None = None
        self._stages: dict[str, FollowedKinds] = {}
        self._named = NamedObjects(how.access)
        self._trouble = ""
        self._last: tuple[ObjectOfCluster, ...] | None = None
        self._serves = False
        self._asking: Feed | None = None
        self._tempos = dict(how.tempos)
        self._asked = how.tempos[routed.group].lists if routed.group in how.tempos else Backoff(ASKED)
        self._due = self._asked.not_before
        self._services: Memory[Any] = Memory()
        self._thread = SupervisedThread(
            Task.FOLLOWER,
            f"{how.cluster} {routed.name}",
            self._run,
            subject=how.cluster,
            failed=self._fail,
            stopped=self._stopped,
        )
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

    def tempos(self) -> Mapping[str, Tempo]:
        """Return how often who follows it in another way from now on may ask."""
        for stage in self._running():
            self._tempos |= stage.tempos()
        return {**self._tempos, self._routed.group: Tempo(self._asked.hurried(time.monotonic()))}

    def look_after(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        if asking := self._asking:
            asking.cut_if_overdue(time.monotonic())
        for stage in self._running():
            stage.look_after()

    def need(self, before: Document | None, after: Document | None) -> bool:
        """Return whether any may be served otherwise for a change of a Service."""
        return self._serves and not refer_alike(before, after)

    def notices(self) -> tuple[str, ...]:
        """Return why what is known may be old, if it may; nothing where the cluster has none of the kinds."""
        if self._places == {}:
            return self._routed.notices(self._cluster, self._routed.refusal if self._last else "")
        broken = (why for stage in self._running() if (why := stage.broken()))
        why = self._trouble or next(broken, self._named.trouble)
        return self._routed.notices(self._cluster, why)

    def parsed(
        self, last: Iterable[ObjectOfCluster], services: Callable[[], Iterable[Document]]
    ) -> tuple[ObjectOfCluster, ...]:
        """Return all that is needed; what isn't known is as it was, at first in `last`. For one thread."""
        known = self._known()
        if self._serves:
            parsed = [parse_gateway_api(self._cluster, one, self._services) for one in services()]
            known[SERVICE] = [one for some in parsed for one in some]
        self._services.evict_unused()
        before = self._routed.of(last) if self._last is None else self._last
        self._last = self._with_named(self._routed.known_or_last(self._places, known, before))
        return self._last

    def _with_named(self, objects: Iterable[ObjectOfCluster]) -> tuple[ObjectOfCluster, ...]:
        """Return the same, with the objects that they name as those are known now."""
        last: dict[Reference, ApiObject] = {}
        others = []
        for one in objects:
            if isinstance(one.object, TlsSecret | AuthorityBundle):
                last.setdefault(Reference("", kind_of(one.object), one.object.key), one.object)
            else:
                others.append(one)
        known = self._named.known(self._routed.named_objects(others), last)
        return (*others, *(ObjectOfCluster(self._cluster, one) for one in known))

    def standings(self) -> tuple[tuple[ObjectKey, Said], ...]:
        """Return what objects say of what is ours to write; nothing of those that may be old."""
        running = [stage for stage in self._running() if not stage.broken()]
        return tuple(said for stage in running for part in stage.parts() for said in part.standings)

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        if self._routed.stages[1] not in self._stages:
            return ()
        return (*(one for stage in self._running() for one in stage.objects()), *self._named.objects())

    def lacks(self) -> frozenset[str]:
        """Return the kinds of which isn't known what there is."""
        known = self._known()
        named = self._routed.named_objects(one for some in known.values() for one in some)
        read = [kind for kind in KINDS if self._named.know([one for one in named if one.kind == kind])]
        missing = frozenset(self._routed.wanted(self._places or (), known)) - {*known, *read, SERVICE}
        everything = self._places is None or not missing.isdisjoint(self._routed.stages)
        return self._routed.kinds | {NAMESPACE, *KINDS} if everything else missing

    def _running(self) -> list[FollowedKinds]:
        with self._lock:
            return list(self._stages.values())

    def _known(self) -> dict[str, list[ObjectOfCluster]]:
        """Return what was listed."""
        running = self._running()
        return by_kind(objects_in(running), [kind for stage in running for kind in stage.listed()])

    def _run(self) -> None:
        """Ask for the kinds now and again, and follow what is needed whenever that may be something else."""
        while not self._stopped.is_set():
            self._wake.clear()
            is_due = time.monotonic() >= self._due
            if is_due:
                self._look()
            self._adjust()
            self._read_named(again=is_due)
            self._wake.wait(max(0.0, min(self._due, self._named.due) - time.monotonic()))

    def _look(self) -> None:
        """Ask the cluster which kinds it has."""
        self._asked = self._asked.succeeded(time.monotonic())  # also if this is cut off: others may ask instead
        try:
            with closing(self._routed.ask(self._access)) as asking:
                self._asking = asking
                if self._stopped.is_set():
                    return
                places = self._routed.places(asking)
        except KubeError as error:
            self._fail(str(error))
            self._asked = self._asked.failed(time.monotonic(), jitter())
            self._due = self._asked.not_before
            return
        was, told = self._places, self._trouble
        self._places, self._trouble = places, ""
        self._due = time.monotonic() + EVERY
        if told or (was is None and places):
            self._changed()

    def _fail(self, why: str) -> None:
        new, self._trouble = not self._trouble, why
        if new and not self._stopped.is_set():
            self._changed()

    def _adjust(self) -> None:
        """Follow what is needed by what is known now, and nothing else."""
        places, stages = {**(self._places or {}), **self._routed.core}, self._routed.stages
        wanted = set(self._routed.wanted(self._places or (), self._known()))
        self._serves = SERVICE in wanted
        for name, kinds in (*((stage, {stage}) for stage in stages), (OTHERS, wanted - set(stages))):
            self._follow(name, {kind: places[kind] for kind in kinds & wanted & places.keys()})

    def _follow(self, name: str, places: Mapping[str, Place]) -> None:
        with self._lock:
            running = self._stages.get(name)
            self._tempos |= running.tempos() if running else {}
            if (running.how.places if running else {}) == places or self._stopped.is_set():
                return
            self._stages.pop(name, None)
            if places:
                how = replace(
                    self._how,
                    places=places,
                    understood=partial(parsed, self._cluster),
                    changed=self._notice,
                    concerns=no_more,
                    tempos=dict(self._tempos),
                    refused=REFUSED,
                )
                self._stages[name] = FollowedKinds(how)
        if running:
            running.stop()
            self._how.writers.left(running.how.places.keys() - places.keys())
        self._changed()

    def _notice(self) -> None:
        self._wake.set()
        self._changed()

    def _read_named(self, *, again: bool) -> None:
        """Read the objects that are named: those that are new, or all."""
        before = self._named.objects(), self._named.unreadable
        self._named.read(self._routed.named_objects(objects_in(self._running())), again=again)
        if (self._named.objects(), self._named.unreadable) != before:
            self._changed()
