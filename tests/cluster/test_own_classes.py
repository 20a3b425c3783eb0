"""Classes `local-lb` that local-lb makes in a real API, with the rights of deploy/rbac-classes.yaml and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from lightkube import ApiError, Client

from locallb.gateway.kinds import KINDS
from locallb.model.gateway_objects import CONTROLLER, GROUP
from locallb.model.own_classes import CLUSTER_ANNOTATION, DEFAULT_ANNOTATION, FINALIZER, NAME, OWNER_LABEL
from tests.support.cluster_gateways import CRD, definition, is_created, resource, until_gone
from tests.support.control_plane import ControlPlane, Document, Objects
from tests.support.ingress_objects import ingress, path, rule
from tests.support.ingress_rights import CLASS, INGRESS
from tests.support.rights import Rights, gone
from tests.support.stages import Stage
from tests.support.waiting import becomes
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
GATEWAY_KINDS = tuple(KINDS[name] for name in ("GatewayClass", "Gateway"))
GATEWAY_CLASS, GATEWAY = (resource(kind.name) for kind in GATEWAY_KINDS)


def metadata(client: Client, kind: Any) -> Document | None:  # noqa: ANN401 - likewise
    """Return the metadata of the class `local-lb`; None if there is none."""
    try:
        return dict(client.get(kind, NAME).to_dict()["metadata"])
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None


def part(client: Client, kind: Any, name: str) -> Any:  # noqa: ANN401 - likewise
    return (metadata(client, kind) or {}).get(name)


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Have the kinds in the cluster, and all rights that serving needs, but none to make classes."""
    del cluster
    with plane.client() as client, ExitStack() as stack:
        rights = Rights(client)
        for name in ("gateways", "ingresses"):
            rights.give(name)
            stack.callback(rights.take, name)
        stack.callback(rights.take, "classes")
        for kind in GATEWAY_KINDS:
            client.create(CRD.from_dict(definition(kind)))
        try:
            yield client
        finally:
            gone(client, CLASS, NAME)
            for kind in GATEWAY_KINDS:
                client.delete(CRD, f"{kind.plural}.{GROUP}")
            for kind in GATEWAY_KINDS:
                until_gone(client, kind.plural)


@pytest.fixture
def stack(owner: Client, play: Stage, plane: ControlPlane) -> Stage:
    """Return a stack whose source asks for classes."""
    becomes(lambda: is_created(owner, gateway("other", "other")))
    becomes(lambda: metadata(owner, GATEWAY_CLASS) is None)
    play.configure(sources=[{"kubernetes": {**plane.source["kubernetes"], "classes": True}}])
    return play


def gateway(name: str, of: str) -> Document:
    spec = {"gatewayClassName": of, "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]}
    return {"kind": "Gateway", "metadata": {"name": name, "namespace": "n"}, "spec": spec}


def test_classes_are_made_with_the_least_rights_and_removed(stack: Stage, owner: Client) -> None:
    """Without those one sentence names the file; a new Ingress without a class gets ours by the API's own admission."""
    done = stack.up()
    assert (done.out + done.err).count("deploy/rbac-classes.yaml") == 1
    assert (metadata(owner, GATEWAY_CLASS), metadata(owner, CLASS)) == (None, None)
    Rights(owner).give("classes")
    stack.up()
    assert part(owner, GATEWAY_CLASS, "labels") == part(owner, CLASS, "labels")
    assert part(owner, CLASS, "labels").keys() == {OWNER_LABEL}
    assert part(owner, CLASS, "annotations") == {DEFAULT_ANNOTATION: "true", CLUSTER_ANNOTATION: "real"}
    assert owner.get(GATEWAY_CLASS, NAME).to_dict()["spec"] == {"controllerName": CONTROLLER}
    item = ingress(rule(path(to="web"), host="a.test"), name="web", namespace="n", class_name=None)
    made = owner.create(INGRESS.from_dict(item), namespace="n")
    assert made.to_dict()["spec"]["ingressClassName"] == NAME
    stack.up()
    assert stack.run("destroy", "--yes").code == 0
    assert metadata(owner, GATEWAY_CLASS) is None
    assert part(owner, CLASS, "labels")
    owner.delete(INGRESS, "web", namespace="n")
    stack.up()
    assert stack.run("destroy", "--yes").code == 0
    assert metadata(owner, CLASS) is None


def test_a_class_in_use_outlives_its_deletion_until_its_gateways_go(stack: Stage, owner: Client) -> None:
    """Then `watch` makes it anew; what is deleted without a Gateway is back at once."""
    Rights(owner).give("classes")
    with watching(stack) as watch:
        eventually(lambda: part(owner, GATEWAY_CLASS, "labels"), watch)
        first = part(owner, GATEWAY_CLASS, "uid")
        owner.delete(GATEWAY_CLASS, NAME)
        eventually(lambda: part(owner, GATEWAY_CLASS, "uid") not in {None, first}, watch)
        owner.create(GATEWAY.from_dict(gateway("web", NAME)), namespace="n")
        eventually(lambda: part(owner, GATEWAY_CLASS, "finalizers") == [FINALIZER], watch)
        second = part(owner, GATEWAY_CLASS, "uid")
        owner.delete(GATEWAY_CLASS, NAME)
        assert part(owner, GATEWAY_CLASS, "deletionTimestamp")
        owner.delete(GATEWAY, "web", namespace="n")
        eventually(lambda: part(owner, GATEWAY_CLASS, "uid") not in {None, second}, watch)
    assert stack.run("destroy", "--yes").code == 0
    assert (metadata(owner, GATEWAY_CLASS), metadata(owner, CLASS)) == (None, None)
