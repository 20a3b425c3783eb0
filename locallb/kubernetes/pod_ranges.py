"""Pod ranges of Nodes: spec.podCIDRs, or ranges that the CNI keeps in objects of its own.

Calico gives Nodes blocks of its pools as they need them (BlockAffinity), Cilium ranges by the Node (CiliumNode); then
spec.podCIDRs are unused, or the same. Unreadable objects are left out with a notice. Pure. Not here: routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network

from msgspec.structs import replace

from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.identities import ClusterName, IPNetwork, NodeName
from locallb.model.objects import Node, PodRanges
from locallb.model.texts import shown

CALICO, CILIUM = "BlockAffinity", "CiliumNode"
VERSIONS = {CALICO: "crd.projectcalico.org/v1", CILIUM: "cilium.io/v2"}
"""Kinds that clusters may have, and the apiVersion of each."""


def read_cidrs(listed: Iterable[tuple[str, object]]) -> tuple[tuple[IPNetwork, ...], tuple[str, ...]]:
    """Parse ranges, each with its path, and return a sentence for each invalid one. Empty is no range."""
    networks, odd = [], []
    for path, item in listed:
        try:
            if item:
                networks.append(ip_network(as_text(path, item), strict=False))
        except (ValueError, FieldError):
            odd.append(f"{path} is {shown(item)} and is left out; give a range such as 10.244.1.0/24")
    return tuple(networks), tuple(odd)


def parse_pod_ranges(_cluster: ClusterName, data: Mapping[object, object]) -> PodRanges | None:
    """Parse an object of a CNI as the ranges of a Node; None if it has none. Raises FieldError."""
    document = Fields("", data)
    return _READERS[str(data.get("kind"))](document, document.inner("spec"))


def _of_calico(_document: Fields, spec: Fields) -> PodRanges | None:
    """Parse a block: it counts once it is confirmed, until it is being deleted. `deleted` is a text there."""
    node, state = spec.text("node"), spec.text("state")
    if not node or state != "confirmed" or spec.get("deleted") in {True, "true"}:
        return None
    networks, odd = read_cidrs([(spec.at("cidr"), spec.get("cidr"))])
    return PodRanges(NodeName(node), networks, odd)


def _of_cilium(document: Fields, spec: Fields) -> PodRanges | None:
    """Read the ranges of a Node. With other kinds of IPAM (of clouds) it has none."""
    networks, odd = read_cidrs(spec.inner("ipam").items("podCIDRs"))
    name = document.inner("metadata").text("name")
    return PodRanges(NodeName(name), networks, odd) if name and (networks or odd) else None


_READERS: Mapping[str, Callable[[Fields, Fields], PodRanges | None]] = {CALICO: _of_calico, CILIUM: _of_cilium}


def with_ranges(nodes: Iterable[Node], ranges: Iterable[PodRanges]) -> tuple[Node, ...]:
    """Return a cluster's Nodes with the CNI's ranges; where there are any, spec.podCIDRs of no Node count."""
    by_node: dict[NodeName, list[IPNetwork]] = {}
    for given in ranges:
        by_node.setdefault(given.node, []).extend(given.networks)
    if not any(by_node.values()):
        return tuple(nodes)
    return tuple(replace(node, pod_cidrs=tuple(dict.fromkeys(by_node.get(node.name, ())))) for node in nodes)
