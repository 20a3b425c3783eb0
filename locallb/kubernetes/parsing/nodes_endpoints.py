"""Parses Nodes and EndpointSlices.

Unlike a Service, a malformed one has no status to report it: it is left out, with a notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from locallb.kubernetes.pod_ranges import read_cidrs
from locallb.model.fields import FieldError, Fields, as_address, as_text
from locallb.model.identities import ClusterName, Family, IPAddress, NodeName, ObjectKey, Protocol
from locallb.model.objects import Endpoint, EndpointPort, EndpointSlice, Node

SERVICE_LABEL = "kubernetes.io/service-name"
_MANAGER_LABEL, _CONTROLLER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
_INTERNAL = "InternalIP"
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
    internal = [entry for entry in entries if entry.text("type") == _INTERNAL]
    networks, odd = read_cidrs([*spec.items("podCIDRs")] or [(spec.at("podCIDR"), spec.get("podCIDR"))])
    return Node(
        cluster=cluster,
        name=NodeName(name),
        addresses=tuple(as_address(entry.at("address"), entry.text("address")) for entry in internal),
        labels=metadata.texts("labels"),
        taints=tuple(Fields.of(path, item).text("key") for path, item in spec.items("taints")),
        deleting=metadata.get("deletionTimestamp") is not None,
        pod_cidrs=networks,
        odd=odd,
    )


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
    )


def _address(path: str, item: object, family: Family) -> IPAddress:
    address = as_address(path, as_text(path, item))
    if Family.of(address) is not family:
        raise FieldError(f"{path} is {address} in a slice of {family}; give an {family} address")
    return address
