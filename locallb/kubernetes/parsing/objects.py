"""Parses Kubernetes objects into the types of `model`, from YAML or an API. Total: no input makes it raise.

Kept are Services of type LoadBalancer, Nodes and EndpointSlices; lists of any depth are opened; other kinds are
ignored. A malformed Service is kept as such, a malformed Node or EndpointSlice becomes a notice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.gateway.status.observed import ObservedRouteStatus
from locallb.kubernetes import pod_ranges
from locallb.kubernetes.frontend import Frontend, FrontendRead, frontends
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing.gateway_api import Definitions, held_against, of_use, parse_gateway_api
from locallb.kubernetes.parsing.nodes_endpoints import parse_node, parse_slice
from locallb.kubernetes.parsing.relevant import Document, relevant
from locallb.kubernetes.status_patch import ObservedStatus
from locallb.model.fields import FieldError, text_of
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName, IPAddress, ObjectKey
from locallb.model.memory import Memo, few_replaced
from locallb.model.objects import EndpointSlice, MalformedService, Node, PodRanges, Service
from locallb.model.texts import cleaned, fault_of

AnyStatus: TypeAlias = ObservedStatus | ObservedRouteStatus
"""An object's observed status, as far as it is ours: of a frontend, or of Gateway API."""
_Other: TypeAlias = Node | EndpointSlice | PodRanges
_SILENT = ObservedStatus()


class Parsed(Struct, frozen=True):
    """Objects of a source. `notices` are sentences about omitted ones."""

    services: tuple[Service, ...] = ()
    malformed: tuple[MalformedService, ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    notices: tuple[str, ...] = ()
    external_ips: frozenset[IPAddress] = frozenset()
    """spec.externalIPs of Services of any type."""
    ranges: tuple[PodRanges, ...] = ()
    """Ranges of Nodes' pods, from the CNI's objects."""
    observed_statuses: tuple[tuple[ObjectKey, AnyStatus], ...] = ()
    """Observed statuses, as far as they are ours to write; Services of type LoadBalancer without one are absent."""
    gateway_api: tuple[ObjectOfCluster, ...] = ()
    """Gateway API's objects, and what they may refer to."""
    hints: tuple[str, ...] = ()
    """Proposed improvements, for information."""


class ParsedObject(Struct, frozen=True):
    """Parse result of one object by itself."""

    document: Document
    identity: Identity
    frontend: Frontend | None = None
    read: FrontendRead = field(default_factory=FrontendRead)
    other: _Other | None = None
    gateway_api: tuple[ObjectOfCluster, ...] = ()
    notices: tuple[str, ...] = ()


class ParseMemory(Struct):
    """Parse results of one cluster's objects, cached for callers that pass mostly identical objects again."""

    objects: Memo[tuple[ParsedObject, ...]] = field(default_factory=Memo)
    rows: tuple[tuple[ParsedObject, ...], ...] = ()
    """The last ones."""
    parsed: Parsed | None = None
    """Their combined result."""


def parse_objects(
    cluster: ClusterName,
    objects: Iterable[object],
    existing: ParseMemory | None = None,
    definitions: Definitions | None = None,
) -> Parsed:
    """Parse the objects of one cluster; among objects of one name the first counts. Never raises.

    `existing` caches results of identical objects of the same cluster. Objects that never passed an API server are
    validated by `definitions`.
    """
    existing = existing or ParseMemory()
    rows = existing.objects.each(partial(_understood, cluster, definitions), objects)
    existing.parsed = _with_other_services(existing, rows) or _gathered(cluster, rows)
    existing.rows = rows
    return existing.parsed


def _gathered(cluster: ClusterName, rows: Iterable[Iterable[ParsedObject]]) -> Parsed:
    gathering = _Gathering(cluster)
    for understood in chain.from_iterable(rows):
        gathering.take(understood)
    return Parsed(
        services=tuple(sorted(gathering.services.values(), key=attrgetter("key"))),
        malformed=tuple(
            sorted(gathering.malformed, key=lambda rejected: (rejected.key, rejected.problem, rejected.uid))
        ),
        nodes=tuple(sorted(gathering.nodes.values(), key=lambda node: node.name)),
        slices=tuple(gathering.slices[identity] for identity in sorted(gathering.slices)),
        notices=tuple(sorted(gathering.notices)),
        external_ips=frozenset(gathering.external_ips),
        ranges=tuple(gathering.ranges[identity] for identity in sorted(gathering.ranges)),
        observed_statuses=tuple(sorted(gathering.observed_statuses.items(), key=itemgetter(0))),
        gateway_api=of_use(gathering.gateway_api),
    )


def _with_other_services(existing: ParseMemory, rows: Sequence[tuple[ParsedObject, ...]]) -> Parsed | None:
    """Return what was parsed with other Services in the places of some; None where anything else may be different."""
    where = None if existing.parsed is None else few_replaced(existing.rows, rows)
    if existing.parsed is None or where is None:
        return None
    services, rejected = list(existing.parsed.services), {service.key for service in existing.parsed.malformed}
    for number in where:
        old, new = (_service_alone(row[number], existing.parsed) for row in (existing.rows, rows))
        if old is None or new is None or old.key != new.key:
            return None
        if old.key in rejected:  # it is there twice, maybe in equal words, and another place may be the one that counts
            return None
        place = bisect_left(services, old.key, key=attrgetter("key"))
        if place == len(services) or services[place] is not old:  # another one of that name counts
            return None
        services[place] = new
    return replace(existing.parsed, services=tuple(services))


def _service_alone(row: tuple[ParsedObject, ...], parsed: Parsed) -> Service | None:
    """Return the Service that is the only content of an object; None if it has, or may have, other content."""
    if len(row) != 1 or row[0].notices or parsed.gateway_api or of_use(row[0].gateway_api):
        return None
    read = row[0].read
    return None if read.external_ips or read.malformed or read.observed_status != _SILENT else read.wanted


def _understood(cluster: ClusterName, definitions: Definitions | None, given: object) -> tuple[ParsedObject, ...]:
    """Understand an object, or those of a list."""
    documents, notices = relevant([given])
    of_none = ParsedObject({}, Identity("", "", ""), notices=tuple(f"{cluster}: {notice}" for notice in notices))
    return (*([of_none] if notices else []), *(_intended(cluster, document, definitions) for document in documents))


def _intended(cluster: ClusterName, document: Document, definitions: Definitions | None) -> ParsedObject:
    """Understand one object of a kind that is read."""
    document = cleaned(document)
    identity, kind = Identity.of(document), text_of(document.get("kind"))
    understood = ParsedObject(document, identity, gateway_api=parse_gateway_api(cluster, document, Memo()))
    if definitions:
        checked, refusal = held_against(definitions, cluster, document, understood.gateway_api)
        refused = (_left_out(cluster, identity, refusal),) if refusal else ()
        understood = replace(understood, gateway_api=checked, notices=refused)
    if kind in frontends():
        read = frontends()[kind].read(cluster, document)
        notices = (*read.notices, *([_left_out(cluster, identity, read.left_out)] if read.left_out else []))
        return replace(understood, frontend=frontends()[kind], read=read, notices=notices)
    if fault := fault_of(document):
        reported = any(getattr(read.object, "problem", "") for read in understood.gateway_api)
        return understood if reported else replace(understood, notices=(_left_out(cluster, identity, fault),))
    try:
        other = _OTHERS[kind](cluster, document) if kind in _OTHERS else None
    except FieldError as error:
        return replace(understood, notices=(_left_out(cluster, identity, str(error)),))
    odd = other.odd if isinstance(other, Node | PodRanges) else ()
    of_other = (f"{cluster}: {identity}: {fault}" for fault in odd)
    return replace(understood, other=other, notices=(*understood.notices, *of_other))


_OTHERS: Mapping[str, Callable[[ClusterName, Document], _Other | None]] = {
    "Node": parse_node,
    "EndpointSlice": parse_slice,
    **dict.fromkeys(pod_ranges.VERSIONS, pod_ranges.parse_pod_ranges),
}


def _left_out(cluster: ClusterName, identity: Identity, why: str) -> str:
    return f"{cluster}: {identity} is left out: {why}"


class _Gathering(Struct):
    """Results that were parsed so far."""

    cluster: ClusterName
    notices: list[str] = field(default_factory=list)
    services: dict[ObjectKey, Service] = field(default_factory=dict)
    malformed: list[MalformedService] = field(default_factory=list)
    nodes: dict[Identity, Node] = field(default_factory=dict)
    slices: dict[Identity, EndpointSlice] = field(default_factory=dict)
    external_ips: set[IPAddress] = field(default_factory=set)
    ranges: dict[Identity, PodRanges] = field(default_factory=dict)
    observed_statuses: dict[ObjectKey, ObservedStatus] = field(default_factory=dict)
    gateway_api: list[ObjectOfCluster] = field(default_factory=list)

    def take(self, understood: ParsedObject) -> None:
        """Take one object."""
        if understood.notices:
            self.notices.extend(understood.notices)
        if understood.gateway_api:
            self.gateway_api.extend(understood.gateway_api)
        if understood.frontend:
            self._take_frontend(understood.frontend, understood.read, understood.document)
        elif understood.other:
            self._take_other(understood.identity, understood.other)

    def _take_frontend(self, kind: Frontend, read: FrontendRead, document: Document) -> None:
        self.external_ips |= read.external_ips
        claimed = read.wanted or read.malformed
        if claimed is not None and read.observed_status != _SILENT:
            self.observed_statuses.setdefault(claimed.key, read.observed_status)
        if read.malformed:
            self.malformed.append(read.malformed)
        elif read.wanted and read.wanted.key in self.services:
            why = f"this source has another {kind.name} of that name, which counts; remove or rename one"
            self.malformed.append(kind.refused(self.cluster, document, why))
        elif read.wanted:
            self.services[read.wanted.key] = read.wanted

    def _take_other(self, identity: Identity, other: _Other) -> None:
        existing = self._others(other)
        if identity in existing:
            why = "it is there twice and the first counts; remove one"
            self.notices.append(_left_out(self.cluster, identity, why))
        else:
            existing[identity] = other

    def _others(self, other: _Other) -> dict[Identity, Any]:
        if isinstance(other, EndpointSlice):
            return self.slices
        return self.nodes if isinstance(other, Node) else self.ranges
