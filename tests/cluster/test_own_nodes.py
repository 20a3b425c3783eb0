"""Nodes that a stack initializes in a real API, with the rights of deploy/rbac-nodes.yaml and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import Client
from lightkube.types import PatchType

from locallb.model.own_nodes import PROVIDED, TAINT
from tests.support.client_kinds import NODE
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.rights import Rights, gone
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
WAITING = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Have three Nodes as kubelets make them that wait for a cloud provider: one of those is of another one."""
    del cluster
    annotations = {PROVIDED: "10.0.0.2,fd00::2"}
    specs = {"a": {}, "b": {"providerID": "kind://docker/c/b"}, "c": {"providerID": "aws:///z/c"}}
    with plane.client() as client:
        for name, spec in specs.items():
            metadata = {"name": name, "annotations": annotations}
            client.create(NODE.from_dict({"metadata": metadata, "spec": {**spec, "taints": [WAITING, OTHER]}}))
        try:
            yield client
        finally:
            for name in specs:
                gone(client, NODE, name)
            Rights(client).take("nodes")


@pytest.fixture
def stack(owner: Client, play: Stage, plane: ControlPlane) -> Stage:
    """Return a stack that initializes Nodes."""
    del owner
    play.configure(sources=[plane.source], nodes="initialize")
    return play


def node(client: Client, name: str) -> Document:
    return dict(client.get(NODE, name))


def taints(client: Client, name: str) -> list[str]:
    present = [each["key"] for each in node(client, name)["spec"].get("taints", ())]
    return [key for key in present if key in {TAINT, "dedicated"}]


def addresses(client: Client, name: str) -> list[tuple[str, str]]:
    return [(each["type"], each["address"]) for each in node(client, name)["status"].get("addresses", ())]


def patch(client: Client, name: str, content: dict[str, Any]) -> None:
    client.patch(NODE, name, content, patch_type=PatchType.MERGE)


def test_nodes_are_initialized_with_the_least_rights_and_stay_so(stack: Stage, owner: Client) -> None:
    """Without those a sentence names the file; a preview shows each; one of another cloud provider is never written."""
    untouched = node(owner, "c")["metadata"]["resourceVersion"]
    assert "real/node-a" in stack.run("preview").out
    lacking = stack.run("up", "--yes")
    assert (lacking.code, "deploy/rbac-nodes.yaml" in lacking.out + lacking.err) == (1, True)
    assert taints(owner, "a") == [TAINT, "dedicated"]
    Rights(owner).give("nodes")
    done = stack.up()
    assert "Node c isn't initialized: the providerID aws:///z/c" in done.out + done.err
    expected = [("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::2")]
    assert addresses(owner, "a") == [*expected, ("Hostname", "a")]
    assert addresses(owner, "b") == [*expected, ("Hostname", "b")]
    assert [taints(owner, name) for name in "abc"] == [["dedicated"], ["dedicated"], [TAINT, "dedicated"]]
    ids = [node(owner, name)["spec"]["providerID"] for name in "ab"]
    assert ids == ["local-lb://real/a", "kind://docker/c/b"]
    assert node(owner, "c")["metadata"]["resourceVersion"] == untouched
    assert stack.run("destroy", "--yes").code == 0
    assert [taints(owner, name) for name in "ab"] == [["dedicated"], ["dedicated"]]
    assert addresses(owner, "a") == [*expected, ("Hostname", "a")]


def test_watch_initializes_and_repairs(stack: Stage, owner: Client) -> None:
    """Also a Node that was deleted and registers again, with another UID."""
    Rights(owner).give("nodes")
    with watching(stack) as watch:
        eventually(lambda: taints(owner, "a") == taints(owner, "b") == ["dedicated"], watch)
        patch(owner, "b", {"spec": {"taints": [WAITING, OTHER]}})
        eventually(lambda: taints(owner, "b") == ["dedicated"], watch)
        owner.delete(NODE, "a")
        again = {"metadata": {"name": "a", "annotations": {PROVIDED: "10.0.0.9"}}, "spec": {"taints": [WAITING]}}
        owner.create(NODE.from_dict(again))
        eventually(lambda: taints(owner, "a") == [], watch)
        assert addresses(owner, "a") == [("InternalIP", "10.0.0.9"), ("Hostname", "a")]
