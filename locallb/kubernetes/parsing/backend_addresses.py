"""Leaves out addresses of backends by which a cluster would reach this host itself, or nothing.

A user with the right to write Nodes or EndpointSlices may name any address as a backend, and the proxies run on this
host: 127.0.0.1 would be a service that listens for this host alone, 169.254.169.254 the credentials of a cloud's
machine. A running cluster may have no such address, unless its source says that its Nodes are on this host's loopback.
Manifests may: their authors can write to this host. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network

from msgspec.structs import replace

from locallb.config.source import LOOPBACK_BACKENDS
from locallb.kubernetes.parsing.objects import Parsed
from locallb.model.identities import ClusterName, IPAddress
from locallb.model.objects import EndpointSlice, Node

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
    return node if retained == node.addresses else replace(node, addresses=retained)


def _slice(endpoint_slice: EndpointSlice, allowed: _Allowed) -> EndpointSlice:
    service = endpoint_slice.service
    what = f"an endpoint of {service.namespace}/{service.name}"
    retained = [(endpoint, allowed(what, endpoint.addresses)) for endpoint in endpoint_slice.endpoints]
    if all(addresses == endpoint.addresses for endpoint, addresses in retained):
        return endpoint_slice
    endpoints = tuple(replace(endpoint, addresses=addresses) for endpoint, addresses in retained if addresses)
    return replace(endpoint_slice, endpoints=endpoints)
