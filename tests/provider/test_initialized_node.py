"""The resource InitializedNode against a small API: brought, read, repaired; Nodes of others are left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.model.identities import ClusterName, Home, NodeName, ObjectKey, Owner
from locallb.model.own_nodes import TAINT
from locallb.model.snapshot import Access
from locallb.planning.own_nodes import RIGHTS
from locallb.provider.initialized_node import InitializedNode
from locallb.resources.properties import InitializedNodeInputs
from locallb.resources.resource_type import ProviderError
from tests.support.fake_api import Api, served

TYPE = InitializedNode(None)
ID = "local-lb://demo/a"
OTHER = {"key": "x", "effect": "NoSchedule"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API with a Node that waits for a cloud provider."""
    with served(tmp_path) as (answers, access):
        spec = {"taints": [{"key": TAINT, "value": "true", "effect": "NoSchedule"}, OTHER]}
        answers.others = {"nodes": []}
        answers.write("nodes", "a", {"metadata": {"name": "a", "uid": "1"}, "spec": spec, "status": {"phase": "x"}})
        yield answers, access


def wanted(access: Access) -> InitializedNodeInputs:
    owner = Owner(Home("p", "s", "/srv"), ObjectKey(ClusterName(""), "", "demo/node-a"))
    return InitializedNodeInputs(
        owner=owner,
        access=access,
        cluster="demo",
        node="a",
        uid="1",
        provider=ID,
        addresses=("10.0.0.2", "fd00::2"),
        hostname="a",
    )


def node(answers: Api) -> dict[str, Any]:
    found = answers.named("nodes", "a")
    assert found
    return found


def test_a_node_is_initialized_once_and_stays_so(api: tuple[Api, Access]) -> None:
    """Addresses, the providerID, no taint; others' are kept, and the end of the resource takes nothing back."""
    answers, access = api
    identity, state = TYPE.create(wanted(access))
    assert identity == "a/1"
    assert node(answers)["spec"] == {"taints": [OTHER], "providerID": ID}
    addresses = [("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::2"), ("Hostname", "a")]
    assert [tuple(each.values()) for each in node(answers)["status"]["addresses"]] == addresses
    assert node(answers)["status"]["phase"] == "x"
    assert answers.written == ["patch nodes", "patch nodes"]
    assert (TYPE.read(state), TYPE.create(wanted(access))[1]) == (state, state)
    TYPE.delete(state)
    assert TYPE.leaves_nothing(state)
    assert answers.written == ["patch nodes", "patch nodes"]


def test_what_others_change_is_read_and_repaired(api: tuple[Api, Access]) -> None:
    """Each by the one request that it needs."""
    answers, access = api
    new = wanted(access)
    _, state = TYPE.create(new)
    answers.written.clear()
    answers.write("nodes", "a", {**node(answers), "spec": {"providerID": ID, "taints": [{"key": TAINT}]}})
    observed = TYPE.read(state)
    assert observed == replace(state, provider="")
    assert TYPE.update(observed, new) == state
    assert node(answers)["spec"] == {"providerID": ID}
    answers.write("nodes", "a", {**node(answers), "status": {}})
    assert TYPE.read(state) == observed
    TYPE.update(observed, new)
    assert TYPE.read(state) == state
    assert answers.written == ["patch nodes", "patch nodes"]


def test_a_node_that_is_gone_or_another_one_is_never_written(api: tuple[Api, Access]) -> None:
    answers, access = api
    state = TYPE.create(wanted(access))[1]
    answers.written.clear()
    for found in ({**node(answers), "metadata": {"name": "a", "uid": "2"}}, None):
        answers.write("nodes", "a", found)
        assert TYPE.read(state) is None
        with pytest.raises(ProviderError, match="Node a of demo is gone; run up again"):
            TYPE.create(wanted(access))
    assert answers.written == []


@pytest.mark.parametrize("provider", ["aws:///a/b", "local-lb://other/a", "kind://docker/demo/a"])
def test_a_node_that_got_another_provider_id_meanwhile_is_left_alone(api: tuple[Api, Access], provider: str) -> None:
    """As by another cloud provider or another stack: an API refuses another value."""
    answers, access = api
    answers.write("nodes", "a", {**node(answers), "spec": {"providerID": provider}})
    with pytest.raises(ProviderError, match=f"got the providerID {provider} meanwhile; run up again"):
        TYPE.create(wanted(access))
    assert answers.written == []


def test_a_right_that_lacks_is_named_with_its_file(api: tuple[Api, Access]) -> None:
    answers, access = api
    answers.forbidden = {"patch nodes"}
    with pytest.raises(ProviderError, match=RIGHTS):
        TYPE.create(wanted(access))


def test_a_node_that_changes_meanwhile_is_read_again(api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kubelet does, which writes every few seconds: the patch of the older version is refused."""
    answers, access = api
    find, late = live_object.find_node, [1, 1]

    def older(access: Access, name: NodeName) -> Mapping[Any, Any] | None:
        found = find(access, name)
        if late:
            late.pop()
            answers.write("nodes", "a", {**node(answers), "status": {"phase": "y"}})
        return found

    monkeypatch.setattr(live_object, "find_node", older)
    _, state = TYPE.create(wanted(access))
    assert TYPE.read(state) == state
    assert node(answers)["status"]["phase"] == "y"


def test_an_api_that_does_not_answer_proves_nothing(api: tuple[Api, Access], tmp_path: Path) -> None:
    answers, access = api
    state = TYPE.create(wanted(access))[1]
    answers.refused = {"nodes"}
    assert TYPE.read(state) == state
    nowhere = replace(state, access=replace(access, kubeconfig=str(tmp_path / "none")))
    assert TYPE.read(nowhere) == nowhere
