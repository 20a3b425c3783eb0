"""A first cluster of kind and the first objects that a user applies, with no key but the cluster: all of them answer.

A Service of type LoadBalancer, an Ingress without a class and a Gateway with an HTTPRoute, both on ClusterIP Services;
and what nobody serves is said, with the command that helps.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import ApiError
from lightkube.types import PatchType

from locallb.gateway.kinds import KINDS
from locallb.model.own_classes import NAME
from tests.kubelets.deployments import HOSTNAMES
from tests.kubelets.routes import made, to_pods
from tests.kubelets.workloads import Workloads, answer, service_port
from tests.support.client_kinds import EVENT
from tests.support.cluster_gateways import CRD, create, definition, is_created, resource, until_gone
from tests.support.gateway_objects import backend, gateway, listener, parent, route
from tests.support.gateway_objects import rule as route_rule
from tests.support.http_traffic import Client
from tests.support.ingress_objects import backend as ingress_backend
from tests.support.ingress_objects import ingress, path, rule
from tests.support.ingress_rights import CLASS, INGRESS
from tests.support.kubelet_cluster import Cluster
from tests.support.manifests import service
from tests.support.stages import stage
from tests.support.waiting import becomes
from tests.support.watching import watching

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.parametrize("world", ["pods"], indirect=True),
]
APPS = ("foo", "bar")


@pytest.fixture
def kind_cluster(world: Workloads) -> Iterator[Cluster]:
    """Have the administrator's kubeconfig where kubeadm puts it, and the kinds of Gateway API."""
    cluster, client = world.cluster, world.client
    document = yaml.safe_load((cluster.plane.root / "owner.kubeconfig").read_text())
    server = document["clusters"][0]["cluster"]
    authority = Path(server.pop("certificate-authority")).read_bytes()
    server["certificate-authority-data"] = base64.b64encode(authority).decode()
    admin = cluster.plane.root / cluster.node("control-plane").name / "admin.conf"
    admin.write_text(yaml.safe_dump(document))
    for kind in KINDS.values():
        client.create(CRD.from_dict(definition(kind)))
    yield cluster
    admin.unlink()
    for item in client.list(INGRESS, namespace="*"):
        client.delete(INGRESS, item["metadata"]["name"], namespace=item["metadata"]["namespace"])
    with suppress(ApiError):  # it stays as long as an Ingress names it
        client.delete(CLASS, NAME)
    for kind in KINDS.values():
        client.delete(CRD, f"{kind.plural}.{kind.group}")
    for kind in KINDS.values():
        until_gone(client, kind.plural)


def address(world: Workloads, kind: Any, name: str) -> str:  # noqa: ANN401 - a type of the client
    """Return the address that an Ingress or a Gateway tells; empty while it has none."""
    status = world.client.get(kind, name, namespace="n").get("status") or {}
    entries = (status.get("loadBalancer") or {}).get("ingress") or status.get("addresses") or ()
    return next((str(each.get("ip") or each.get("value")) for each in entries), "")


def answering(place: str, requested: str, host: str) -> str:
    """Return the Deployment of the pod that answers a request; the status, or nothing, if none does."""
    if not place:
        return ""
    try:
        with closing(Client(place, 80)) as client:
            got = client.ask(requested, host)
    except OSError:
        return ""
    return got.body.split("-")[0] if got.status == 200 else str(got.status)


def test_first_objects_answer_with_no_key_but_the_cluster(world: Workloads, kind_cluster: Cluster) -> None:
    """Classes and routes come by themselves, and go with the stack."""
    for name in APPS:
        world.deploy(name, 1, containers=[HOSTNAMES])
        made_service = service(name, service_port(80), selector={"app": name})
        world.service({**made_service, "spec": {**made_service["spec"], "type": "ClusterIP"}})
    world.deploy("web", 2)
    world.expose("web")
    paths = [path(f"/{name}", to=ingress_backend(name, "tcp-80")) for name in APPS]
    world.client.create(INGRESS.from_dict(of_n(ingress(rule(*paths), name="example", class_name=None))), namespace="n")
    orphan = ingress(rule(path(to=ingress_backend("foo", "tcp-80"))), name="orphan", class_name="nginx")
    world.client.create(INGRESS.from_dict(of_n(orphan)), namespace="n")
    front = of_n(gateway(listener(), name="front", gatewayClassName=NAME))
    becomes(lambda: is_created(world.client, front), "the kinds of Gateway API are there")
    rules = [route_rule("/", backends=[backend("bar", 80)])]
    leading = route(*rules, name="bar", parentRefs=[parent("front")], hostnames=["bar.test"])
    create(world.client, {**leading, "metadata": {"name": "bar", "namespace": "n"}})
    gateways = resource("Gateway")
    with stage() as play:
        play.configure(sources=[{"kind": [kind_cluster.plane.name]}])
        with watching(play, "--plain") as watch:
            at = world.address("web")
            becomes(lambda: answer(at, seconds=1) in world.pods("web"), f"the Service answers\n{watch.reported()}")
            answers = [("/foo", "foo"), ("/bar/x", "bar")]
            becomes(
                lambda: (
                    [(to, answering(address(world, INGRESS, "example"), to, "a.test")) for to, _ in answers] == answers
                ),
                f"the Ingress answers\n{watch.reported()}",
            )
            becomes(
                lambda: answering(address(world, gateways, "front"), "/", "bar.test") == "bar",
                f"the Gateway answers\n{watch.reported()}",
            )
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


def of_n(document: dict[str, Any]) -> dict[str, Any]:
    """Put an object into the namespace of the pods."""
    return {**document, "metadata": {**document["metadata"], "namespace": "n"}}


def told(world: Workloads, name: str) -> list[str]:
    """Return the notes of the events of an Ingress that nobody serves."""
    events = [dict(each) for each in world.client.list(EVENT, namespace="n")]
    return [
        str(each["note"])
        for each in events
        if each["regarding"].get("name") == name and str(each.get("note")).startswith("nobody serves it")
    ]
