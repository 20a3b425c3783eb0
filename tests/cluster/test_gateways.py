"""A Gateway of a real API: served where its kinds came later than the loop, followed as it changes, and told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from locallb.cli.failures import Exit
from locallb.gateway.kinds import KINDS, ApiKind
from locallb.kubernetes.api.writes import Unwritable
from locallb.kubernetes.rights import AUTHORITY_RULES, GATEWAY_RULES, SECRET_RULES
from locallb.model.gateway_objects import GROUP
from locallb.outputs import status
from tests.cluster.controlplane import ControlPlane, Objects
from tests.cluster.test_gateway_statuses import until_gone
from tests.e2e.support import Backend, Stage, ask, port, service
from tests.e2e.watching import Watch, answers, becomes, watching
from tests.gateway.api import JsonObject, gateway, gateway_class, listener
from tests.traffic.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
CRD = create_global_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
ROLE = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
BINDING = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
RIGHTS = [rule.fields for rule in (*GATEWAY_RULES, *SECRET_RULES, *AUTHORITY_RULES)]
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
    """Create an object."""
    made = resource(document["kind"]).from_dict(document)
    if KINDS[document["kind"]].namespaced:
        client.create(made, namespace="n")
    else:
        client.create(made)


def is_created(client: Client, document: JsonObject) -> bool:
    """Return whether it could be created by now."""
    try:
        create(client, document)
    except ApiError as error:
        return error.status.code == 409
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


def tcp_route(name: str) -> JsonObject:
    """Make a route of the Gateway `web` to a Service."""
    spec = {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [{"name": name, "port": 8080}]}]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "TCPRoute", "metadata": {"name": "r", "namespace": "n"}, "spec": spec}


def address_of(play: Stage) -> str:
    """Return the Gateway's address; empty while it has none."""
    rows = play.run("status", "--json").json
    return next((str(row["addresses"][0]) for row in rows if row["kind"] == "gateways" and row["addresses"]), "")


def test_a_gateway_of_a_cluster_serves_changes_and_goes_by_itself(
    cluster: Objects, owner: Client, play: Stage, backend: Backends
) -> None:
    """The loop runs before there are CRDs; a Service beside it is served at all times."""
    for name in ("one", "two"):
        made = cluster.service({**service(name, port(8080, 0)), "spec": {"type": "NodePort", "ports": [port(8080, 0)]}})
        backend(name, port=made["spec"]["ports"][0]["nodePort"])
    with watching(play) as watch:
        serve(owner, watch)
        becomes(lambda: address_of(play), watch)
        at = address_of(play)
        becomes(lambda: answers(at, 8080, "one"), watch)
        owner.patch(
            resource("TCPRoute"), "r", {"spec": tcp_route("two")["spec"]}, namespace="n", patch_type=PatchType.MERGE
        )
        becomes(lambda: answers(at, 8080, "two"), watch)
        assert ask(at, 8080) == "two: hello"
        becomes(
            lambda: status_of(owner, "TCPRoute", "r")["parents"][0]["conditions"][0]["observedGeneration"] == 2, watch
        )
        becomes(lambda: status_of(owner, "Gateway", "web").get("addresses"), watch)
        assert [each["value"] for each in status_of(owner, "Gateway", "web")["addresses"]] == [at]
        clear(owner, "Gateway", "web", "addresses")
        becomes(lambda: status_of(owner, "Gateway", "web")["addresses"], watch)
        clear(owner, "TCPRoute", "r", "parents")
        becomes(lambda: status_of(owner, "TCPRoute", "r")["parents"], watch)
        owner.delete(resource("Gateway"), "web", namespace="n")
        becomes(lambda: not address_of(play), watch)
        becomes(lambda: status_of(owner, "TCPRoute", "r")["parents"] == [], watch)


def test_without_the_right_to_write_statuses_all_is_served_and_it_is_reported_once(
    cluster: Objects, owner: Client, play: Stage, backend: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Gateway, and a Service beside it that is told its address as ever."""
    monkeypatch.setattr(status, "UNWRITABLE", Unwritable())
    reading = [rule for rule in RIGHTS if not rule["resources"][0].endswith("/status")]
    owner.patch(ROLE, NAME, {"rules": reading}, patch_type=PatchType.MERGE)
    for name, kind in (("one", "NodePort"), ("web", "LoadBalancer")):
        made = cluster.service({**service(name, port(8080, 0)), "spec": {"type": kind, "ports": [port(8080, 0)]}})
        backend(name, port=made["spec"]["ports"][0]["nodePort"])
    for made_kind in KINDS.values():
        owner.create(CRD.from_dict(definition(made_kind)))
    web, of_ours = gateway(listener("tcp", 8080, "TCP"), metadata={"namespace": "n"}), gateway_class()
    for document in ({**of_ours, "metadata": {"name": "local"}}, web, tcp_route("one")):
        eventually(partial(is_created, owner, document), "the kinds are served")
    done = play.run("up", "--yes")
    assert done.code == Exit.FAILED
    assert (done.out + done.err).count("may not patch") == 1
    assert ask(address_of(play), 8080) == "one: hello"
    (entry,) = (cluster.read("web") or {})["status"]["loadBalancer"]["ingress"]
    assert ask(entry["ip"], 8080) == "web: hello"


def clear(owner: Client, kind: str, name: str, field: str) -> None:
    """Take what stands in a field of a status away, as somebody else would."""
    patch: JsonObject = {"status": {field: []}}
    owner.patch(resource(kind).Status, name, patch, namespace="n", patch_type=PatchType.MERGE)


def status_of(owner: Client, kind: str, name: str) -> JsonObject:
    """Return what an object is told."""
    return dict(owner.get(resource(kind), name, namespace="n").get("status") or {})


def serve(owner: Client, watch: Watch) -> None:
    """Have the cluster serve the kinds, and make a class, a Gateway and a route."""
    for kind in KINDS.values():
        owner.create(CRD.from_dict(definition(kind)))
    web = gateway(listener("tcp", 8080, "TCP"), metadata={"namespace": "n"})
    of_ours = {**gateway_class(), "metadata": {"name": "local"}}
    for document in (of_ours, web, tcp_route("one")):
        becomes(partial(is_created, owner, document), watch)
