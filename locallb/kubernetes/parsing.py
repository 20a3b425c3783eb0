"""From Kubernetes objects, as YAML or an API gives them, to the types of `model`. Total: no input makes it raise.

Kept are Services of type LoadBalancer, Nodes and EndpointSlices; lists of any depth are opened; every other kind is
somebody else's. A malformed Service is kept as such, a malformed Node or EndpointSlice becomes a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from locallb.kubernetes import pod_ranges
from locallb.kubernetes.frontend import Frontend, frontends
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parse_nodes_endpoints import parse_node, parse_slice
from locallb.kubernetes.parse_service import LOAD_BALANCER
from locallb.kubernetes.status_patch import Standing
from locallb.model.fields import FieldError
from locallb.model.formatting import clipped, shown
from locallb.model.identities import ClusterName, IPAddress, ObjectKey
from locallb.model.memory import Memory
from locallb.model.objects import EndpointSlice, MalformedService, Node, PodRanges, Service

Document: TypeAlias = Mapping[object, object]

VERSIONS = {
    **{table.name: table.api_version for table in frontends().values()},
    "Node": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    **pod_ranges.VERSIONS,
}
"""The kinds that are read, and the apiVersion of each."""
_DEEPEST = 50
"""Lists within lists that are opened; kubectl makes none, a loop would never end."""
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
    standings: tuple[tuple[ObjectKey, Standing], ...] = ()
    """What Services of type LoadBalancer say of what is ours to write; those that say nothing are absent."""


def relevant(documents: Iterable[object]) -> tuple[list[Document], tuple[str, ...]]:
    """Open the lists among `documents` and keep the objects of the kinds that are read, in order.

    The notices name what is left out although it is of such a kind: another version of the API, a list that is none.
    """
    kept: list[Document] = []
    notices: list[str] = []
    for document in documents:
        for item in _opened(document, notices, 0):
            wrong = _wrong_version(item) or _misspelt(item)
            if wrong:
                notices.append(wrong)
            elif item.get("apiVersion") == VERSIONS.get(_text(item.get("kind")), ""):
                kept.append(item)
    return kept, tuple(notices)


def _opened(document: object, notices: list[str], depth: int) -> Iterator[Document]:
    """Return `document` or, if it is a list of Kubernetes, what is in it."""
    if not isinstance(document, Mapping):
        return
    kind = _text(document.get("kind"))
    of = kind.removesuffix("List")
    if not kind.endswith("List") or of not in {"", *VERSIONS} or document.get("apiVersion") != VERSIONS.get(of, "v1"):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list | tuple | None) or depth == _DEEPEST:
        what = "lists nested too deeply" if depth == _DEEPEST else f"items that are {shown(items)}"
        notices.append(f"a {kind} is left out: it has {what}; give a plain list of objects")
        return
    for item in items or ():
        typed = of and isinstance(item, Mapping) and "kind" not in item
        yield from _opened({"kind": of, "apiVersion": VERSIONS[of], **item} if typed else item, notices, depth + 1)


def _wrong_version(document: Document) -> str | None:
    """Say that an object of a kind that is read has no version or another one; None if all is well or it is not ours.

    The same kind in another group (Knative's Service, say) is another thing.
    """
    right, version = VERSIONS.get(_text(document.get("kind"))), document.get("apiVersion")
    if right is None or version == right or (isinstance(version, str) and _group(version) != _group(right)):
        return None
    written = "missing" if version is None else shown(version)
    return f"{Identity.of(document)} is left out: apiVersion is {written}; use {right}"


def _misspelt(document: Document) -> str | None:
    """Explain that an object has a kind that nobody knows, and which one may be meant; None if that isn't so.

    Meant is what differs by capitals or a plural only, and a Service by what only that has.
    """
    kind, version = document.get("kind"), document.get("apiVersion")
    if _text(kind) in VERSIONS or (version is not None and version not in VERSIONS.values()):
        return None
    meant = _MEANT.get(_text(kind).lower())
    if meant is None and not _is_balancer(document):
        return None
    written = "missing" if kind is None else shown(kind)
    return f"{Identity.of(document)} is left out: kind is {written}; write {meant or 'Service'}"


def _is_balancer(document: Document) -> bool:
    spec = document.get("spec")
    return isinstance(spec, Mapping) and spec.get("type") == LOAD_BALANCER


_MEANT = {f"{kind.lower()}{ending}": kind for kind in VERSIONS for ending in ("", "s")}
"""How the kinds that are read are misspelt."""


def kinds_of(documents: Iterable[object]) -> Iterator[str]:
    """Return the kind of each object among `documents`, lists opened; of a Service its type as well."""
    for document in documents:
        for item in _opened(document, [], 0):
            kind = clipped(_text(item.get("kind"))) or "without a kind"
            yield f"{kind} of type {_type(item)}" if item.get("kind") == "Service" else kind


def _type(service: Document) -> str:
    spec = service.get("spec")
    return clipped(_text(spec.get("type") if isinstance(spec, Mapping) else None)) or "ClusterIP"


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

    def take(self, document: Document) -> None:
        """Take one object of a kind that is read."""
        kind = _text(document.get("kind"))
        if kind in frontends():
            self._take_frontend(frontends()[kind], document)
        elif kind == "Node":
            self._take_other(document, parse_node, self.nodes)
        elif kind in pod_ranges.VERSIONS:
            self._take_other(document, pod_ranges.parse_pod_ranges, self.ranges)
        else:
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


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _group(version: str) -> str:
    return version.rpartition("/")[0]
