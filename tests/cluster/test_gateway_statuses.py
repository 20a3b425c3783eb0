"""Statuses of Gateway API's objects in a real API, with the rights of deploy/rbac-gateways.yaml and no others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from lightkube import Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType
from msgspec.structs import replace

from locallb.gateway.kinds import KINDS
from locallb.gateway.status_patch import contains
from locallb.gateway.statuses import Status
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.api.servers import KubeError, RefusedError
from locallb.kubernetes.api.writes import PAUSE, Unwritable
from locallb.model.gateway_objects import CONTROLLER, GROUP
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, ObjectKind, Owner, Uid
from locallb.model.snapshot import Access
from locallb.outputs import status
from locallb.outputs.status import GatewayStatus
from locallb.resources.properties import GatewayStatusInputs
from locallb.resources.resource_type import ProviderError
from tests.support.client_kinds import EVENT
from tests.support.cluster_gateways import CRD, ROLE, until_gone
from tests.support.control_plane import SECONDS, ControlPlane, Document, Objects
from tests.support.waiting import becomes

pytestmark = pytest.mark.cluster

BINDING = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
REVIEW = create_global_resource("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "rbac-gateways.yaml"
ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
TOLD: dict[ObjectKind, Status] = {
    ObjectKind.GATEWAY_CLASS: {"conditions": [ACCEPTED]},
    ObjectKind.GATEWAY: {"conditions": [ACCEPTED], "addresses": [{"type": "IPAddress", "value": "127.77.0.9"}]},
    ObjectKind.TCP_ROUTE: {
        "parents": [{"parentRef": {"name": "web"}, "controllerName": CONTROLLER, "conditions": [ACCEPTED]}]
    },
    ObjectKind.BACKEND_TLS_POLICY: {
        "ancestors": [{"ancestorRef": {"name": "web"}, "controllerName": CONTROLLER, "conditions": [ACCEPTED]}]
    },
}
SERVED = {
    ObjectKind.GATEWAY_CLASS: "v1",
    ObjectKind.GATEWAY: "v1",
    ObjectKind.TCP_ROUTE: "v1alpha2",
    ObjectKind.BACKEND_TLS_POLICY: "v1alpha3",
}
"""In which version each is served: the preferred one, and the oldest that is read."""
OTHERS = {"parentRef": {"name": "web"}, "controllerName": "example.com/controller", "conditions": []}
KIND = pytest.mark.parametrize("kind", TOLD)


def definition(kind: ObjectKind) -> Document:
    """Write a CRD that takes any object and has the status apart."""
    existing = next(each for each in KINDS.values() if each.plural == kind)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "metadata": {
            "name": f"{kind}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if existing.namespaced else "Cluster",
            "names": {"plural": kind.value, "singular": existing.name.lower(), "kind": existing.name},
            "versions": [{"name": SERVED[kind], **version}],
        },
    }


def served_type(kind: ObjectKind) -> Any:  # noqa: ANN401 - a type of the client
    """Return the client's type in the version that is served."""
    existing = next(each for each in KINDS.values() if each.plural == kind)
    create = create_namespaced_resource if existing.namespaced else create_global_resource
    return create(existing.group, SERVED[kind], existing.name, existing.plural)


def patiently(client: Client, kind: ObjectKind, body: Document) -> Document:
    """Create an object as soon as its kind is served."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return dict(client.create(served_type(kind).from_dict(body), namespace="n"))
        except httpx2.HTTPStatusError as error:
            if error.response.status_code != httpx2.codes.NOT_FOUND or time.monotonic() > end:
                raise
        time.sleep(0.1)


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Have the kinds in the cluster, and local-lb's rights to them."""
    del cluster
    with plane.client() as client:
        documents = [
            one for one in yaml.safe_load_all(MANIFEST.read_text()) if "secrets" not in one["metadata"]["name"]
        ]
        subject = {"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}
        client.create(ROLE.from_dict(documents[0]))
        client.create(BINDING.from_dict({**documents[1], "subjects": [subject]}))
        for kind in TOLD:
            client.create(CRD.from_dict(definition(kind)))
        yield client
        for kind in TOLD:
            client.delete(CRD, f"{kind}.{GROUP}")
        for kind in TOLD:
            until_gone(client, kind)
        client.delete(BINDING, documents[1]["metadata"]["name"])
        client.delete(ROLE, documents[0]["metadata"]["name"])


class Subject:
    """One object, and what it is told."""

    def __init__(self, plane: ControlPlane, client: Client, kind: ObjectKind) -> None:
        self._client, self._kind = client, kind
        made = patiently(client, kind, {"metadata": {"name": "web"}})
        self.namespace = "" if kind is ObjectKind.GATEWAY_CLASS else "n"
        key = ObjectKey(ClusterName("real"), self.namespace, "web", kind)
        self.owner = Owner(Home("shop", "dev", "/srv/shop"), key, Uid(made["metadata"]["uid"]))
        self.reported = GatewayStatusInputs(
            access=Access(str(plane.kubeconfig), ContextName("real")),
            owner=self.owner,
            status=json.dumps(TOLD[kind]),
            generation=1,
        )

    def read(self) -> Document:
        return dict(self._client.get(served_type(self._kind), "web", namespace="n"))

    def write(self, status: Document) -> None:
        """Merge into its status, as somebody else would."""
        self._client.patch(
            served_type(self._kind).Status, "web", {"status": status}, namespace="n", patch_type=PatchType.MERGE
        )

    def delete(self) -> None:
        self._client.delete(served_type(self._kind), "web", namespace="n")

    def says_it(self) -> bool:
        """Return whether it says what it shall."""
        return contains(self.read(), TOLD[self._kind], 1)


@KIND
def test_a_status_arrives_is_repaired_and_goes(plane: ControlPlane, owner: Client, kind: ObjectKind) -> None:
    """Whoever writes in between is noticed by the version; what is theirs stays, and nothing is written twice."""
    subject = Subject(plane, owner, kind)
    subject.write({"theirs": 1, **({"parents": [OTHERS]} if "parents" in TOLD[kind] else {})})
    resource = GatewayStatus(None)
    _, state = resource.create(subject.reported)
    assert subject.says_it()
    version = subject.read()["metadata"]["resourceVersion"]
    resource.create(subject.reported)
    assert subject.read()["metadata"]["resourceVersion"] == version
    assert resource.read(state) == state
    subject.write(dict.fromkeys(TOLD[kind]))
    assert resource.read(state) != state
    assert resource.update(state, subject.reported) == state
    assert subject.says_it()
    resource.delete(state)
    assert resource.leaves_nothing(state)
    assert subject.read()["status"]["theirs"] == 1
    subject.delete()
    assert resource.read(state) is None
    resource.create(subject.reported)
    resource.delete(state)
    RECENT.forget(subject.reported.access)


def test_refusal_is_published_as_an_event(plane: ControlPlane, owner: Client) -> None:
    """Of an object without a namespace as well: the API takes it in the default one; once."""
    for kind in (ObjectKind.GATEWAY_CLASS, ObjectKind.BACKEND_TLS_POLICY):
        subject = Subject(plane, owner, kind)
        text = json.dumps(TOLD[kind]).replace('"True"', '"False"').replace('"Accepted", "message"', '"Odd", "message"')
        reported = replace(subject.reported, status=text)
        for _ in range(2):
            GatewayStatus(None).create(reported)
        mine = [one for one in owner.list(EVENT, namespace="*") if one["regarding"].get("uid") == subject.owner.uid]
        places = [(one["reason"], one["metadata"]["namespace"]) for one in mine]
        assert places == [("Odd", subject.namespace or "default")]


def test_a_right_that_is_missing_is_reported_once_and_used_when_it_is_given(
    plane: ControlPlane, owner: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all kinds in one sentence, with one request for each."""
    now = [0.0]
    monkeypatch.setattr(status, "UNWRITABLE", Unwritable(lambda: now[0]))
    subjects = [Subject(plane, owner, kind) for kind in (ObjectKind.GATEWAY, ObjectKind.TCP_ROUTE)]
    role = owner.get(ROLE, "local-lb-gateways")
    assert may_patch(plane)
    reading = [rule for rule in role["rules"] if not rule["resources"][0].endswith("/status")]
    owner.patch(ROLE, "local-lb-gateways", {"rules": reading}, patch_type=PatchType.MERGE)
    becomes(lambda: not may_patch(plane), "the right is gone")
    sentences = {refused(subject) for _ in range(2) for subject in subjects}
    assert len(sentences) == 1
    assert "deploy/rbac-gateways.yaml" in sentences.pop()
    owner.patch(ROLE, "local-lb-gateways", {"rules": role["rules"]}, patch_type=PatchType.MERGE)
    becomes(lambda: may_patch(plane), "the right is there")
    now[0] = PAUSE
    for subject in subjects:
        GatewayStatus(None).create(subject.reported)
        assert subject.says_it()


def may_patch(plane: ControlPlane) -> bool:
    """Return whether local-lb may write the status of every kind, as the API itself says."""
    wanted = {"verb": "patch", "group": GROUP, "subresource": "status"}
    with plane.client("local-lb") as client:
        reviews = [
            client.create(REVIEW.from_dict({"spec": {"resourceAttributes": {**wanted, "resource": kind.value}}}))
            for kind in TOLD
        ]
    return all(review["status"]["allowed"] for review in reviews)


def refused(subject: Subject) -> str:
    """Return why a status can't be written."""
    with pytest.raises(ProviderError) as caught:
        GatewayStatus(None).create(subject.reported)
    return str(caught.value)


def test_gateway_rights_allow_writing_statuses_only(plane: ControlPlane, owner: Client) -> None:
    """With these rights no spec can be changed and no Secret read; a refusal names the rights."""
    subject = Subject(plane, owner, ObjectKind.GATEWAY)
    with pytest.raises(KubeError, match=r"deploy/rbac-gateways\.yaml") as caught:
        live_object.secret(subject.reported.access, "n", "cert")
    assert isinstance(caught.value, RefusedError)
    GatewayStatus(None).create(subject.reported)
    live_object.write(
        subject.reported.access,
        subject.owner,
        lambda live: {
            "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
            "spec": {"gatewayClassName": "stolen"},
        },
    )
    assert "spec" not in subject.read()
