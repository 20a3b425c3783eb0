"""Pod ranges from a CNI's own objects in a live cluster: listed once for `up`, or followed.

Read only if routes to pods are configured. Objects that can't be read count as last read, with a notice. Not here: what
the objects say (`kubernetes.pod_ranges`), and routes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from contextlib import closing

from msgspec.structs import replace

from locallb.kubernetes.api.discovery import range_discovery, range_kinds
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.pod_ranges import VERSIONS
from locallb.kubernetes.relevant import Document
from locallb.model.identities import ClusterName
from locallb.model.objects import PodRanges
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.informers import DiscoveredKinds, Follow, Question

QUESTION = Question("ranges of pods", range_discovery, range_kinds)
KINDS = frozenset(VERSIONS)
ALL = "all"
"""The one stage."""


def notices_of_ranges(cluster: ClusterName, why: str) -> tuple[str, ...]:
    """Explain why ranges of pods may be outdated, if they may."""
    until = "the ranges of its pods count as last read until it is given, by the rights of deploy/rbac-pod-ranges.yaml"
    return (f"source {cluster}: {why}; {until}",) if why else ()


def of_ranges(objects: Iterable[Document]) -> tuple[Document, ...]:
    """Return the objects of a last reading with pod ranges."""
    return tuple(document for document in objects if document.get("kind") in KINDS)


def list_ranges(access: Access, last: Collection[Document]) -> tuple[tuple[Document, ...], str]:
    """Read them; where that fails return those of the last reading, and why."""
    try:
        places = QUESTION.ask(access)
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
        super().__init__(QUESTION, how)
        self._is_known = False
        self._last: tuple[PodRanges, ...] | None = None
        self.start()

    def adjust(self, *, requested: bool) -> float:  # noqa: ARG002 - what there is, is all that counts
        if self.places is not None:
            self.follow(ALL, replace(self.how, places=self.places))
            first, self._is_known = not self._is_known, True
            if first:
                self.how.changed()
        return math.inf

    def is_known(self) -> bool:
        """Return whether all that there is was listed once."""
        return self._is_known and all(kinds.ready() for kinds in self.running())

    def lacks(self) -> frozenset[str]:
        """Return the kinds with unknown contents."""
        return frozenset() if self.is_known() else KINDS

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
