"""Objects of Gateway API, or Ingresses, in a cluster: followed in stages, as far as load balancers of ours need them.

The served kinds are requested at intervals. Classes are followed if the kind exists, objects of a class if a class is
ours, and everything else, with the named Secrets and ConfigMaps, if such an object exists. Unknown objects count as
last read, whatever the reason. Not here: how a kind is followed (`followed.kinds`), and which (`routed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from locallb.gateway.needs import NAMESPACE, SERVICE, by_kind, kind_of
from locallb.kubernetes.parsing.gateway_api import parse_gateway_api
from locallb.kubernetes.parsing.objects import AnyStatus
from locallb.kubernetes.parsing.relevant import Document
from locallb.model.gateway.objects import Reference
from locallb.model.gateway.of_cluster import ApiObject, AuthorityBundle, ObjectOfCluster, TlsSecret
from locallb.model.identities import ObjectKey
from locallb.model.memory import Memo
from locallb.sources.kubernetes.followed.discovered_kinds import DiscoveredKinds
from locallb.sources.kubernetes.followed.kinds import Follow, no_more
from locallb.sources.kubernetes.followed.names import FollowedNames
from locallb.sources.kubernetes.followed.objects import Fault
from locallb.sources.kubernetes.gateway_listing import objects_in, parsed, refer_alike
from locallb.sources.kubernetes.named_objects import KINDS, NamedObjects
from locallb.sources.kubernetes.routed import Routed

OTHERS = "others"
"""The stage of all that is neither a class nor of one."""


class FollowedGateways(DiscoveredKinds):
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(self, routed: Routed, how: Follow) -> None:
        """Follow the kinds of `routed` as `how` defines."""
        super().__init__(routed.question, how)
        self._routed = routed
        self._named, self.names = NamedObjects(how.access), FollowedNames(how, self.wake)
        self._last: tuple[ObjectOfCluster, ...] | None = None
        self._serves = False
        self._services: Memo[Any] = Memo()
        self._stage = replace(how, understood=partial(parsed, how.cluster), changed=self._notice, concerns=no_more)
        self.start()

    def stop(self) -> None:
        """Follow it no more."""
        super().stop()
        self.names.stop()

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        super().follow_up()
        self.names.follow_up()

    def need(self, before: Document | None, after: Document | None) -> bool:
        """Return whether any may be served otherwise for a change of a Service."""
        return self._serves and not refer_alike(before, after)

    def notices(self) -> tuple[str, ...]:
        """Return why objects are left out, and why what is known may be old; of a cluster without the kinds nothing."""
        left_out = tuple(notice for stage in self.running() for part in stage.parts() for notice in part.notices)
        return (*left_out, *self._staleness())

    def _staleness(self) -> tuple[str, ...]:
        if self.places == {}:
            fault = self._routed.refusal if self._last else Fault()
        else:
            fault = self.fault() or self._named.failure
        return self._routed.notices(self.how.cluster, fault, uses=bool(self._last))

    def parsed(
        self, last: Iterable[ObjectOfCluster], services: Callable[[], Iterable[Document]]
    ) -> tuple[ObjectOfCluster, ...]:
        """Return all needed objects; unknown ones as they were, at first in `last`. For one thread."""
        existing = self._existing()
        if self._serves:
            parsed = [parse_gateway_api(self.how.cluster, service, self._services) for service in services()]
            existing[SERVICE] = [cluster_object for objects in parsed for cluster_object in objects]
        self._services.evict_unused()
        before = self._routed.of(last) if self._last is None else self._last
        self._last = self._with_named(self._routed.current_or_last(self.places, existing, before))
        return self._last

    def _with_named(self, objects: Iterable[ObjectOfCluster]) -> tuple[ObjectOfCluster, ...]:
        """Return the objects with the current stand-ins of their named objects."""
        last: dict[Reference, ApiObject] = {}
        others = []
        for cluster_object in objects:
            if isinstance(cluster_object.object, TlsSecret | AuthorityBundle):
                last.setdefault(
                    Reference("", kind_of(cluster_object.object), cluster_object.object.key), cluster_object.object
                )
            else:
                others.append(cluster_object)
        existing = self._named.existing(self._routed.named_objects(others), last)
        return (*others, *(ObjectOfCluster(self.how.cluster, api_object) for api_object in existing))

    def observed_statuses(self) -> tuple[tuple[ObjectKey, AnyStatus], ...]:
        """Return the observed statuses that are ours to write, without possibly stale ones."""
        running = [stage for stage in self.running() if not stage.broken()]
        return tuple(stated for stage in running for part in stage.parts() for stated in part.observed_statuses)

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        if not self.running(self._routed.stages[1]):
            return ()
        return (*(document for stage in self.running() for document in stage.objects()), *self._named.objects())

    def lacks(self) -> frozenset[str]:
        """Return the kinds with unknown contents."""
        existing = self._existing()
        named = self._routed.named_objects(
            cluster_object for objects in existing.values() for cluster_object in objects
        )
        read = [
            kind for kind in KINDS if self._named.know([reference for reference in named if reference.kind == kind])
        ]
        missing = frozenset(self._routed.wanted(self.places or (), existing)) - {*existing, *read, SERVICE}
        everything = self.places is None or not missing.isdisjoint(self._routed.stages)
        return self._routed.kinds | {NAMESPACE, *KINDS} if everything else missing

    def _existing(self) -> dict[str, list[ObjectOfCluster]]:
        """Return what was listed."""
        running = self.running()
        return by_kind(objects_in(running), [kind for stage in running for kind in stage.listed()])

    def adjust(self, *, requested: bool) -> float:
        """Follow exactly the needed kinds; return the time of the next adjustment."""
        served, stages = self.places or {}, self._routed.stages
        places = {**served, **self._routed.core}
        wanted = set(self._routed.wanted(served, self._existing()))
        self._serves = SERVICE in wanted
        for name, kinds in (*((stage, {stage}) for stage in stages), (OTHERS, wanted - set(stages))):
            needed = {kind: places[kind] for kind in kinds & wanted & places.keys()}
            self.follow(name, replace(self._stage, places=needed))
        self._read_named(retry=requested)
        return self._named.due

    def _notice(self) -> None:
        self.wake()
        self.how.changed()

    def _read_named(self, *, retry: bool) -> None:
        """Read named objects that are new or changed; with `retry` also the ones that aren't followed."""
        before = self._named.objects(), self._named.unreadable
        named = self._routed.named_objects(objects_in(self.running()))
        self.names.follow(named)
        self._named.read(named, retry=self.names.due(named, retry=retry))
        if (self._named.objects(), self._named.unreadable) != before:
            self.how.changed()
