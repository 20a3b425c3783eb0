"""A running cluster, followed: Services, Nodes and EndpointSlices, and other objects that Gateways and Ingresses need.

A cluster counts as stale only for Services, Nodes and EndpointSlices: trouble with Gateways is a notice, and their
unknown objects count as last read. EndpointSlices without the right to read them are a notice too, and none are known.
Not here: how a kind is followed (`followed.kinds`), and which objects routes need (`followed_gateways`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from locallb.kubernetes.api.feed import PATHS
from locallb.kubernetes.parsing.backend_addresses import with_backends_of_cluster
from locallb.kubernetes.parsing.objects import Parsed, parse_objects
from locallb.kubernetes.parsing.relevant import Document
from locallb.kubernetes.watch_pace import WatchPace
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.objects import PodRanges
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed.kinds import NO_OWNER, Follow, FollowedKinds
from locallb.sources.kubernetes.followed.objects import Fault, lasting
from locallb.sources.kubernetes.followed.write_hints import WriteHints
from locallb.sources.kubernetes.followed_gateways import FollowedGateways
from locallb.sources.kubernetes.missing_rights import SLICE, slice_notices
from locallb.sources.kubernetes.pod_ranges import FollowedRanges
from locallb.sources.kubernetes.routed import GATEWAYS, INGRESSES

REFUSED = 60.0
"""Seconds until a kind that may not be read is asked for again."""


class FollowedCluster:
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(  # noqa: PLR0913 - what is followed, and how
        self,
        cluster: ClusterName,
        access: Access,
        changed: Callable[[], None],
        tempos: Mapping[str, WatchPace] = NO_OWNER,
        *,
        reads_ranges: bool = False,
        loopback: bool = False,
    ) -> None:
        self.cluster = cluster
        self.access = access
        self._writers = WriteHints(access)
        self._before = tempos
        how = Follow(
            cluster,
            access,
            {},
            lambda document: with_backends_of_cluster(cluster, parse_objects(cluster, [document]), loopback=loopback),
            changed,
            self._writers,
            self._need,
            tempos,
            REFUSED,
        )

        def follow(kinds: Iterable[str]) -> FollowedKinds:
            return FollowedKinds(replace(how, places={kind: PATHS[kind] for kind in kinds}))

        self.gateways, self.ingresses = (FollowedGateways(routed, how) for routed in (GATEWAYS, INGRESSES))
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

    def tempos(self) -> Mapping[str, WatchPace]:
        """Return the paces for a replacing follower, with minimal delays: the cause of failures may be gone."""
        tempos = {kind: tempo for followed in self._followed for kind, tempo in followed.tempos().items()}
        return {**self._before, **tempos}

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
