"""The source `kubernetes`: a running cluster, read by its API.

One that doesn't answer isn't an empty one: its last good reading counts, which is kept with the name of its context.
Not here: what objects mean (`kubernetes.object_parsing`), how requests are made (`kubernetes.api.client`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.health_ports import answering, any_reached
from locallb.kubernetes.api.kubeconfig import kubeconfig_path
from locallb.kubernetes.api.servers import (
    KubeconfigError,
    KubeError,
    NoContextError,
    UnconfirmedError,
    UnreachableError,
)
from locallb.kubernetes.object_parsing import Parsed, parse_objects, with_backends_of_cluster
from locallb.kubernetes.relevant import kinds_of, relevant
from locallb.model.identities import ClusterName, ContextName, Family, Home, ObjectKey, ObjectKind
from locallb.model.own_classes import ClassFacts
from locallb.model.relays import ForwardingFacts
from locallb.model.snapshot import Access, Contents
from locallb.planning.endpoints import KUBE_PROXY_PORT
from locallb.planning.refused import few_kinds
from locallb.sources import SourceError
from locallb.sources.consents import allowed_meaning, note_served
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes.followed_cluster import list_objects, list_ranges, notices_of_ranges, slice_notices
from locallb.sources.kubernetes.gateway_listing import GATEWAYS, INGRESSES, list_routed, of_gateways
from locallb.sources.readings import Objects, ReadCache, slim
from locallb.sources.source import SourceRead, SourceResult
from locallb.storage.paths import stack_directory

_REMEDIES: Mapping[type[KubeError], str] = {
    UnreachableError: "start it",
    UnconfirmedError: "do that",
    KubeconfigError: "repair that file, or name another one by `kubeconfig`",
    NoContextError: "name one of these by `context`",
}


class ClusterResult(Struct, frozen=True):
    """A cluster's contents, and the access to publish statuses to it."""

    reading: SourceResult
    access: Access
    health_ports: frozenset[Family] = frozenset()
    """The families in which its Nodes answer on kube-proxy's health port."""
    forwarding: ForwardingFacts | None = None
    """As `Snapshot` has it; None where it is never asked."""
    unready: bool = False
    """It was found, doesn't answer yet, and nothing of it is known."""
    classes: Mapping[ObjectKind, ClassFacts] = field(default_factory=dict)
    """What is known of each kind of which it gets a class."""
    refused: bool = False
    """It may not be used, and nothing of it is known."""


def read_kubernetes(
    source: KubernetesSource, root: Path, readings_dir: Path, *, keep: bool = False, held: bool = True
) -> ClusterResult:
    """Read a running cluster.

    Args:
        source: which one.
        root: the project's directory, which a kubeconfig's path is relative to.
        readings_dir: where the stack's last good readings are.
        keep: make this the last good reading.
        held: Services of it hold something.

    Raises:
        SourceError: if it can't be read, there is no last good reading, and it holds something.

    """
    readings = ReadCache(readings_dir)
    try:
        intended = allowed_meaning(source, root)
        access = intended.access
        listed, unread = list_objects(Cluster(access))
    except KubeError as error:
        return _from_copy(source, root, readings, error, needed=held)
    last = _last_of(readings, source)
    gateways = of_gateways(last)
    listings = [
        (routed, list_routed(routed, source.cluster, access, gateways, makes_class=source.classes))
        for routed in (GATEWAYS, INGRESSES)
    ]
    ranges, unknown = list_ranges(access, last) if source.reads_pod_ranges else ((), "")
    objects = _interesting([*listed, *(document for _, listing in listings for document in listing.objects), *ranges])
    if keep:
        note_served(source, intended, root)
        readings.keep(source.cluster, {access.context: objects})
    parsed = _parsed(source, objects)
    contents = Contents(source.cluster, few_kinds(kinds_of(objects)))
    failures = (
        routed.notices(source.cluster, listing.failure, uses=bool(listing.objects)) for routed, listing in listings
    )
    missing = (
        *slice_notices(source.cluster, unread),
        *(failure for notices in failures for failure in notices),
        *notices_of_ranges(source.cluster, unknown),
    )
    parsed = replace(parsed, notices=(*parsed.notices, *missing))
    classes = {routed.class_kind: listing.classes for routed, listing in listings if listing.classes}
    families = health_ports(parsed)
    forwarding = forwarding_facts(source, access, parsed, families)
    return ClusterResult(SourceResult(parsed, contents=contents), access, families, forwarding, classes=classes)


def read_cluster(source: KubernetesSource, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
    """Read a running cluster of a stack; `existing` are the Services that hold something. Raises SourceError."""
    held = is_held(source, existing)
    return _source_read(source, read_kubernetes(source, Path(home.root), stack_directory(home), keep=keep, held=held))


def last_reading(source: KubernetesSource, home: Home, existing: Collection[ObjectKey], why: KubeError) -> SourceRead:
    """Return what counts of a cluster that can't be read. Raises SourceError if it holds something that isn't known."""
    readings, held = ReadCache(stack_directory(home)), is_held(source, existing)
    return _source_read(source, _from_copy(source, Path(home.root), readings, why, needed=held))


def is_held(source: KubernetesSource, existing: Collection[ObjectKey]) -> bool:
    """Return whether the stack has something of this cluster; `existing` are the Services that hold something."""
    return any(key.cluster == source.cluster for key in existing)


def _source_read(source: KubernetesSource, read: ClusterResult) -> SourceRead:
    ports = {source.cluster: read.health_ports}
    access = {} if read.refused else {source.cluster: read.access}
    forwarding = {source.cluster: read.forwarding} if read.forwarding else {}
    return SourceRead(read.reading, access, ports, forwarding, read.unready, classes=classes_of(source, read.classes))


def classes_of(
    source: KubernetesSource, known: Mapping[ObjectKind, ClassFacts]
) -> Mapping[ClusterName, Mapping[ObjectKind, ClassFacts]]:
    return {source.cluster: known} if source.classes else {}


def _last_of(readings: ReadCache, source: KubernetesSource) -> Objects:
    """Return what the last good reading has; nothing where it can't be used."""
    with suppress(SourceError):
        return tuple(document for listed in (readings.load(source.cluster) or {}).values() for document in listed)
    return ()


def _interesting(listed: Iterable[object]) -> Objects:
    """Return the objects that are read, without what makes them large."""
    retained, _ = relevant(listed)
    return tuple(slim(item) for item in retained)


def _parsed(source: KubernetesSource, objects: Iterable[object]) -> Parsed:
    parsed = parse_objects(source.cluster, objects)
    return with_backends_of_cluster(source.cluster, parsed, loopback=source.loopback_backends)


def _from_copy(
    source: KubernetesSource, root: Path, readings: ReadCache, why: KubeError, *, needed: bool
) -> ClusterResult:
    last = readings.load(source.cluster)
    sentence = f"source {source.cluster}: the cluster can't be read: {why}"
    remedied = f"{sentence}; {_REMEDIES.get(type(why), 'repair that')}, or correct local-lb:sources"
    if not last and needed:
        raise SourceError(remedied)
    if not last:
        access = Access(str(kubeconfig_path(source.kubeconfig, root)), source.context)
        if isinstance(why, UnconfirmedError):
            return ClusterResult(SourceResult(Parsed(), (f"source {source.cluster}: {why}",)), access, refused=True)
        if source.silent or (source.found and isinstance(why, UnreachableError)):
            return not_up_yet(source, access, str(why))
        return ClusterResult(SourceResult(Parsed(), (sentence if source.found else remedied,)), access)
    remedy = _REMEDIES.get(type(why), "repair that")
    stale = f"{sentence}; so its Services count as last read: {remedy}, or take it out of local-lb:sources"
    context = ContextName(min(last))
    access = Access(str(kubeconfig_path(source.kubeconfig, root)), source.context or context)
    parsed = _parsed(source, (item for listed in last.values() for item in listed))
    reading = _of_silent(source, parsed) if source.silent else SourceResult(parsed, (stale,))
    families = health_ports(parsed)
    return ClusterResult(reading, access, families, forwarding_facts(source, None, parsed, families))


def _of_silent(source: KubernetesSource, parsed: Parsed) -> SourceResult:
    sentence = f"the cluster {source.cluster} {source.silent} and doesn't answer, so its Services count as last read"
    return SourceResult(replace(parsed, notices=(*parsed.notices, sentence)))


def not_up_yet(source: KubernetesSource, access: Access, why: str = "") -> ClusterResult:
    """Return the empty result of a cluster that was found and didn't answer yet."""
    sentence = f"the cluster {source.cluster} " + (source.silent or "isn't up yet") + (f": {why}" if why else "")
    return ClusterResult(SourceResult(Parsed(notices=(sentence,))), access, unready=True)


KUBELET_PORT = 10250
_MAX_NODE_PORTS = 4
"""NodePorts that are tried: a firewall may let connections to them through and no others."""
_MAX_NAMESPACES = 50
"""Namespaces for which a right is asked one by one."""


def forwarding_facts(
    source: KubernetesSource,
    access: Access | None,
    parsed: Parsed,
    families: Collection[Family],
    before: ForwardingFacts | None = None,
) -> ForwardingFacts | None:
    """Find out whether this host reaches a Node, and where that may matter, to which pods this user may connect.

    `families` are those in which kube-proxy answers. While the API doesn't say, or isn't asked without `access`, what
    was `before` counts; without that, what may be served by it stays.
    """
    if source.forwarding is None:
        return None
    addresses = [address for node in parsed.nodes for address in node.addresses]
    node_ports = (port.node_port for service in parsed.services for port in service.ports if port.node_port)
    tried = (KUBE_PROXY_PORT, KUBELET_PORT, *islice(dict.fromkeys(node_ports), _MAX_NODE_PORTS))
    answer = bool(families) or not addresses or any_reached(addresses, tried)
    if answer and not may_need_api(source, parsed):
        return ForwardingFacts()
    unknown = replace(before, nodes_answer=answer) if before else ForwardingFacts(answer, everywhere=True)
    if access is None:
        return unknown
    try:
        cluster = Cluster(access)
        if cluster.may_forward():
            return ForwardingFacts(answer, requested=True, everywhere=True)
        namespaces = {service.key.namespace for service in (*parsed.services, *parsed.internal)}
        requested = sorted(namespaces)[:_MAX_NAMESPACES]
        allowed = frozenset(namespace for namespace in requested if cluster.may_forward(namespace))
    except KubeError:
        return unknown
    return ForwardingFacts(answer, requested=True, namespaces=allowed)


def may_need_api(source: KubernetesSource, parsed: Parsed) -> bool:
    """Return whether a port may have no way but the API although Nodes are reached."""
    if source.forwarding is None:
        return False
    if parsed.gateway_api or any(not port.node_port for service in parsed.services for port in service.ports):
        return True
    return bool(source.forwarding and parsed.internal)


def health_ports(parsed: Parsed) -> frozenset[Family]:
    """Ask the Nodes on kube-proxy's health port: find the families in which any answers."""
    return answering([address for node in parsed.nodes for address in node.addresses], KUBE_PROXY_PORT)
