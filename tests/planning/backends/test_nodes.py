"""Which Nodes may be backends."""

from __future__ import annotations

import pytest

from locallb.model.identities import ClusterName
from locallb.planning.endpoints import eligible
from tests.support.objects import JsonObject, node, parsed

LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"


def names(*nodes: JsonObject) -> list[str]:
    """Return the names of the eligible ones."""
    return [node.name for node in eligible(parsed(*nodes).nodes)[0]]


def excluding(value: str, name: str = "control-plane") -> JsonObject:
    """Make a Node with the exclusion label."""
    return node(name, meta={"labels": {LABEL: value}})


def test_nodes_that_go_away_are_left_out() -> None:
    """Those being deleted and those that the cluster autoscaler is about to delete."""
    going = node("going", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    doomed = node("doomed", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": "1"}])
    tainted = node("tainted", taints=[{"key": "node.kubernetes.io/not-ready"}])
    assert names(going, doomed, tainted, node("b"), node("a")) == ["a", "b", "tainted"]


@pytest.mark.parametrize("value", ["false", "False", "FALSE", "f", "F", "0"])
def test_a_false_exclusion_label_includes(value: str) -> None:
    """Whatever Go's ParseBool takes as false."""
    assert names(excluding(value), node("worker")) == ["control-plane", "worker"]


@pytest.mark.parametrize("value", ["", "true", "1", "no", "fAlse", "rubbish"])
def test_any_other_exclusion_label_excludes(value: str) -> None:
    """Also empty, as kubeadm sets it, and what is no boolean."""
    assert names(excluding(value), node("worker")) == ["worker"]


def test_where_only_excluded_nodes_are_left_all_are_used_and_that_is_reported() -> None:
    """A kind cluster of one node would have no backend otherwise."""
    going = node("going", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    retained, notices = eligible(parsed(excluding("", "a"), excluding("true", "b"), going).nodes)
    assert [node.name for node in retained] == ["a", "b"]
    assert list(notices) == ["demo"]
    assert notices[ClusterName("demo")] == (
        f"demo: the label {LABEL} excludes every Node (2 Nodes), so all are used; "
        "remove it from those that shall be backends"
    )


def test_no_node_is_no_notice() -> None:
    """Then each port says that there is no backend."""
    assert eligible(()) == ((), {})
    assert eligible(parsed(node(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})).nodes) == ((), {})
