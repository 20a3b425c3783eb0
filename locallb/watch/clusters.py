"""A running cluster, followed: what it has now, kept by lists and watches, each object understood once.

One thread a kind. Where a feed breaks, what is known stays and is called stale until the feed is back; a feed that the
server has forgotten starts again with a list. Not here: what a change leads to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from locallb.clients.kube import Object
from locallb.clients.kube_errors import KubeError
from locallb.clients.kube_feed import OPENED, PATHS, Event, ExpiredError, Feed
from locallb.clients.recent import RECENT
from locallb.planning.model import ClusterName
from locallb.planning.parsing import Document, Identity, Parsed, parse_objects
from locallb.planning.snapshot import Access
from locallb.sources.readings import slim
from locallb.watch.schedule import delay

_SERVICE = "Service"
_LONGEST = 3.0
"""Seconds until a cluster that doesn't answer is asked again, at most: it is near, and nobody tells of its return."""
_RELIST = 600.0
"""Seconds after which everything is listed anew, whatever the watch said."""


@dataclass(slots=True)
class _Known:
    """Objects of one kind, as they are and as they are understood."""

    objects: dict[Identity, Document] = field(default_factory=dict)
    parsed: dict[Identity, Parsed] = field(default_factory=dict)
    listed: bool = False
    broken: str = ""
    _order: tuple[Identity, ...] = ()

    def order(self) -> tuple[Identity, ...]:
        """Give the objects' names, sorted."""
        if len(self._order) != len(self.parsed) or any(one not in self.parsed for one in self._order):
            self._order = tuple(sorted(self.parsed))
        return self._order


class FollowedCluster:
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(self, cluster: ClusterName, access: Access, changed: Callable[[], None]) -> None:
        self.cluster = cluster
        self.access = access
        self._changed = changed
        self._lock = threading.Lock()
        self._known = {kind: _Known() for kind in PATHS}
        self._stopped = threading.Event()
        self._feeds: dict[str, Feed] = {}
        for kind in PATHS:
            threading.Thread(target=self._follow, args=(kind,), name=f"{cluster} {kind}", daemon=True).start()

    def stop(self) -> None:
        """Follow it no more."""
        self._stopped.set()
        for feed in tuple(self._feeds.values()):
            feed.close()
        RECENT.forget(self.access)

    def ready(self) -> bool:
        """Tell whether everything was listed once."""
        with self._lock:
            return all(known.listed for known in self._known.values())

    def stale(self) -> str:
        """Say why what is known may be old; empty if it isn't."""
        with self._lock:
            return next((known.broken for known in self._known.values() if known.broken), "")

    def parsed(self) -> Parsed:
        """Give what the cluster has, as far as is known."""
        with self._lock:
            parts = [known.parsed[name] for known in self._known.values() for name in known.order()]
        return Parsed(
            services=tuple(one for part in parts for one in part.services),
            malformed=tuple(one for part in parts for one in part.malformed),
            nodes=tuple(one for part in parts for one in part.nodes),
            slices=tuple(one for part in parts for one in part.slices),
            notices=tuple(one for part in parts for one in part.notices),
            external_ips=frozenset(one for part in parts for one in part.external_ips),
            standings=tuple(one for part in parts for one in part.standings),
        )

    def objects(self) -> tuple[Document, ...]:
        """Give the objects themselves, for the last good reading."""
        with self._lock:
            return tuple(known.objects[name] for known in self._known.values() for name in known.order())

    def _follow(self, kind: str) -> None:
        """List and watch one kind until stopped."""
        failures = 0
        while not self._stopped.is_set():
            try:
                feed = self._feeds[kind] = Feed(self.access, kind)
                try:
                    self._run(kind, feed)
                finally:
                    feed.close()
            except ExpiredError:
                failures = 0
                continue
            except KubeError as error:
                failures = 1 if self._is_well(kind) else failures + 1
                self._break(kind, str(error))
            except RuntimeError:  # the client was closed by `stop`
                return
            self._stopped.wait(min(delay(failures), _LONGEST) if failures else 0)

    def _run(self, kind: str, feed: Feed) -> None:
        """List, then watch for as long as the list is good for."""
        objects, version = feed.list()
        self._replace(kind, objects)
        listed = time.monotonic()
        while not self._stopped.is_set() and time.monotonic() - listed < _RELIST:
            for event in feed.watch(version):
                version = event.version
                self._take(kind, event)
                if self._stopped.is_set():
                    return

    def _is_well(self, kind: str) -> bool:
        with self._lock:
            return not self._known[kind].broken

    def _break(self, kind: str, why: str) -> None:
        with self._lock:
            new, self._known[kind].broken = not self._known[kind].broken, why
        if new and not self._stopped.is_set():
            self._changed()

    def _mend(self, kind: str) -> None:
        with self._lock:
            was, self._known[kind].broken = self._known[kind].broken, ""
        if was:
            self._changed()

    def _replace(self, kind: str, objects: Iterable[Object]) -> None:
        fresh = {Identity.of(one): one for one in map(_slim, objects)}
        parsed = {identity: self._understood(one) for identity, one in fresh.items()}
        if kind == _SERVICE:
            RECENT.forget(self.access)
            for identity, one in fresh.items():
                self._tell_writers(identity, one)
        with self._lock:
            known = self._known[kind]
            different = not known.listed or parsed != known.parsed
            self._known[kind] = _Known(fresh, parsed, listed=True, broken=known.broken)
        if different:
            self._changed()

    def _take(self, kind: str, event: Event) -> None:
        if event.type == OPENED:
            self._mend(kind)
        if event.type in {OPENED, "BOOKMARK"}:
            return
        one = _slim(event.object)
        identity = Identity.of(one)
        if kind == _SERVICE:
            self._tell_writers(identity, None if event.type == "DELETED" else one)
        with self._lock:
            known = self._known[kind]
            before = known.parsed.get(identity)
            if event.type == "DELETED":
                known.objects.pop(identity, None)
                known.parsed.pop(identity, None)
                different = before is not None and before != Parsed()
            else:
                known.objects[identity] = one
                known.parsed[identity] = after = self._understood(one)
                different = after != (before or Parsed())
        if different:
            self._changed()

    def _tell_writers(self, identity: Identity, one: Document | None) -> None:
        """Let those who write to this Service know what it is now; None: it is gone."""
        if one is None:
            RECENT.drop(self.access, identity.namespace, identity.name)
        else:
            RECENT.note(self.access, identity.namespace, identity.name, one)

    def _understood(self, one: Document) -> Parsed:
        return parse_objects(self.cluster, [one])


def _slim(one: Object) -> Document:
    document: dict[object, object] = {key: one[key] for key in one}
    return slim(document)
