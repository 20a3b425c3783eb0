"""Gateway API in a real cluster: its kinds, rights to read them, objects and their statuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from httpx2 import HTTPStatusError, codes
from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from locallb.gateway.kinds import KINDS, ApiKind
from locallb.model.gateway_objects import GROUP
from tests.support.control_plane import SECONDS, ControlPlane
from tests.support.gateway_objects import JsonObject
from tests.support.rbac_manifests import rules_for_gateways
from tests.support.stages import Stage

CRD = create_global_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
ROLE = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
BINDING = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
RIGHTS = rules_for_gateways()
NAME = "local-lb-gateways"


def definition(kind: ApiKind) -> JsonObject:
    """Write a CRD that takes any object."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name, "listKind": f"{kind.name}List"}
    unapproved = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "metadata": {"name": f"{kind.plural}.{GROUP}", "annotations": unapproved},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def resource(name: str) -> Any:  # noqa: ANN401 - a type of the client
    """Return the client's type of a kind."""
    kind = KINDS[name]
    make = create_namespaced_resource if kind.namespaced else create_global_resource
    return make(GROUP, "v1", kind.name, kind.plural)


def create(client: Client, document: JsonObject) -> None:
    made = resource(document["kind"]).from_dict(document)
    if KINDS[document["kind"]].namespaced:
        client.create(made, namespace="n")
    else:
        client.create(made)


def is_created(client: Client, document: JsonObject) -> bool:
    """Return whether it could be created by now."""
    try:
        create(client, document)
    except HTTPStatusError as error:  # a kind's path is unknown, in plain text, until its definition is established
        return error.response.status_code == codes.CONFLICT
    return True


@pytest.fixture
def owner(plane: ControlPlane) -> Iterator[Client]:
    """Return the owner of a cluster in which local-lb may read Gateway API; the kinds go at the end."""
    with plane.client() as client:
        client.create(ROLE.from_dict({"metadata": {"name": NAME}, "rules": RIGHTS}))
        subject = {"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
        client.create(BINDING.from_dict({"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]}))
        yield client
        for kind in KINDS.values():
            client.delete(CRD, f"{kind.plural}.{GROUP}")
        for kind in KINDS.values():
            until_gone(client, kind.plural)
        client.delete(BINDING, NAME)
        client.delete(ROLE, NAME)


def address_of(play: Stage, kind: str = "gateways") -> str:
    """Return the address of the only Gateway, or of the only class of Ingresses; empty while it has none."""
    rows = play.run("status", "--json").json
    return next((str(row["addresses"][0]) for row in rows if row["kind"] == kind and row["addresses"]), "")


def status_of(owner: Client, kind: str, name: str) -> JsonObject:
    return dict(owner.get(resource(kind), name, namespace="n").get("status") or {})


def until_gone(client: Client, kind: str) -> None:
    """Wait until a CRD is away, so that the next test can make it again."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            client.get(CRD, f"{kind}.{GROUP}")
        except ApiError:
            return
        time.sleep(0.1)
    raise AssertionError(kind)
