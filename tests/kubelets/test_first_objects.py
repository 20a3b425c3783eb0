"""A first cluster of kind and the first objects that a user applies, with no key but the cluster: all of them answer.

A Service of type LoadBalancer, an Ingress without a class and a Gateway with an HTTPRoute, both on ClusterIP Services;
and what nobody serves is said, with the command that helps.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lightkube.types import PatchType

from tests.kubelets.first_objects import address, first_objects, gateway_kinds, objects_answer, of_n
from tests.kubelets.routes import made, to_pods
from tests.kubelets.workloads import Workloads, answer
from tests.support.client_kinds import EVENT
from tests.support.ingress_objects import backend as ingress_backend
from tests.support.ingress_objects import ingress, path, rule
from tests.support.ingress_rights import INGRESS
from tests.support.kubelet_cluster import Cluster
from tests.support.stages import stage
from tests.support.waiting import becomes
from tests.support.watching import watching

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.parametrize("world", ["pods"], indirect=True),
]


@pytest.fixture
def kind_cluster(world: Workloads) -> Iterator[Cluster]:
    """Have the administrator's kubeconfig where kubeadm puts it, and the kinds of Gateway API."""
    cluster = world.cluster
    document = yaml.safe_load((cluster.plane.root / "owner.kubeconfig").read_text())
    server = document["clusters"][0]["cluster"]
    authority = Path(server.pop("certificate-authority")).read_bytes()
    server["certificate-authority-data"] = base64.b64encode(authority).decode()
    admin = cluster.plane.root / cluster.node("control-plane").name / "admin.conf"
    admin.write_text(yaml.safe_dump(document))
    with gateway_kinds(world):
        yield cluster
        admin.unlink()


def test_first_objects_answer_with_no_key_but_the_cluster(world: Workloads, kind_cluster: Cluster) -> None:
    """Classes and routes come by themselves, and go with the stack."""
    first_objects(world)
    orphan = ingress(rule(path(to=ingress_backend("foo", "tcp-80"))), name="orphan", class_name="nginx")
    world.client.create(INGRESS.from_dict(of_n(orphan)), namespace="n")
    with stage() as play:
        play.configure(sources=[{"kind": [kind_cluster.plane.name]}])
        with watching(play, "--plain") as watch:
            at = world.address("web")
            becomes(lambda: answer(at, seconds=1) in world.pods("web"), f"the Service answers\n{watch.reported()}")
            becomes(lambda: objects_answer(world), f"the Ingress and the Gateway answer\n{watch.reported()}")
            assert made(play)
            becomes(lambda: "connections go straight to pods" in watch.reported(), watch.reported())
            becomes(lambda: "has no IngressClass nginx" in watch.reported(), watch.reported())
            becomes(lambda: bool(told(world, "orphan")), "the object is told")
            (note,) = told(world, "orphan")
            command = shlex.split(note.split("`")[1])
            assert command[:5] == ["kubectl", "-n", "n", "patch", "ingresses.networking.k8s.io/orphan"]
            patch = yaml.safe_load(command[-1])
            world.client.patch(INGRESS, "orphan", patch, namespace="n", patch_type=PatchType.MERGE)
            becomes(lambda: bool(address(world, INGRESS, "orphan")), "what it says helps")
            assert "left out" not in play.run("status").out
        assert "connections go straight to pods" in play.run("doctor").out
        assert play.run("destroy", "--yes").code == 0
        assert (made(play), to_pods(kind_cluster)) == (set(), "")


def told(world: Workloads, name: str) -> list[str]:
    """Return the notes of the events of an Ingress that nobody serves."""
    events = [dict(each) for each in world.client.list(EVENT, namespace="n")]
    return [
        str(each["note"])
        for each in events
        if each["regarding"].get("name") == name and str(each.get("note")).startswith("nobody serves it")
    ]
