"""Initialization of Nodes of which the kubelets leave that to a cloud provider (`cloud-provider: external`).

One decision for the planner and the resource, as upstream's cloud-node-controller takes it: which Node waits for a
cloud provider, what it gets, how it differs from that, and the patches. Not here: which clusters are asked for it
(`planning.own_nodes`), and requests (`provider.initialized_node`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from locallb.model.fields import at, objects_of, text_of
from locallb.model.identities import ClusterName, IPAddress, NodeName
from locallb.model.objects import Node

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
"""The taint with which such a kubelet registers its Node: no pod runs there that doesn't tolerate it."""
PROVIDED = "alpha.kubernetes.io/provided-node-ip"
"""The annotation with a kubelet's --node-ip."""
INTERNAL, HOSTNAME = "InternalIP", "Hostname"
_SCHEME = "local-lb"
_LOCAL_SCHEMES = frozenset({_SCHEME, "kind"})
"""Schemes of providerIDs whose cloud has no other controller: kind's kubelets have one from the start."""


class InitializedNode(Struct, frozen=True):
    """What a Node gets, or got by the state."""

    cluster: ClusterName
    name: NodeName
    uid: str
    provider: str
    """spec.providerID, which never changes once it is set."""
    addresses: tuple[IPAddress, ...]
    """InternalIPs that it has at least."""
    hostname: str
    """Its Hostname, if it has none."""


def is_of_another(node: Node) -> bool:
    """Return whether a Node's providerID is of a cloud provider with a controller of its own."""
    return bool(node.provider) and node.provider.partition("://")[0] not in _LOCAL_SCHEMES


def is_initialized_by_us(node: Node) -> bool:
    """Return whether a Node's providerID is one that local-lb gave it."""
    return node.provider.startswith(f"{_SCHEME}://")


def initialized(node: Node, held: InitializedNode | None) -> InitializedNode:
    """Return what a Node is to have: addresses as its kubelet names them, else those that it has, or had."""
    return InitializedNode(
        node.cluster,
        node.name,
        node.uid,
        node.provider or f"{_SCHEME}://{node.cluster}/{node.name}",
        node.provided or node.addresses or (held.addresses if held else ()),
        node.hostname or node.name,
    )


def node_differences(node: Node, wanted: InitializedNode) -> tuple[str, ...]:
    """Name the fields of a Node that aren't as wanted."""
    return tuple(_differences(node, wanted))


def _differences(node: Node, wanted: InitializedNode) -> Iterator[str]:
    if not node.hostname or not set(wanted.addresses) <= set(node.addresses):
        yield "addresses"
    if node.provider != wanted.provider:
        yield "providerID"
    if TAINT in node.taints:
        yield "taints"


def addresses_patch(document: Mapping[Any, Any], wanted: InitializedNode) -> dict[str, object]:
    """Return the merge patch of the status over the version that was read.

    InternalIPs stay if all that are wanted are among them, as do addresses of other types.
    """
    existing = objects_of(at(document, "status", "addresses"))
    addresses = [each for each in existing if each.get("type") == INTERNAL]
    if not {*map(str, wanted.addresses)} <= {each.get("address") for each in addresses}:
        addresses = [{"type": INTERNAL, "address": str(address)} for address in wanted.addresses]
    others = [each for each in existing if each.get("type") != INTERNAL and not _is_empty_hostname(each)]
    if all(each.get("type") != HOSTNAME for each in others):
        addresses = [*addresses, {"type": HOSTNAME, "address": wanted.hostname}]
    return {**_over(document), "status": {"addresses": [dict(each) for each in (*addresses, *others)]}}


def _is_empty_hostname(address: Mapping[Any, Any]) -> bool:
    return address.get("type") == HOSTNAME and not text_of(address.get("address"))


def spec_patch(document: Mapping[Any, Any], wanted: InitializedNode) -> dict[str, object]:
    """Return the merge patch of the spec over the version that was read; other taints stay."""
    taints = [dict(each) for each in objects_of(at(document, "spec", "taints")) if each.get("key") != TAINT]
    return {**_over(document), "spec": {"providerID": wanted.provider, "taints": taints or None}}


def _over(document: Mapping[Any, Any]) -> dict[str, object]:
    return {"metadata": {"resourceVersion": text_of(at(document, "metadata", "resourceVersion"))}}
