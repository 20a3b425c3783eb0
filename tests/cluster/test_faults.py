"""Faults of a live cluster: an API that is away, others who write at the same time, rights that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from lightkube.types import PatchType

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.discovery import REVIEWS, ROOT
from locallb.kubernetes.api.feed import PATHS, Feed
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName, ObjectKind
from locallb.model.snapshot import Access
from tests.support.backends import Backend, ask
from tests.support.client_kinds import NODE
from tests.support.cluster_services import address, finalizers, ingress, made
from tests.support.control_plane import ControlPlane, Objects, control_plane
from tests.support.rbac_manifests import roles_of
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]


@pytest.fixture
def unplugged(plane: ControlPlane) -> Iterator[Callable[[], None]]:
    """Stop the API server when called; it runs again at the end."""
    yield plane.stop_api
    if "kube-apiserver" not in plane.processes:
        plane.start_api()


def test_an_api_that_is_away_takes_nothing_away(
    cluster: Objects, play: Stage, backend: Backends, unplugged: Callable[[], None]
) -> None:
    """Everything goes on serving and the run fails by name; when the API is back all converges."""
    made(cluster, backend, "web")
    play.up()
    at = address(cluster, "web")
    unplugged()
    done = play.run("up", "--yes")
    assert done.code == 1
    assert "source real: the cluster can't be read" in done.err
    assert ask(at, 8080) == "web: hello"
    cluster.plane.start_api()
    play.up()
    assert (address(cluster, "web"), ask(at, 8080)) == (at, "web: hello")


def test_an_api_that_never_answered_stops_the_run_before_anything(
    plane: ControlPlane, play: Stage, unplugged: Callable[[], None]
) -> None:
    """Without an earlier reading there is nothing to go by."""
    del plane
    unplugged()
    done = play.run("up", "--yes")
    assert done.code == 1
    assert "start it, or correct local-lb:sources" in done.err
    assert envoys(play.root) == []


def test_destroy_waits_for_a_cluster_that_is_away_but_not_for_one_that_is_gone(
    cluster: Objects, play: Stage, backend: Backends, unplugged: Callable[[], None]
) -> None:
    """A stopped API keeps what only it can let go; without its context there is nothing to wait for."""
    made(cluster, backend, "web")
    play.up()
    unplugged()
    done = play.run("destroy", "--yes")
    assert done.code == 1
    assert "can't remove local-lb's finalizer from" in done.err
    kubeconfig = cluster.plane.kubeconfig
    text = kubeconfig.read_text()
    kubeconfig.write_text("apiVersion: v1\nclusters: null\ncontexts: null\nkind: Config\n")  # in kubectl's order
    try:
        assert play.run("destroy", "--yes").code == 0
    finally:
        kubeconfig.write_text(text)
    assert envoys(play.root) == []


def test_object_changed_by_a_quicker_writer_is_read_again(
    cluster: Objects, play: Stage, backend: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write between our read and our patch, three times: nothing of theirs is lost, ours arrives."""
    made(cluster, backend, "web")
    patch, quicker = Cluster.patch_status, iter(range(3))

    def late(self: Cluster, namespace: str, name: str, body: Mapping[str, object], kind: ObjectKind) -> object:
        if (number := next(quicker, None)) is not None:
            cluster.change(name, {"metadata": {"annotations": {f"example.com/{number}": "theirs"}}})
        return patch(self, namespace, name, body, kind)

    monkeypatch.setattr(Cluster, "patch_status", late)
    play.up()
    document = cluster.read("web")
    assert document is not None
    assert len(document["metadata"]["annotations"]) == 3
    assert ask(address(cluster, "web"), 8080) == "web: hello"


def test_the_rights_are_no_more_than_needed(plane: ControlPlane, cluster: Objects, backend: Backends) -> None:
    """With the rights of deploy/rbac.yaml nobody can change a Service but for its status."""
    made(cluster, backend, "web")
    own = Objects(plane, plane.client("local-lb"))
    with own.client, pytest.raises(Exception, match="cannot patch resource"):
        own.change("web", {"metadata": {"labels": {"a": "b"}}})


def test_every_right_is_used_and_no_other(
    plane: ControlPlane, cluster: Objects, play: Stage, backend: Backends
) -> None:
    """A Service served by `up`, read again by a refresh and followed by a watch: the audit log has just our rules."""
    made(cluster, backend, "web")
    plane.audit_log.write_text("")
    play.up()
    for kind in PATHS:
        feed = Feed(Access(str(plane.kubeconfig), ContextName(plane.name)), kind)
        _, version = feed.list()
        label = {"metadata": {"labels": {"a": kind.lower()}}}
        cluster.client.patch(NODE, "node-a", label, patch_type=PatchType.MERGE)
        cluster.change("web", label)
        cluster.endpoints("web", ready=True)
        assert any(event.type in {"ADDED", "MODIFIED", "DELETED"} for event in feed.watch(version))
        feed.close()
    used = set()
    for line in plane.audit_log.read_text().splitlines():
        entry = json.loads(line)
        if entry["requestURI"] in {ROOT, REVIEWS}:  # anybody may ask which kinds there are, and what they may
            continue
        assert entry["responseStatus"]["code"] < 300, line
        requested = entry["objectRef"]
        resource = "/".join(filter(None, (requested["resource"], requested.get("subresource"))))
        used.add((requested.get("apiGroup", ""), resource, entry["verb"]))
    (rules,) = roles_of("rbac.yaml").values()
    assert used == {(*rule["apiGroups"], *rule["resources"], verb) for rule in rules for verb in rule["verbs"]}


def test_a_missing_right_is_reported_with_the_remedy(plane: ControlPlane, tmp_path: Path) -> None:
    """The sentence names the context and the manifest with the rights."""
    text = plane.kubeconfig.read_text().replace(plane.tokens["local-lb"], "nobody")
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubeError, match=r"context real the rights of deploy/rbac\.yaml"):
        Cluster(Access(str(tmp_path / "config"), ContextName("real"))).objects()


@pytest.mark.slow
def test_two_clusters_in_one_stack_share_no_address(
    cluster: Objects, play: Stage, backend: Backends, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Services of the same name in two clusters are two; one cluster's leaving doesn't touch the other's."""
    with control_plane("other", tmp_path_factory.mktemp("o") / "c") as second, second.client() as client:
        present = Objects(second, client)
        present.node("node-b")
        made(cluster, backend, "web")
        first_port = {port["nodePort"] for port in (cluster.read("web") or {})["spec"]["ports"]}
        theirs = made(present, lambda *_a, **_k: backend("closed"), "web")
        number = theirs["spec"]["ports"][0]["nodePort"]
        assert number not in first_port
        backend("other", port=number)
        play.configure(sources=[cluster.plane.source, second.source])
        play.up()
        one, two = address(cluster, "web"), address(present, "web")
        assert one != two
        assert (ask(one, 8080), ask(two, 8080)) == ("web: hello", "other: hello")
        play.configure(sources=[cluster.plane.source])
        play.up()
        assert (ingress(present, "web"), finalizers(present, "web")) == ([], [])
        assert ask(one, 8080) == "web: hello"
