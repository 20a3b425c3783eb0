"""A running cluster, followed: Services, Nodes and EndpointSlices, and the objects that Gateways and Ingresses need.

A cluster counts as stale only for Services, Nodes and EndpointSlices: a failure with Gateways is a notice, and their
unknown objects count as last read, whatever the reason. Without the right to read EndpointSlices pods are unknown,
which is a notice too, and Services are reached by NodePorts. Pod ranges from a CNI's own objects are read only if
routes to pods are configured, and count as last read, with a notice, while they can't be.

Not here: how a kind is followed (`informers`), which kinds Gateways and Ingresses need, with which rights
(`gateway_listing`), and what a CNI's objects say (`kubernetes.pod_ranges`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from msgspec.structs import replace

from locallb.gateway.kinds import NAMESPACE, SERVICE, by_kind, kind_of
from locallb.kubernetes.answers import Object, WatchPace
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.discovery import lacking_rights, range_discovery, range_kinds
from locallb.kubernetes.api.feed import PATHS, ApiPath, Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError
from locallb.kubernetes.object_parsing import AnyStatus, Parsed, parse_objects, with_backends_of_cluster
from locallb.kubernetes.pod_ranges import VERSIONS
from locallb.kubernetes.relevant import Document, parse_gateway_api
from locallb.model.gateway_objects import Reference
from locallb.model.gateway_of_cluster import ApiObject, AuthorityBundle, ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.model.memory import Memo
from locallb.model.objects import PodRanges
from locallb.model.own_classes import KINDS as CLASS_KINDS
from locallb.model.own_classes import ClassFacts, class_changed
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.gateway_listing import GATEWAYS, INGRESSES, Routed, objects_in, parsed, refer_alike
from locallb.sources.kubernetes.informers import (
    NO_PACES,
    DiscoveredKinds,
    Fault,
    Follow,
    FollowedKinds,
    Question,
    lasting,
    no_more,
)
from locallb.sources.kubernetes.named_objects import KINDS, FollowedNames, NamedObjects
from locallb.sources.kubernetes.write_hints import WriteHints

RANGES_QUESTION = Question("ranges of pods", range_discovery, range_kinds)
RANGE_KINDS = frozenset(VERSIONS)
ALL_RANGES = "ranges"
"""The one stage of a CNI's kinds."""


def notices_of_ranges(cluster: ClusterName, why: str) -> tuple[str, ...]:
    """Explain why ranges of pods may be outdated, if they may."""
    until = "the ranges of its pods count as last read until it is given, by the rights of deploy/rbac-pod-ranges.yaml"
    return (f"source {cluster}: {why}; {until}",) if why else ()


def of_ranges(objects: Iterable[Document]) -> tuple[Document, ...]:
    """Return the objects of a last reading with pod ranges."""
    return tuple(document for document in objects if document.get("kind") in RANGE_KINDS)


def list_ranges(access: Access, last: Collection[Document]) -> tuple[tuple[Document, ...], str]:
    """Read them; where that fails return those of the last reading, and why."""
    try:
        places = RANGES_QUESTION.ask(access)
        listed: list[Document] = []
        for kind, place in places.items():
            with closing(Feed(access, kind, place)) as feed:
                listed += (dict(document.items()) for document in feed.list()[0])
    except KubeError as error:
        return of_ranges(last), str(error)
    return tuple(listed), ""


class FollowedRanges(DiscoveredKinds):
    """Calls `changed` from its threads whenever something is different."""

    def __init__(self, how: Follow) -> None:
        """Follow the CNI's kinds as `how` defines."""
        super().__init__(RANGES_QUESTION, how)
        self._is_known = False
        self._last: tuple[PodRanges, ...] | None = None
        self.start()

    def adjust(self, *, requested: bool) -> float:  # noqa: ARG002 - what there is, is all that counts
        if self.places is not None:
            self.follow(ALL_RANGES, replace(self.how, places=self.places))
            first, self._is_known = not self._is_known, True
            if first:
                self.how.changed()
        return math.inf

    def is_known(self) -> bool:
        """Return whether all that there is was listed once."""
        return self._is_known and all(kinds.ready() for kinds in self.running())

    def lacks(self) -> frozenset[str]:
        """Return the kinds with unknown contents."""
        return frozenset() if self.is_known() else RANGE_KINDS

    def notices(self) -> tuple[str, ...]:
        """Return the reason that known ranges may be old, if any."""
        return notices_of_ranges(self.how.cluster, self.fault().sentence)

    def ranges(self, last: tuple[PodRanges, ...]) -> tuple[PodRanges, ...]:
        """Return the known ranges; until they are known, the last ones, at first `last`. For one thread."""
        if self.is_known():
            parts = (part for kinds in self.running() for part in kinds.parts())
            self._last = tuple(pod_ranges for part in parts for pod_ranges in part.ranges)
        return last if self._last is None else self._last

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        return tuple(document for kinds in self.running() for document in kinds.objects())


SLICE = "EndpointSlice"


def list_objects(cluster: Cluster) -> tuple[list[Object], str]:
    """List all that Services need, and say why EndpointSlices may not be read. Raises KubeError."""
    listed = cluster.objects()
    try:
        return [*listed, *cluster.slices()], ""
    except ForbiddenError as error:
        return listed, str(error)


def slice_notices(cluster: ClusterName, why: str) -> tuple[str, ...]:
    """Tell that EndpointSlices may not be read, if so."""
    until = "until that right of deploy/rbac.yaml is given, its Services are reached by NodePorts"
    return (f"source {cluster}: {why}; {until}",) if why else ()


OTHERS = "others"
"""The stage of all that is neither a class nor of one."""


class FollowedGateways(DiscoveredKinds):
    """Follows Gateway API or Ingresses of a cluster in stages, as far as load balancers of ours need them.

    The served kinds are requested at intervals. Classes are followed if the kind exists, objects of a class if a class
    is ours, and everything else, with the named Secrets and ConfigMaps, if such an object exists. Calls `changed` from
    its threads whenever something relevant is different.
    """

    def __init__(self, routed: Routed, how: Follow, *, makes_class: bool) -> None:
        """Follow the kinds of `routed` as `how` defines; `makes_class` asks what a class of ours needs."""
        super().__init__(routed.question, how)
        self._routed = routed
        self._named, self.names = NamedObjects(how.access), FollowedNames(how, self.wake)
        self._last: tuple[ObjectOfCluster, ...] | None = None
        self._serves = False
        self._makes_class = makes_class
        self._lacks: tuple[str, ...] | None = None
        """What this user may not do with a class of ours; None until the cluster has answered."""
        self._class_facts: ClassFacts | None = None
        self._services: Memo[Any] = Memo()
        concerns = partial(class_changed, routed.class_kind) if makes_class else no_more
        self._stage = replace(how, understood=partial(parsed, how.cluster), changed=self._notice, concerns=concerns)
        self.start()

    def stop(self) -> None:
        super().stop()
        self.names.stop()

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        super().follow_up()
        self.names.follow_up()

    def ask(self, asking: Feed) -> Mapping[str, ApiPath]:
        """Ask for the kinds, and until they are given, for the rights that a class of ours needs. Raises KubeError."""
        places = super().ask(asking)
        if self._makes_class and self._lacks != () and self._routed.has_classes(places):
            self._lacks = lacking_rights(asking, self._routed.class_kind)
        return places

    def class_facts(self) -> ClassFacts | None:
        """Return what is known of the classes; None if nothing is, or no class is made."""
        if self.places is None or not self._makes_class:
            return None
        kind = self._routed.stages[0]
        current = (stage for stage in self.running(kind) if kind in stage.listed() and not stage.broken())
        documents = next((stage.objects(kind) for stage in current), None)
        return self._routed.class_facts(self.places, documents, self._lacks)

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
        before, self._class_facts = self._class_facts, self.class_facts()
        if self._class_facts != before:
            self.how.changed()
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


REFUSED = 60.0
"""Seconds until a kind that may not be read is asked for again."""


class FollowedCluster:
    """A running cluster, followed by informers; calls `changed` from their threads whenever its snapshot differs."""

    def __init__(  # noqa: PLR0913 - what is followed, and how
        self,
        cluster: ClusterName,
        access: Access,
        changed: Callable[[], None],
        paces: Mapping[str, WatchPace] = NO_PACES,
        *,
        reads_ranges: bool = False,
        loopback: bool = False,
        classes: bool = False,
    ) -> None:
        self.cluster = cluster
        self.access = access
        self._writers = WriteHints(access)
        self._before = paces
        how = Follow(
            cluster,
            access,
            {},
            lambda document: with_backends_of_cluster(cluster, parse_objects(cluster, [document]), loopback=loopback),
            changed,
            self._writers,
            self._need,
            paces,
            REFUSED,
        )

        def follow(kinds: Iterable[str]) -> FollowedKinds:
            return FollowedKinds(replace(how, places={kind: PATHS[kind] for kind in kinds}))

        self.gateways, self.ingresses = (
            FollowedGateways(routed, how, makes_class=classes) for routed in (GATEWAYS, INGRESSES)
        )
        self._routed = self.gateways, self.ingresses
        self._kinds = follow(PATHS.keys() - {SLICE})
        self._slices = follow([SLICE])
        self._ranges = (FollowedRanges(how),) if reads_ranges else ()
        self._besides = (*self._routed, *self._ranges)
        self._followed = (self._kinds, self._slices, *self._besides)
        self._last_notices: tuple[str, ...] = ()
        self._reported = Fault()

    def stop(self) -> None:
        """Follow it no more: threads and connections end as soon as they see it, also in the midst of an answer."""
        for followed in self._followed:
            followed.stop()
        self._writers.end()

    def await_answer(self, seconds: float) -> None:
        """Wait until a watch of Services is open, or it is known why not; no longer than this."""
        self._kinds.await_answer(seconds)

    def paces(self) -> Mapping[str, WatchPace]:
        """Return the paces for a replacing follower, with minimal delays: the cause of failures may be gone."""
        paces = {kind: tempo for followed in self._followed for kind, tempo in followed.paces().items()}
        return {**self._before, **paces}

    def follow_up(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        for followed in self._followed:
            followed.follow_up()

    def ready(self) -> bool:
        """Return whether everything but what Gateways need was listed once."""
        return self._kinds.ready() and (self._slices.ready() or self._slices.forbidden())

    def stale(self) -> str:
        """Return the reason that known objects may be old; empty if they are current."""
        faults = [self._kinds.fault(), *(() if self._slices.forbidden() else (self._slices.fault(),))]
        self._reported = lasting(self._reported, faults)
        return self._reported.sentence

    def parsed(self, last: tuple[ObjectOfCluster, ...] = (), ranges: tuple[PodRanges, ...] = ()) -> Parsed:
        """Return what the cluster has, as far as is known.

        `last` is what it had of Gateway API, and `ranges` what its CNI said of pods, at the last look.
        """
        without, routed = self._slices.forbidden(), self._routed
        parts = [*self._kinds.parts(), *(() if without else self._slices.parts())]
        routes = tuple(
            cluster_object
            for stage in routed
            for cluster_object in stage.parsed(last, lambda: self._kinds.objects("Service"))
        )
        if not self.stale():  # otherwise the source's own outage is reported, and no other begins or ends by it
            self._last_notices = self._notices()
        return Parsed(
            services=tuple(service for part in parts for service in part.services),
            internal=tuple(service for part in parts for service in part.internal),
            malformed=tuple(malformed for part in parts for malformed in part.malformed),
            nodes=tuple(node for part in parts for node in part.nodes),
            slices=tuple(endpoint_slice for part in parts for endpoint_slice in part.slices),
            notices=(
                *(notice for part in parts for notice in part.notices),
                *slice_notices(self.cluster, self._slices.broken() if without else ""),
                *self._last_notices,
            ),
            hints=tuple(hint for stage in routed for hint in stage.names.hints()),
            external_ips=frozenset(address for part in parts for address in part.external_ips),
            ranges=tuple(pod_ranges for followed in self._ranges for pod_ranges in followed.ranges(ranges)),
            observed_statuses=(
                *(observed_status for part in parts for observed_status in part.observed_statuses),
                *(status for stage in routed for status in stage.observed_statuses()),
            ),
            gateway_api=routes,
        )

    def classes(self) -> Mapping[ObjectKind, ClassFacts]:
        """Return what is known of the kinds of which the cluster gets a class."""
        existing = {kind: routed.class_facts() for kind, routed in zip(CLASS_KINDS, self._routed, strict=True)}
        return {kind: facts for kind, facts in existing.items() if facts}

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        unknown = self._slices if self._slices.forbidden() else None
        return tuple(
            document for followed in self._followed if followed is not unknown for document in followed.objects()
        )

    def lacks(self) -> frozenset[str]:
        """Return the kinds, other than Services and Nodes, with unknown contents."""
        return frozenset[str]().union(*(followed.lacks() for followed in self._besides))

    def _notices(self) -> tuple[str, ...]:
        return tuple(notice for followed in self._besides for notice in followed.notices())

    def _need(self, before: Document | None, after: Document | None) -> bool:
        return any(routed.need(before, after) for routed in self._routed)
