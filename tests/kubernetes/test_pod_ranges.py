"""Where Nodes' pods are, as Nodes and the objects of CNIs say it: tables, and whatever stands there instead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.kubernetes.pod_ranges import VERSIONS, with_ranges
from tests.support.objects import JsonObject, node, parsed


def with_cidrs(name: str, **spec: object) -> JsonObject:
    """Make a Node whose spec says where its pods are."""
    return {**node(name), "spec": spec}


def block(worker: object, cidr: object, **spec: object) -> JsonObject:
    given = {"node": worker, "cidr": cidr, "state": "confirmed", "deleted": "false", **spec}
    return {
        "apiVersion": VERSIONS["BlockAffinity"],
        "kind": "BlockAffinity",
        "metadata": {"name": f"{worker}-{cidr}"},
        "spec": given,
    }


def cilium(name: str, *cidrs: object, **ipam: object) -> JsonObject:
    """Make a Node as Cilium has it."""
    spec = {"ipam": {"podCIDRs": list(cidrs), **ipam}}
    return {"apiVersion": VERSIONS["CiliumNode"], "kind": "CiliumNode", "metadata": {"name": name}, "spec": spec}


A, B = with_cidrs("a", podCIDR="10.0.0.0/24"), with_cidrs("b", podCIDRs=["10.0.1.0/24", "fd00:1::/64"])
OWN = {"a": ["10.0.0.0/24"], "b": ["10.0.1.0/24", "fd00:1::/64"]}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ((), OWN),
        ((block("a", "10.9.0.0/26"), block("a", "10.9.4.0/26"), block("b", "fd09::40/122")),
         {"a": ["10.9.0.0/26", "10.9.4.0/26"], "b": ["fd09::40/122"]}),
        ((block("a", "10.9.0.0/26"),), {"a": ["10.9.0.0/26"], "b": []}),
        ((block("a", "10.9.0.0/26", state="pending"), block("a", "10.9.1.0/26", state="pendingDeletion")), OWN),
        ((block("a", "10.9.0.0/26", deleted="true"), block("b", "10.9.1.0/26", deleted=True)), OWN),
        ((block("", "10.9.0.0/26"), block(None, "10.9.1.0/26")), OWN),
        ((block("gone", "10.9.0.0/26"),), {"a": [], "b": []}),
        ((cilium("a", "10.9.0.0/24"), cilium("b", "10.9.1.0/24", "fd09::/64")),
         {"a": ["10.9.0.0/24"], "b": ["10.9.1.0/24", "fd09::/64"]}),
        ((cilium("a", pool={"10.9.0.7": {}}), cilium("b")), OWN),
        (({"apiVersion": "v1", "kind": "List", "items": [block("b", "10.9.0.0/26")]},),
         {"a": [], "b": ["10.9.0.0/26"]}),
        (({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "spec": {"cidr": "10.9.0.0/16"}},), OWN),
    ],
)  # fmt: skip
def test_pod_ranges_of_a_cni_replace_those_of_nodes(objects: tuple[Any, ...], expected: dict[str, list[str]]) -> None:
    """As soon as the CNI says anything of the cluster: a range of a Node may be another Node's block by then."""
    result = parsed(A, *objects, B)
    nodes = with_ranges(result.nodes, result.ranges)
    assert {str(one.name): list(map(str, one.pod_cidrs)) for one in nodes} == expected


@pytest.mark.parametrize(
    ("odd", "reported"),
    [
        (with_cidrs("n", podCIDR="10.0.0.0"), None),
        (with_cidrs("n", podCIDR="10.0.0.0/33"), 'Node n: spec.podCIDR is "10.0.0.0/33" and is left out'),
        (with_cidrs("n", podCIDRs=["10.0.0.0/24", 7]), "Node n: spec.podCIDRs[1] is 7 and is left out"),
        (with_cidrs("n", podCIDRs=["../x"]), 'Node n: spec.podCIDRs[0] is "../x" and is left out'),
        (block("n", "10.9.0.0/99"), 'BlockAffinity n-10.9.0.0/99: spec.cidr is "10.9.0.0/99" and is left out'),
        (cilium("n", [], {"a": 1}), "CiliumNode n: spec.ipam.podCIDRs[1] is an object of 1 field and is left out"),
    ],
)
def test_an_odd_range_is_reported_and_its_node_stays(odd: JsonObject, reported: str | None) -> None:
    """Its NodePorts serve, whatever became of its pods' range."""
    result = parsed(odd, with_cidrs("m"))
    assert "m" in {one.name for one in result.nodes}
    assert odd["kind"] != "Node" or "n" in {one.name for one in result.nodes}
    assert [notice.partition(";")[0] for notice in result.notices] == ([f"demo: {reported}"] if reported else [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(["10.0.0.0/8", "::/0", "n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ipam", "podCIDRs", "cidr", "node", "state", "name"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.sampled_from([*VERSIONS.items(), ("Node", "v1")]), VALUES, VALUES)
def test_arbitrary_metadata_and_spec_do_not_affect_other_nodes(
    kind: tuple[str, str], metadata: object, spec: object
) -> None:
    """A Node beside it is read, and has its own range or one that was given for it."""
    result = parsed({"apiVersion": kind[1], "kind": kind[0], "metadata": metadata, "spec": spec}, A)
    assert "a" in {one.name for one in with_ranges(result.nodes, result.ranges)}
