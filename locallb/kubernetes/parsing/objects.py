"""From Kubernetes objects, as YAML or an API gives them, to the types of `model`. Total: no input makes it raise.

Kept are Services of type LoadBalancer, Nodes and EndpointSlices; lists of any depth are opened; every other kind is
somebody else's. A malformed Service is kept as such, a malformed Node or EndpointSlice becomes a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from locallb.gateway.standing import StatusStanding
from locallb.kubernetes import pod_ranges
from locallb.kubernetes.frontend import Frontend, frontends
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing.gateway_api import of_use, parse_gateway_api
from locallb.kubernetes.parsing.nodes_endpoints import parse_node, parse_slice
from locallb.kubernetes.parsing.relevant import Document, relevant, text_of
from locallb.kubernetes.status_patch import Standing
from locallb.model.fields import FieldError
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName, IPAddress, ObjectKey
from locallb.model.memory import Memory
from locallb.model.objects import EndpointSlice, MalformedService, Node, PodRanges, Service

Said: TypeAlias = Standing | StatusStanding
"""What an object says of what is ours: that of a frontend, or one of Gateway API."""
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a source has. `notices` are sentences about what was left out."""

    services: tuple[Service, ...] = ()
    malformed: tuple[MalformedService, ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    notices: tuple[str, ...] = ()
    external_ips: frozenset[IPAddress] = frozenset()
    """spec.externalIPs of Services of any type."""
    ranges: tuple[PodRanges, ...] = ()
    """What the CNI says of where Nodes' pods are."""
    standings: tuple[tuple[ObjectKey, Said], ...] = ()
    """What objects say of what is ours to write; Services of type LoadBalancer that say nothing are absent."""
    gateway_api: tuple[ObjectOfCluster, ...] = ()
    """Gateway API's objects, and what they may refer to."""


def parse_objects(cluster: ClusterName, objects: Iterable[object], known: Memory[Any] | None = None) -> Parsed:
    """Take the objects of one cluster; among those of one name the first counts. Never raises.

    `known` has what the very same objects of the same cluster were understood as before.
    """
    documents, notices = relevant(objects)
    known = known or Memory()
    gathering = _Gathering(cluster, [f"{cluster}: {notice}" for notice in notices], known)
    for document in documents:
        gathering.take(document)
    known.evict_unused()
    return Parsed(
        services=tuple(sorted(gathering.services.values(), key=lambda service: service.key)),
        malformed=tuple(
            sorted(gathering.malformed, key=lambda rejected: (rejected.key, rejected.problem, rejected.uid))
        ),
        nodes=tuple(sorted(gathering.nodes.values(), key=lambda node: node.name)),
        slices=tuple(gathering.slices[identity] for identity in sorted(gathering.slices)),
        notices=tuple(sorted(gathering.notices)),
        external_ips=frozenset(gathering.external_ips),
        ranges=tuple(gathering.ranges[identity] for identity in sorted(gathering.ranges)),
        standings=tuple(sorted(gathering.standings.items(), key=itemgetter(0))),
        gateway_api=of_use(gathering.gateway_api),
    )


@dataclass(slots=True)
class _Gathering:
    """What was read so far."""

    cluster: ClusterName
    notices: list[str]
    known: Memory[Any]
    services: dict[ObjectKey, Service] = field(default_factory=dict)
    malformed: list[MalformedService] = field(default_factory=list)
    nodes: dict[Identity, Node] = field(default_factory=dict)
    slices: dict[Identity, EndpointSlice] = field(default_factory=dict)
    external_ips: set[IPAddress] = field(default_factory=set)
    ranges: dict[Identity, PodRanges] = field(default_factory=dict)
    standings: dict[ObjectKey, Standing] = field(default_factory=dict)
    gateway_api: list[ObjectOfCluster] = field(default_factory=list)

    def take(self, document: Document) -> None:
        """Take one object of a kind that is read."""
        kind = text_of(document.get("kind"))
        self.gateway_api.extend(parse_gateway_api(self.cluster, document, self.known))
        if kind in frontends():
            self._take_frontend(frontends()[kind], document)
        elif kind == "Node":
            self._take_other(document, parse_node, self.nodes)
        elif kind in pod_ranges.VERSIONS:
            self._take_other(document, pod_ranges.parse_pod_ranges, self.ranges)
        elif kind == "EndpointSlice":
            self._take_other(document, parse_slice, self.slices)

    def _leave_out(self, document: Document, why: str) -> None:
        self.notices.append(f"{self.cluster}: {Identity.of(document)} is left out: {why}")

    def _take_frontend(self, kind: Frontend, document: Document) -> None:
        read = kind.read(self.cluster, document, self.known)
        self.external_ips.update(read.external_ips)
        self.notices.extend(read.notices)
        if read.left_out:
            self._leave_out(document, read.left_out)
        taken = read.wanted or read.malformed
        if taken is not None and read.standing != Standing():
            self.standings.setdefault(taken.key, read.standing)
        if read.malformed:
            self.malformed.append(read.malformed)
        elif read.wanted and read.wanted.key in self.services:
            why = f"this source has another {kind.name} of that name, which counts; remove or rename one"
            self.malformed.append(kind.refused(self.cluster, document, why))
        elif read.wanted:
            self.services[read.wanted.key] = read.wanted

    def _take_other(
        self,
        document: Document,
        parse: Callable[[ClusterName, Document], _Kind | None],
        into: dict[Identity, _Kind],
    ) -> None:
        try:
            parsed = self.known.of_this(document, lambda: parse(self.cluster, document))
        except FieldError as error:
            self._leave_out(document, str(error))
            return
        if parsed is not None and into.setdefault(Identity.of(document), parsed) is not parsed:
            self._leave_out(document, "it is there twice and the first counts; remove one")
        if isinstance(parsed, Node | PodRanges):
            self.notices.extend(f"{self.cluster}: {Identity.of(document)}: {odd}" for odd in parsed.odd)
