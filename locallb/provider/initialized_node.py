"""The resource InitializedNode: a Node that gets addresses, a providerID, and loses the taint of an uninitialized one.

In the order of upstream's controller the taint goes last: a pod that comes then finds a Node with addresses. Nothing is
taken back: a providerID can't be, and a Node without addresses or with the taint would end pods. Not here: which
fields are ours (`model.own_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.object_parsing import parse_node
from locallb.model import own_nodes
from locallb.model.fields import FieldError
from locallb.model.identities import ClusterName, NodeName
from locallb.model.objects import Node
from locallb.model.texts import clipped
from locallb.planning.own_nodes import RIGHTS
from locallb.resources.properties import InitializedNodeInputs, InitializedNodeState
from locallb.resources.resource_type import ProviderError, ResourceType, grown


class InitializedNode(ResourceType[InitializedNodeInputs, InitializedNodeState]):
    """Initializes a Node, and repairs that."""

    replaced_for = frozenset({"owner", "access", "cluster", "node", "uid"})

    def create(self, new: InitializedNodeInputs) -> tuple[str, InitializedNodeState]:
        """Initialize it; one that is initialized already is left as it is."""
        live_object.repeated(lambda: _bring(new), f"{_name(new)} is", f"{RIGHTS} has the rights for Nodes")
        return f"{new.node}/{new.uid}", grown(self.state, new)

    def read(self, state: InitializedNodeState) -> InitializedNodeState | None:
        """Read whether it is as wanted. An API that doesn't answer proves nothing: then it counts as unchanged."""
        try:
            live = live_object.find_node(state.access, NodeName(state.node))
        except KubeError:
            return state
        if live is None or (node := _parsed(live, state)).uid != state.uid:
            return None
        return replace(state, provider="") if own_nodes.node_differences(node, _wanted(state)) else state

    def leaves_nothing(self, state: InitializedNodeState) -> bool:
        """Return True: what is left belongs to the Node."""
        del state
        return True

    def delete(self, state: InitializedNodeState) -> None:
        """Leave the Node as it is."""


def _bring(new: InitializedNodeInputs) -> bool | None:
    """Set addresses, then the rest; return None where the Node was written meanwhile."""
    wanted = _wanted(new)
    live = live_object.find_node(new.access, wanted.name)
    if live is None or (node := _parsed(live, new)).uid != new.uid:
        raise ProviderError(f"{_name(new)} is gone; run up again")
    differing = own_nodes.node_differences(node, wanted)
    if differing and node.provider and (node.provider != wanted.provider or own_nodes.is_of_another(node)):
        raise ProviderError(f"{_name(new)} got the providerID {clipped(node.provider)} meanwhile; run up again")
    if "addresses" in differing:
        patch = own_nodes.addresses_patch(live, wanted)
        live = live_object.patch_node(new.access, wanted.name, patch, status=True)
    if live is not None and {*differing} - {"addresses"}:
        live = live_object.patch_node(new.access, wanted.name, own_nodes.spec_patch(live, wanted))
    return None if live is None else True


def _parsed(live: Mapping[Any, Any], inputs: InitializedNodeInputs) -> Node:
    try:
        return parse_node(ClusterName(inputs.cluster), live)
    except FieldError as error:
        raise ProviderError(f"{_name(inputs)} can't be read: {error}") from None


def _wanted(inputs: InitializedNodeInputs) -> own_nodes.InitializedNode:
    return own_nodes.InitializedNode(
        ClusterName(inputs.cluster),
        NodeName(inputs.node),
        inputs.uid,
        inputs.provider,
        tuple(map(ip_address, inputs.addresses)),
        inputs.hostname,
    )


def _name(inputs: InitializedNodeInputs) -> str:
    return f"Node {inputs.node} of {inputs.cluster}"
