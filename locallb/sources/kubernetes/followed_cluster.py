"""A running cluster, followed: Services, Nodes and EndpointSlices, and whatever its Gateways need besides.

What is told of a cluster's being stale is about the former: trouble with Gateways is a notice, and what isn't known of
them counts as last read. EndpointSlices that may not be read are a notice too, and none are known then. Not here: how a
kind is followed (`followed_kinds`), and which of Gateway API (`followed_gateways`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from locallb.kubernetes.api.feed import PATHS
from locallb.kubernetes.parsing import Parsed, parse_objects
from locallb.kubernetes.relevant import Document
from locallb.kubernetes.watch_pace import Tempo
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_gateways import REFUSED, FollowedGateways
from locallb.sources.kubernetes.followed_kinds import NOBODY, Follow, FollowedKinds
from locallb.sources.kubernetes.missing_rights import SLICE, slice_notices
from locallb.sources.kubernetes.told_writers import ToldWriters


class FollowedCluster:
    """Calls `changed` from its threads whenever something relevant is different."""

    def __init__(
        self,
        cluster: ClusterName,
        access: Access,
        changed: Callable[[], None],
        tempos: Mapping[str, Tempo] = NOBODY,
    ) -> None:
        self.cluster = cluster
        self.access = access
        self._writers = ToldWriters(access)
        self.gateways = FollowedGateways(cluster, access, changed, self._writers, tempos)

        def read(document: Document) -> Parsed:
            return parse_objects(cluster, [document])

        def follow(kinds: Iterable[str]) -> FollowedKinds:
            places = {kind: PATHS[kind] for kind in kinds}
            return FollowedKinds(
                Follow(cluster, access, places, read, changed, self._writers, self.gateways.need, tempos, REFUSED)
            )

        self._kinds = follow(PATHS.keys() - {SLICE})
        self._slices = follow([SLICE])

    def stop(self) -> None:
        """Follow it no more: threads and connections end as soon as they see it, also in the midst of an answer."""
        self.gateways.stop()
        for kinds in (self._kinds, self._slices):
            kinds.stop()
        self._writers.end()

    def await_answer(self, seconds: float) -> None:
        """Wait until a watch of Services is open, or it is known why not; no longer than this."""
        self._kinds.await_answer(seconds)

    def tempos(self) -> Mapping[str, Tempo]:
        """Return how often who follows it in another way from now on may ask: what made it fail may be gone."""
        return {**self._kinds.tempos(), **self._slices.tempos(), **self.gateways.tempos()}

    def look_after(self) -> None:
        """Break off answers that take longer than they may; to be called now and again."""
        for each in (self._kinds, self._slices, self.gateways):
            each.look_after()

    def ready(self) -> bool:
        """Return whether everything but what Gateways need was listed once."""
        return self._kinds.ready() and (self._slices.ready() or self._slices.forbidden())

    def stale(self) -> str:
        """Return why what is known may be old; empty if it isn't."""
        return self._kinds.broken() or ("" if self._slices.forbidden() else self._slices.broken())

    def parsed(self, last: tuple[ObjectOfCluster, ...] = ()) -> Parsed:
        """Return what the cluster has, as far as is known; `last` is what it had of Gateway API at the last look."""
        without = self._slices.forbidden()
        parts = [*self._kinds.parts(), *(() if without else self._slices.parts())]
        of_gateways = () if self.stale() else self.gateways.notices()
        return Parsed(
            services=tuple(service for part in parts for service in part.services),
            malformed=tuple(malformed for part in parts for malformed in part.malformed),
            nodes=tuple(node for part in parts for node in part.nodes),
            slices=tuple(endpoint_slice for part in parts for endpoint_slice in part.slices),
            notices=(
                *(notice for part in parts for notice in part.notices),
                *slice_notices(self.cluster, self._slices.broken() if without else ""),
                *of_gateways,
            ),
            external_ips=frozenset(address for part in parts for address in part.external_ips),
            ranges=tuple(each for part in parts for each in part.ranges),
            standings=(*(standing for part in parts for standing in part.standings), *self.gateways.standings()),
            gateway_api=self.gateways.parsed(last, lambda: self._kinds.objects("Service")),
        )

    def objects(self) -> tuple[Document, ...]:
        """Return the objects themselves, for the last good reading."""
        known = () if self._slices.forbidden() else self._slices.objects()
        return (*self._kinds.objects(), *known, *self.gateways.objects())
