"""Parses a Service, with the API's own defaults and validation.

A Service that the API server would refuse is refused here by the same rules, as far as a load balancer cares, because
manifests never passed an API server. Not here: which objects are Services (`object_parsing`), and which are ours
(`planning.selection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_network

from msgspec import Struct
from msgspec.structs import replace

from locallb.kubernetes.status import (
    BACKENDS_ANNOTATION,
    NAME_IN_STATUS_ANNOTATION,
    PROXY_PROTOCOL_ANNOTATION,
    SERVING,
    SHARING_ANNOTATION,
    ObservedStatus,
    YesOrNo,
    annotation_path,
    chosen,
    observed_status,
    unread_annotations,
)
from locallb.model.faults import fault_in
from locallb.model.fields import FieldError, Fields, as_address, as_choice, as_text, at, object_of, objects_of, text_of
from locallb.model.identities import ClusterName, Family, IPAddress, IPNetwork, ObjectKey, Protocol, SharingKey, Uid
from locallb.model.objects import (
    ADDRESSES_ANNOTATION,
    BackendChoice,
    FamilyPolicy,
    IngressEntry,
    MalformedService,
    ProxyProtocol,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from locallb.model.ranges import sorted_networks
from locallb.model.reasons import WITHOUT_ADDRESS, Problem, Reason
from locallb.model.texts import clipped, fault_of, shown

SOURCE_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"
"""The API's older way to write spec.loadBalancerSourceRanges, comma-separated."""
LOAD_BALANCER = ServiceType.LOAD_BALANCER.value
DEFAULT_NAMESPACE = "default"
NAMELESS = "(no name)"
_LARGEST_PORT = 65535
_NO_ADDRESS = "None"
"""spec.clusterIP of a headless Service."""
_TYPES = frozenset({*map(str, ServiceType), "ExternalName"})


class _Affinity(StrEnum):
    NONE = "None"
    CLIENT_IP = "ClientIP"


class ServiceRead(Struct, frozen=True):
    """Parse result of one Service. Neither `wanted` nor `malformed`: it gets nothing, which is no error."""

    wanted: Service | None = None
    malformed: MalformedService | None = None
    observed_status: ObservedStatus = ObservedStatus()
    """Its status, as far as it is ours to write."""
    notices: tuple[str, ...] = ()
    external_ips: frozenset[IPAddress] = frozenset()
    """Addresses of other hosts that it claims for itself."""
    left_out: str = ""
    """The reason that it is ignored, if its user must be notified."""
    internal: Service | None = None
    """A Service of another type, which a stack may serve on request."""


def read_service(cluster: ClusterName, document: Mapping[object, object]) -> ServiceRead:
    """Read a Service of any type; of other types than LoadBalancer mistakes don't count. Never raises."""
    spec = document.get("spec")
    theirs = _external_ips(spec)
    kind = at(spec, "type")
    if spec is not None and not isinstance(spec, Mapping):
        why = f"spec is {shown(spec)}; give an object such as {{type: {LOAD_BALANCER}}}"
        return ServiceRead(external_ips=theirs, left_out=why)
    if kind != LOAD_BALANCER:
        odd = kind and not (isinstance(kind, str) and kind in _TYPES)
        why = f"spec.type is {shown(kind)}; write LoadBalancer to give it an address" if odd else ""
        return ServiceRead(external_ips=theirs, left_out=why, internal=_internal(cluster, document))
    service, stated = parse_service(cluster, document), observed_status(document)
    notices = tuple(f"{service.key}: {field}" for field in unread_annotations(document))
    if isinstance(service, MalformedService):
        return ServiceRead(None, service, stated, notices, theirs)
    return ServiceRead(service, None, stated, notices, theirs)


def _internal(cluster: ClusterName, data: Mapping[object, object]) -> Service | None:
    """Read a Service of type ClusterIP or NodePort; None for one that can't be served, which nobody requested.

    That it requires both families is about its cluster IPs (the API says so of each headless one without a selector).
    """
    kind = text_of(at(data, "spec", "type")) or ServiceType.CLUSTER_IP.value
    if kind not in {ServiceType.CLUSTER_IP.value, ServiceType.NODE_PORT.value} or not at(data, "spec", "ports"):
        return None
    read = parse_service(cluster, data)
    if isinstance(read, MalformedService):
        return None
    policy = FamilyPolicy.PREFER_DUAL if read.family_policy is FamilyPolicy.REQUIRE_DUAL else read.family_policy
    headless = at(data, "spec", "clusterIP") == _NO_ADDRESS
    served = replace(read, type=ServiceType(kind), family_policy=policy, headless=headless)
    return replace(served, ingress=(), hostnames=(), load_balancer_class=None)


def parse_service(cluster: ClusterName, data: Mapping[object, object]) -> Service | MalformedService:
    """Take an object of kind Service as a Service. Never raises."""
    try:
        return _service(cluster, data)
    except FieldError as error:
        return malformed(cluster, data, str(error))


def malformed(cluster: ClusterName, data: Mapping[object, object], why: str) -> MalformedService:
    """Make the answer to a Service that can't be understood, under as much of its name as can be read."""
    raw = object_of(data.get("metadata"))
    key = ObjectKey(cluster, _readable(raw.get("namespace"), DEFAULT_NAMESPACE), _readable(raw.get("name"), NAMELESS))
    klass = at(data, "spec", "loadBalancerClass")
    return MalformedService(
        key,
        Problem(Reason.MALFORMED, f"{key}: {why}"),
        Uid(text_of(raw.get("uid"))),
        load_balancer_class=klass if isinstance(klass, str) else None,
        deleting=raw.get("deletionTimestamp") is not None,
        labels=_readable_texts(raw.get("labels")),
    )


def _readable_texts(labels: object) -> Mapping[str, str]:
    return {key: value for key, value in object_of(labels).items() if isinstance(key, str) and isinstance(value, str)}


def _readable(name: object, default: str) -> str:
    return clipped(name) if isinstance(name, str) and name else default


def _service(cluster: ClusterName, data: Mapping[object, object]) -> Service:
    if fault := fault_of(data):
        raise FieldError(fault)
    document = Fields("", data)
    metadata, spec = document.inner("metadata"), document.inner("spec")
    annotations = metadata.texts("annotations")
    policy, families = _families(spec)
    klass = spec.get("loadBalancerClass")
    return Service(
        key=_key(cluster, metadata),
        ports=_ports(spec),
        uid=Uid(metadata.text("uid")),
        created=metadata.text("creationTimestamp"),
        families=families,
        family_policy=policy,
        requested=_requested(spec, annotations),
        sharing_key=_sharing_key(annotations),
        backends=chosen(annotations, BACKENDS_ANNOTATION, BackendChoice),
        proxy_protocol=chosen(annotations, PROXY_PROTOCOL_ANNOTATION, ProxyProtocol),
        fault=fault_in(annotations),
        name_in_status=_decided(annotations, NAME_IN_STATUS_ANNOTATION),
        source_ranges=_source_ranges(spec, annotations),
        client_ip_affinity=spec.choice("sessionAffinity", _Affinity.NONE) is _Affinity.CLIENT_IP,
        traffic_policy=spec.choice("externalTrafficPolicy", TrafficPolicy.CLUSTER),
        health_check_node_port=spec.integer("healthCheckNodePort", 0, _LARGEST_PORT, 0),
        load_balancer_class=None if klass is None else spec.text("loadBalancerClass"),
        deleting=metadata.get("deletionTimestamp") is not None,
        labels=metadata.texts("labels"),
        annotations=annotations,
        ingress=_ingress(data.get("status")),
        hostnames=_hostnames(data.get("status")),
        was_served=_was_served(data.get("status")),
    )


def _sharing_key(annotations: Mapping[str, str]) -> SharingKey:
    key = annotations.get(SHARING_ANNOTATION, "").strip()
    if not key.isprintable():
        raise FieldError(f"{annotation_path(SHARING_ANNOTATION)} is {shown(key)}; use printable characters")
    return SharingKey(key)


def _decided(annotations: Mapping[str, str], name: str) -> bool | None:
    decision = chosen(annotations, name, YesOrNo)
    return None if decision is None else decision is YesOrNo.YES


def _key(cluster: ClusterName, metadata: Fields) -> ObjectKey:
    name = metadata.label("name")
    if not name:
        raise FieldError("metadata.name is missing; give the Service a name")
    return ObjectKey(cluster, metadata.label("namespace", DEFAULT_NAMESPACE), name)


def _ports(spec: Fields) -> tuple[ServicePort, ...]:
    ports = tuple(_port(Fields.of(path, item)) for path, item in spec.items("ports"))
    if not ports:
        raise FieldError("spec.ports is empty; a LoadBalancer needs at least one port")
    observed: dict[object, int] = {}
    for number, port in enumerate(ports):
        for what, identity in (("port", (port.port, port.protocol)), ("name", port.name or number)):
            if (first := observed.setdefault(identity, number)) != number:
                value = f"port {port}" if what == "port" else f"the name {shown(port.name)}"
                raise FieldError(f"spec.ports[{number}] repeats {value} of spec.ports[{first}]; give it another {what}")
    return ports


def _port(fields: Fields) -> ServicePort:
    return ServicePort(
        port=fields.integer("port", 1, _LARGEST_PORT),
        protocol=fields.choice("protocol", Protocol.TCP),
        name=fields.label("name"),
        node_port=fields.integer("nodePort", 0, _LARGEST_PORT, 0),
        target_port=_target(fields),
        app_protocol=text_of(fields.get("appProtocol")),
    )


def _target(fields: Fields) -> int | str | None:
    """Read targetPort: a number, a port's name, or absent (0 and empty are what the API calls unset)."""
    value = fields.get("targetPort")
    if isinstance(value, str):
        return fields.label("targetPort") or None
    return fields.integer("targetPort", 0, _LARGEST_PORT, 0) or None


def _families(spec: Fields) -> tuple[FamilyPolicy, tuple[Family, ...]]:
    """Read the families and complete them as the API server of a dual-stack cluster would."""
    listed = tuple(as_choice(path, as_text(path, item), Family) for path, item in spec.items("ipFamilies"))
    if len(set(listed)) != len(listed):
        raise FieldError(f"spec.ipFamilies has {' and '.join(listed)}; name each family once")
    assigned = _cluster_families(spec)
    families = listed or assigned or (Family.IPV4,)
    several = len(families) > 1
    policy = spec.choice("ipFamilyPolicy", FamilyPolicy.REQUIRE_DUAL if several else FamilyPolicy.SINGLE)
    if policy is FamilyPolicy.SINGLE and several:
        raise FieldError("spec.ipFamilyPolicy is SingleStack with two families; use PreferDualStack or name one family")
    if policy is FamilyPolicy.REQUIRE_DUAL or (policy is FamilyPolicy.PREFER_DUAL and not assigned):
        families = (*families, *(other for other in Family if other not in families))
    return policy, families


def _cluster_families(spec: Fields) -> tuple[Family, ...]:
    """Return the families of the cluster IPs: what an API server chose, if one has seen this Service."""
    several = [item for _, item in spec.items("clusterIPs")] or [spec.get("clusterIP")]
    families = dict.fromkeys(Family.of(address) for item in several if (address := _address_or_none(item)))
    return tuple(families)


def _requested(spec: Fields, annotations: Mapping[str, str]) -> tuple[IPAddress, ...]:
    """Parse the requested addresses, of field and annotation; both may name the same one."""
    field, annotation = spec.at("loadBalancerIP"), annotation_path(ADDRESSES_ANNOTATION)
    requested = [(field, spec.text("loadBalancerIP"))]
    requested += [(annotation, part) for part in _parts(annotations.get(ADDRESSES_ANNOTATION, ""))]
    chosen: dict[Family, tuple[IPAddress, str]] = {}
    for path, text in requested:
        if text.strip():
            address = as_address(path, text.strip())
            first, where = chosen.setdefault(Family.of(address), (address, path))
            if first != address:
                both = f"{first} and {address}" if where == path else f"{address}, but {where} asks for {first}"
                raise FieldError(f"{path} asks for {both}; ask for one {Family.of(address)} address")
    return tuple(chosen[family][0] for family in Family if family in chosen)


def _source_ranges(spec: Fields, annotations: Mapping[str, str]) -> tuple[IPNetwork, ...]:
    """Read the clients allowed: the field or, where it is empty, the annotation, as kube-proxy does."""
    listed = [(path, as_text(path, item)) for path, item in spec.items("loadBalancerSourceRanges")]
    if not listed:
        path = annotation_path(SOURCE_RANGES_ANNOTATION)
        listed = [(path, part) for part in _parts(annotations.get(SOURCE_RANGES_ANNOTATION, ""))]
    return sorted_networks(_network(path, text.strip()) for path, text in listed)


def _network(path: str, text: str) -> IPNetwork:
    """Read a CIDR; bits beyond the prefix are cut off, as kube-proxy does."""
    try:
        if text.partition("/")[2].isdecimal() and "%" not in text:
            return ip_network(text, strict=False)
    except ValueError:
        pass
    raise FieldError(f"{path} has {shown(text)}; give a CIDR such as 10.0.0.0/8 or fd00::/8")


def _ingress(status: object) -> tuple[IngressEntry, ...]:
    """Parse the addresses of a status. It is untrusted: invalid entries are left out."""
    addresses = [_address_or_none(entry.get("ip")) for entry in objects_of(at(status, "loadBalancer", "ingress"))]
    return tuple(IngressEntry(address) for address in addresses if address)


def _hostnames(status: object) -> tuple[str, ...]:
    entries = objects_of(at(status, "loadBalancer", "ingress"))
    names = (text_of(entry.get("hostname")) for entry in entries if not entry.get("ip"))
    return tuple(clipped(name) for name in names if name)


def _was_served(status: object) -> bool:
    """Return whether our condition is that of a Service with an address."""
    serving = next((each for each in objects_of(at(status, "conditions")) if each.get("type") == SERVING), None)
    return serving is not None and text_of(serving.get("reason")) not in WITHOUT_ADDRESS


def _external_ips(spec: object) -> frozenset[IPAddress]:
    """Read spec.externalIPs of a Service of any type. What makes no sense is left out: they aren't ours to judge."""
    listed = at(spec, "externalIPs")
    if not isinstance(listed, list | tuple):
        return frozenset()
    return frozenset(address for item in listed if (address := _address_or_none(item)))


def _address_or_none(value: object) -> IPAddress | None:
    try:
        return as_address("", value) if isinstance(value, str) else None
    except FieldError:
        return None


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]
