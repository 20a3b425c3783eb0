"""Nodes that wait for a cloud provider in a plan: which are initialized, with what, and why others aren't."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.kubernetes.object_parsing import parse_node
from locallb.model.identities import ClusterName, ContextName, NodeName
from locallb.model.objects import Node
from locallb.model.own_nodes import (
    HOSTNAME,
    INTERNAL,
    PROVIDED,
    TAINT,
    InitializedNode,
    addresses_patch,
    initialized,
    node_differences,
    spec_patch,
)
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.own_nodes import with_nodes
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support.fake_api import merged
from tests.support.worlds import HOME, OWN

DEMO = ClusterName("demo")
ON = replace(OWN, initializes_nodes=True)
FOUR, SIX = ip_address("10.0.0.2"), ip_address("fd00::2")
WAITING = Node(DEMO, NodeName("a"), uid="1", taints=("x", TAINT), provided=(FOUR, SIX))
DONE = replace(WAITING, taints=("x",), provider="local-lb://demo/a", addresses=(FOUR, SIX), hostname="a")
WANTED = InitializedNode(DEMO, NodeName("a"), "1", "local-lb://demo/a", (FOUR, SIX), "a")
OF_KIND = replace(WAITING, provider="kind://docker/demo/a", hostname="a", addresses=(FOUR,), provided=())


def world(*nodes: Node, held: tuple[InitializedNode, ...] = ()) -> Snapshot:
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    return Snapshot(HOME, access=access, nodes=nodes, initialized_nodes=held)


def plan(snapshot: Snapshot, settings: Settings = ON) -> Plan:
    return with_nodes(Plan(), snapshot, settings)


KIND_WANTED = replace(WANTED, provider=OF_KIND.provider, addresses=(FOUR,))


@pytest.mark.parametrize(
    ("node", "held", "wanted", "differing"),
    [
        pytest.param(WAITING, None, WANTED, ("addresses", "providerID", "taints"), id="waits"),
        pytest.param(OF_KIND, None, KIND_WANTED, ("taints",), id="kind's kubelet says its providerID"),
        pytest.param(DONE, None, WANTED, (), id="ours by its providerID"),
        pytest.param(replace(DONE, hostname="h"), None, replace(WANTED, hostname="h"), (), id="its Hostname stays"),
        pytest.param(replace(OF_KIND, taints=()), KIND_WANTED, KIND_WANTED, (), id="ours by the state"),
        pytest.param(OF_KIND, KIND_WANTED, KIND_WANTED, ("taints",), id="the taint came back"),
        pytest.param(
            replace(OF_KIND, taints=(), addresses=(), hostname=""),
            KIND_WANTED,
            KIND_WANTED,
            ("addresses",),
            id="its addresses are gone",
        ),
        pytest.param(
            replace(DONE, provided=(SIX,), addresses=(FOUR,)),
            WANTED,
            replace(WANTED, addresses=(SIX,)),
            ("addresses",),
            id="the kubelet has another address",
        ),
    ],
)
def test_nodes_that_are_initialized(
    node: Node, held: InitializedNode | None, wanted: InitializedNode, differing: tuple[str, ...]
) -> None:
    """Those that wait, and those that local-lb initialized; each by itself."""
    (planned,) = plan(world(node, held=(held,) if held else ())).nodes
    assert (planned.wanted, planned.differing, str(planned.key)) == (wanted, differing, "demo/node-a")


@pytest.mark.parametrize(
    ("node", "held"),
    [
        pytest.param(replace(OF_KIND, taints=()), (), id="doesn't wait"),
        pytest.param(replace(DONE, provider="aws:///a/b"), (), id="of another cloud provider"),
        pytest.param(replace(DONE, deleting=True), (WANTED,), id="is being deleted"),
        pytest.param(replace(OF_KIND, uid="2", taints=()), (KIND_WANTED,), id="another one with its name"),
    ],
)
def test_nodes_that_are_left_alone(node: Node, held: tuple[InitializedNode, ...]) -> None:
    assert plan(world(node, held=held)) == Plan()


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (
            replace(WAITING, provider="aws:///a/b"),
            (
                "demo: Node a isn't initialized: the providerID aws:///a/b is of another cloud provider, which"
                " initializes it; start that one's controller, or delete the Node and start its kubelet without that ID"
            ),
        ),
        (
            replace(WAITING, provided=()),
            "demo: Node a isn't initialized: nothing names its address; start its kubelet with --node-ip",
        ),
        *(
            (
                replace(WAITING, name=NodeName(name)),
                f"demo: Node {name} isn't initialized: its name isn't a DNS name; register it under one",
            )
            for name in ("x/y", "..", "A", "a b")
        ),
    ],
)
def test_why_a_node_that_waits_is_not_initialized(node: Node, why: str) -> None:
    assert plan(world(node)) == Plan(notices=(why,))


def test_nodes_that_are_not_initialized_for_one_reason_are_one_sentence() -> None:
    nodes = [replace(WAITING, name=NodeName(f"n{number}"), provider=f"aws:///{number}") for number in range(1000)]
    (notice,) = plan(world(*nodes)).notices
    assert notice.startswith("demo: 1000 Nodes aren't initialized, such as n0: the providerID aws:///0 is of another")


def test_without_the_key_nothing_is_initialized_and_a_cluster_without_pods_is_named() -> None:
    """Not where another Node has pods, or its cloud provider is known."""
    made = make_plan(world(WAITING), OWN)
    assert made.nodes == ()
    (notice,) = (each for each in made.notices if TAINT in each)
    assert notice.startswith("demo: 1 Node with the taint")
    assert notice.endswith("write `local-lb:nodes: initialize`")
    assert plan(world(WAITING, replace(DONE, name=NodeName("b"))), OWN) == Plan()
    assert plan(world(replace(WAITING, provider="aws:///a/b")), OWN) == Plan()


def test_other_clusters_are_left_alone() -> None:
    """Those of manifests, and Gardener's, which have a controller for that."""
    assert plan(replace(world(WAITING), access={})) == Plan()
    assert plan(replace(world(WAITING), node_routes={DEMO: ()})) == Plan()


def test_what_the_state_has_stays_while_a_cluster_shows_no_node() -> None:
    (planned,) = plan(world(held=(WANTED,))).nodes
    assert (planned.wanted, planned.differing) == (WANTED, ())
    assert make_plan(world(held=(WANTED,)), ON).nodes == (planned,)


_ADDRESSES = st.lists(st.sampled_from([FOUR, SIX, ip_address("10.0.0.3")]), unique=True)
_ENTRY = st.builds(
    lambda kind, address: {"type": kind, "address": address},
    st.sampled_from([INTERNAL, HOSTNAME, "ExternalIP"]),
    st.sampled_from(["10.0.0.2", "10.0.0.9"]),
) | st.just({"type": HOSTNAME, "address": ""})
_TAINT = st.sampled_from([{"key": TAINT, "value": "true", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}])


@given(
    st.lists(_ENTRY, max_size=4),
    st.lists(_TAINT, max_size=3),
    _ADDRESSES,
    st.sampled_from([None, "kind://docker/demo/a"]),
)
def test_both_patches_make_a_node_as_wanted_and_keep_what_is_others(
    entries: list[dict[str, Any]], taints: list[dict[str, Any]], provided: list[Any], provider: str | None
) -> None:
    """Whatever it has: afterwards nothing differs, and addresses of other types and other taints are as before."""
    named = {PROVIDED: ",".join(map(str, provided))} if provided else {}
    metadata = {"name": "a", "uid": "1", "resourceVersion": "7", "annotations": named}
    document: dict[Any, Any] = {"metadata": metadata, "spec": {"providerID": provider, "taints": taints}, "status": {}}
    document["status"] = {"addresses": entries}
    node = parse_node(DEMO, document)
    wanted = initialized(node, None)
    patches = addresses_patch(document, wanted), spec_patch(document, wanted)
    assert {patch["metadata"]["resourceVersion"] for patch in patches} == {"7"}  # type: ignore[index]
    made: dict[Any, Any] = merged(merged(document, patches[0]), patches[1])
    assert node_differences(parse_node(DEMO, made), wanted) == ()
    assert made["spec"]["providerID"] == (provider or "local-lb://demo/a")
    assert made["spec"].get("taints", []) == [each for each in taints if each["key"] != TAINT]
    may_go = {INTERNAL} if {*wanted.addresses} - {*node.addresses} else set()
    kept = [each for each in entries if each["address"] and each["type"] not in may_go]
    assert [each for each in made["status"]["addresses"] if each in kept and each["type"] != INTERNAL] == [
        each for each in kept if each["type"] != INTERNAL
    ]
    assert all(each in made["status"]["addresses"] for each in kept)


def test_a_kubelet_that_names_a_family_or_nonsense_names_no_address() -> None:
    """As --node-ip=:: does; such a Node is read all the same."""
    annotations = {PROVIDED: "::, 10.0.0.2,nonsense,0.0.0.0,2001:db8::1%eth0,10.0.0.2"}
    node = parse_node(DEMO, {"metadata": {"name": "a", "uid": 1, "annotations": annotations}, "spec": {}})
    assert (node.provided, node.uid, node.provider, node.hostname) == ((FOUR,), "", "", "")
