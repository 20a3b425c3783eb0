"""The first objects that a user applies, as the pages of kind have them, and how they answer.

A Service of type LoadBalancer, an Ingress without a class and a Gateway with an HTTPRoute, both on ClusterIP Services.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from lightkube import ApiError

from locallb.gateway.kinds import KINDS
from locallb.model.own_classes import NAME
from tests.kubelets.deployments import HOSTNAMES
from tests.kubelets.workloads import Workloads, service_port
from tests.support.cluster_gateways import CRD, create, definition, is_created, resource, until_gone
from tests.support.gateway_objects import backend, gateway, listener, parent, route
from tests.support.gateway_objects import rule as route_rule
from tests.support.http_traffic import Client
from tests.support.ingress_objects import backend as ingress_backend
from tests.support.ingress_objects import ingress, path, rule
from tests.support.ingress_rights import CLASS, INGRESS
from tests.support.manifests import service
from tests.support.waiting import becomes

APPS = ("foo", "bar")
"""Deployments of one pod behind ClusterIP Services."""
GATEWAYS = resource("Gateway")


@contextmanager
def gateway_kinds(world: Workloads) -> Iterator[None]:
    """Have the kinds of Gateway API; Ingresses and our classes go with them."""
    client = world.client
    for kind in KINDS.values():
        client.create(CRD.from_dict(definition(kind)))
    try:
        yield
    finally:
        for item in client.list(INGRESS, namespace="*"):
            client.delete(INGRESS, item["metadata"]["name"], namespace=item["metadata"]["namespace"])
        with suppress(ApiError):  # it stays as long as an Ingress names it
            client.delete(CLASS, NAME)
        for kind in KINDS.values():
            client.delete(CRD, f"{kind.plural}.{kind.group}")
        for kind in KINDS.values():
            until_gone(client, kind.plural)


def first_objects(world: Workloads) -> None:
    """Deploy and create them."""
    for name in APPS:
        world.deploy(name, 1, containers=[HOSTNAMES])
        made = service(name, service_port(80), selector={"app": name})
        world.service({**made, "spec": {**made["spec"], "type": "ClusterIP"}})
    world.deploy("web", 2)
    world.expose("web")
    paths = [path(f"/{name}", to=ingress_backend(name, "tcp-80")) for name in APPS]
    world.client.create(INGRESS.from_dict(of_n(ingress(rule(*paths), name="example", class_name=None))), namespace="n")
    front = of_n(gateway(listener(), name="front", gatewayClassName=NAME))
    becomes(lambda: is_created(world.client, front), "the kinds of Gateway API are there")
    rules = [route_rule("/", backends=[backend("bar", 80)])]
    leading = route(*rules, name="bar", parentRefs=[parent("front")], hostnames=["bar.test"])
    create(world.client, {**leading, "metadata": {"name": "bar", "namespace": "n"}})


def objects_answer(world: Workloads) -> bool:
    """Return whether the Ingress and the Gateway lead to the pods that their rules name."""
    by_ingress, by_gateway = address(world, INGRESS, "example"), address(world, GATEWAYS, "front")
    ingresses = [answering(by_ingress, to, "a.test") for to in ("/foo", "/bar/x")]
    return [*ingresses, answering(by_gateway, "/", "bar.test")] == ["foo", "bar", "bar"]


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


def of_n(document: dict[str, Any]) -> dict[str, Any]:
    """Put an object into the namespace of the pods."""
    return {**document, "metadata": {**document["metadata"], "namespace": "n"}}
