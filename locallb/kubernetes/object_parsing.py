"""Parses Kubernetes objects, from YAML or an API, into the types of `model`. Total: no input makes it raise.

Kept are Services of type LoadBalancer, Nodes, EndpointSlices, pod ranges of CNIs, and objects of Gateway API; lists of
any depth are opened; other kinds are ignored. A malformed Service is kept as such, because its status can report it; a
malformed Node or EndpointSlice has no such status and becomes a notice.

A user with the right to write Nodes or EndpointSlices may name any address as a backend, and the proxies run on this
host: 127.0.0.1 would be a service that listens for this host alone, 169.254.169.254 the credentials of a cloud's
machine. A running cluster may therefore have no such address, unless its source states that its Nodes are on this
host's loopback. Manifests may: their authors can write to this host. Not here: fields of Services (`service_parsing`)
and of Gateway API (`gateway.kinds`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.registry import LOOPBACK_BACKENDS
from locallb.gateway.status_patch import ObservedRouteStatus
from locallb.kubernetes import pod_ranges
from locallb.kubernetes.events import Identity
from locallb.kubernetes.pod_ranges import read_cidrs
from locallb.kubernetes.relevant import Definitions, Document, held_against, of_use, parse_gateway_api, relevant
from locallb.kubernetes.service_parsing import ServiceRead, malformed, read_service
from locallb.kubernetes.status import ObservedStatus
from locallb.model.fields import FieldError, Fields, as_address, as_text, at, text_of
from locallb.model.gateway_of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName, Family, IPAddress, NodeName, ObjectKey, Protocol
from locallb.model.memory import Memo, few_replaced
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, MalformedService, Node, PodRanges, Service
from locallb.model.own_nodes import HOSTNAME, INTERNAL, PROVIDED
from locallb.model.texts import cleaned, fault_of

_ANY = ip_network("0.0.0.0/8")
"""Addresses of this host, which some kernels take for 0.0.0.0."""
_BROADCAST = ip_address("255.255.255.255")
_COMPATIBLE = ip_network("::/96")
_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
"""Of AWS, Alibaba Cloud and Azure; those of others are link-local."""


def refusal(address: IPAddress, *, loopback: bool) -> str:
    """Return the kind of an address that no backend of a running cluster may have; empty for allowed ones."""
    intended = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
    if intended.is_loopback:
        return "" if loopback else "loopback"
    kinds = {
        "unspecified": intended.is_unspecified or intended in _ANY,
        "IPv4-compatible": intended in _COMPATIBLE,
        "broadcast": intended == _BROADCAST,
        "link-local": intended.is_link_local,
        "multicast": intended.is_multicast,
        "metadata": intended in _METADATA,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "")


def with_backends_of_cluster(cluster: ClusterName, parsed: Parsed, *, loopback: bool) -> Parsed:
    """Return the objects of a running cluster without such addresses, each with a notice; mostly the identical ones."""
    notices: list[str] = []

    def allowed(what: str, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
        retained = []
        for address in addresses:
            if kind := refusal(address, loopback=loopback):
                remedy = f"; {LOOPBACK_BACKENDS}: true in its source allows it" if kind == "loopback" else ""
                notices.append(f"{cluster}: {what} has the {kind} address {address}, which isn't used{remedy}")
            else:
                retained.append(address)
        return tuple(retained)

    nodes = tuple(_node(node, allowed) for node in parsed.nodes)
    slices = tuple(_slice(endpoint_slice, allowed) for endpoint_slice in parsed.slices)
    if not notices:
        return parsed
    reported = tuple(dict.fromkeys(notices))
    return replace(parsed, nodes=nodes, slices=slices, notices=(*parsed.notices, *reported))


_Allowed = Callable[[str, Iterable[IPAddress]], tuple[IPAddress, ...]]


def _node(node: Node, allowed: _Allowed) -> Node:
    retained = allowed(f"Node {node.name}", node.addresses)
    provided = allowed(f"Node {node.name}", node.provided)
    if (retained, provided) == (node.addresses, node.provided):
        return node
    return replace(node, addresses=retained, provided=provided)


def _slice(endpoint_slice: EndpointSlice, allowed: _Allowed) -> EndpointSlice:
    service = endpoint_slice.service
    what = f"an endpoint of {service.namespace}/{service.name}"
    retained = [(endpoint, allowed(what, endpoint.addresses)) for endpoint in endpoint_slice.endpoints]
    if all(addresses == endpoint.addresses for endpoint, addresses in retained):
        return endpoint_slice
    endpoints = tuple(replace(endpoint, addresses=addresses) for endpoint, addresses in retained if addresses)
    return replace(endpoint_slice, endpoints=endpoints)


SERVICE_LABEL = "kubernetes.io/service-name"
_MANAGER_LABEL, _CONTROLLER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
_LARGEST_PORT = 65535


class _AddressType(StrEnum):
    IPV4 = "IPv4"
    IPV6 = "IPv6"
    FQDN = "FQDN"


def parse_node(cluster: ClusterName, data: Mapping[object, object]) -> Node:
    """Take an object of kind Node as a Node. Raises FieldError."""
    document = Fields("", data)
    metadata, spec = document.inner("metadata"), document.inner("spec")
    name = metadata.text("name")
    if not name:
        raise FieldError("metadata.name is missing; give the Node a name")
    entries = [Fields.of(path, item) for path, item in document.inner("status").items("addresses")]
    internal = [entry for entry in entries if entry.text("type") == INTERNAL]
    networks, odd = read_cidrs([*spec.items("podCIDRs")] or [(spec.at("podCIDR"), spec.get("podCIDR"))])
    hostnames = (text_of(entry.get("address")) for entry in entries if entry.text("type") == HOSTNAME)
    return Node(
        cluster=cluster,
        name=NodeName(name),
        addresses=tuple(as_address(entry.at("address"), entry.text("address")) for entry in internal),
        labels=metadata.texts("labels"),
        taints=tuple(Fields.of(path, item).text("key") for path, item in spec.items("taints")),
        deleting=metadata.get("deletionTimestamp") is not None,
        pod_cidrs=networks,
        odd=odd,
        uid=text_of(metadata.get("uid")),
        provider=text_of(spec.get("providerID")),
        hostname=next(filter(None, hostnames), ""),
        provided=tuple(dict.fromkeys(_provided(text_of(at(metadata.get("annotations"), PROVIDED))))),
    )


def _provided(text: str) -> Iterator[IPAddress]:
    """Return the addresses of a kubelet's --node-ip; 0.0.0.0 and :: name a family only."""
    for part in text.split(","):
        with suppress(FieldError):
            if not (address := as_address(PROVIDED, part.strip())).is_unspecified:
                yield address


def parse_slice(cluster: ClusterName, data: Mapping[object, object]) -> EndpointSlice | None:
    """Take an object of kind EndpointSlice as an EndpointSlice; None if it isn't of a Service's IP addresses.

    Raises FieldError.
    """
    document = Fields("", data)
    metadata = document.inner("metadata")
    labels = metadata.texts("labels")
    service = labels.get(SERVICE_LABEL, "")
    address_type = document.choice("addressType", _AddressType.IPV4)
    if not service or address_type is _AddressType.FQDN:
        return None
    family = Family(address_type.value)
    return EndpointSlice(
        service=ObjectKey(cluster, metadata.label("namespace", "default"), service),
        family=family,
        ports=tuple(_port(Fields.of(path, item)) for path, item in document.items("ports")),
        endpoints=tuple(_endpoint(Fields.of(path, item), family) for path, item in document.items("endpoints")),
        managed=labels.get(_MANAGER_LABEL, "") == _CONTROLLER,
    )


def _port(fields: Fields) -> EndpointPort:
    return EndpointPort(
        port=fields.integer("port", 0, _LARGEST_PORT, 0),
        protocol=fields.choice("protocol", Protocol.TCP),
        name=fields.text("name"),
    )


def _endpoint(fields: Fields, family: Family) -> Endpoint:
    addresses = tuple(_address(path, item, family) for path, item in fields.items("addresses"))
    if not addresses:
        raise FieldError(f"{fields.at('addresses')} is empty; give the endpoint an address")
    conditions = fields.inner("conditions")
    ready, serving, terminating = (conditions.flag(name) for name in ("ready", "serving", "terminating"))
    node, target = fields.text("nodeName"), fields.inner("targetRef")
    return Endpoint(
        addresses,
        ready=ready is not False,
        node=NodeName(node) if node else None,
        draining=bool(serving and terminating),
        pod=target.text("name") if target.text("kind") == "Pod" else "",
        hostname=fields.label("hostname"),
    )


def _address(path: str, item: object, family: Family) -> IPAddress:
    address = as_address(path, as_text(path, item))
    if Family.of(address) is not family:
        raise FieldError(f"{path} is {address} in a slice of {family}; give an {family} address")
    return address


AnyStatus: TypeAlias = ObservedStatus | ObservedRouteStatus
"""An object's observed status, as far as it is ours: of a Service, or of Gateway API."""
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
    internal: tuple[Service, ...] = ()
    """Services of other types than LoadBalancer, which a stack may serve on request."""


class ParsedObject(Struct, frozen=True):
    """Parse result of one object by itself."""

    document: Document
    identity: Identity
    read: ServiceRead | None = None
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
        internal=tuple(gathering.internal[key] for key in sorted(gathering.internal.keys() - gathering.services)),
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
    if read is None or read.external_ips or read.malformed or read.observed_status != _SILENT:
        return None
    return read.wanted


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
    if kind == "Service":
        read = read_service(cluster, document)
        notices = (*read.notices, *([_left_out(cluster, identity, read.left_out)] if read.left_out else []))
        return replace(understood, read=read, notices=notices)
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
    internal: dict[ObjectKey, Service] = field(default_factory=dict)
    malformed: list[MalformedService] = field(default_factory=list)
    nodes: dict[Identity, Node] = field(default_factory=dict)
    slices: dict[Identity, EndpointSlice] = field(default_factory=dict)
    external_ips: set[IPAddress] = field(default_factory=set)
    ranges: dict[Identity, PodRanges] = field(default_factory=dict)
    observed_statuses: dict[ObjectKey, ObservedStatus] = field(default_factory=dict)
    gateway_api: list[ObjectOfCluster] = field(default_factory=list)

    def take(self, understood: ParsedObject) -> None:
        if understood.notices:
            self.notices.extend(understood.notices)
        if understood.gateway_api:
            self.gateway_api.extend(understood.gateway_api)
        if understood.read:
            self._take_service(understood.read, understood.document)
        elif understood.other:
            self._take_other(understood.identity, understood.other)

    def _take_service(self, read: ServiceRead, document: Document) -> None:
        self.external_ips |= read.external_ips
        claimed = read.wanted or read.malformed
        if claimed is not None and read.observed_status != _SILENT:
            self.observed_statuses.setdefault(claimed.key, read.observed_status)
        if read.internal:
            self.internal.setdefault(read.internal.key, read.internal)
        if read.malformed:
            self.malformed.append(read.malformed)
        elif read.wanted and read.wanted.key in self.services:
            why = "this source has another Service of that name, which counts; remove or rename one"
            self.malformed.append(malformed(self.cluster, document, why))
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
