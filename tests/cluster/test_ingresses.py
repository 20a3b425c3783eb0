"""Ingresses of a real API, served and told with the rights of deploy/rbac-ingresses.yaml and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from lightkube import Client
from lightkube.types import PatchType

from tests.support.cluster_gateways import address_of
from tests.support.control_plane import ControlPlane, Objects
from tests.support.gateway_clients import answering, get
from tests.support.ingress_objects import JsonObject, ingress, path, rule
from tests.support.ingress_rights import INGRESS, ingress_rights
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

INGRESS_STATUS: Any = INGRESS.Status


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Have our class in the cluster, and local-lb's rights."""
    del cluster
    with plane.client() as client, ingress_rights(client):
        yield client


def leading(to: str, name: str = "web", host: str = "a.test") -> JsonObject:
    return ingress(rule(path(to=to), host=host), name=name, namespace="n", class_name="local-lb")


def reported(owner: Client, name: str = "web") -> list[JsonObject]:
    """Return what an Ingress says of its addresses."""
    status = owner.get(INGRESS, name, namespace="n").get("status") or {}
    return list((status.get("loadBalancer") or {}).get("ingress") or ())


def is_answered(address: str, host: str, name: str) -> bool:
    """Return whether requests for a host go to a backend."""
    return get(address, host=host) == (200, f"{name} / -")


def test_ingresses_of_a_cluster_serve_change_and_go(
    cluster: Objects, owner: Client, play: Stage, plane: ControlPlane
) -> None:
    """The loop runs before there are any; two share an address; each is told, and told of its end."""
    plane.audit_log.write_text("")
    play.configure(sources=[plane.source], ingress={"class": "local-lb", "http": 8080, "https": 8443})
    with ExitStack() as servers, watching(play) as watch:
        for name in ("one", "two"):
            made = cluster.service(
                {**service(name, port(8080, 0)), "spec": {"type": "NodePort", "ports": [port(8080, 0)]}}
            )
            servers.enter_context(answering(name, made["spec"]["ports"][0]["nodePort"]))
        owner.create(INGRESS.from_dict(leading("one")), namespace="n")
        eventually(lambda: address_of(play, "ingressclasses"), watch)
        at = address_of(play, "ingressclasses")
        eventually(lambda: is_answered(at, "a.test", "one"), watch)
        eventually(lambda: reported(owner) == [{"ip": at, "ports": [{"port": 8080, "protocol": "TCP"}]}], watch)
        served = "Normal", "EnsuredLoadBalancer", f"serves a.test on 8080 at {at}"
        eventually(lambda: served in cluster.events("web"), watch)
        owner.create(INGRESS.from_dict(leading("two", "second", "b.test")), namespace="n")
        eventually(lambda: is_answered(at, "b.test", "two"), watch)
        eventually(lambda: [each["ip"] for each in reported(owner, "second")] == [at], watch)
        # Somebody else takes the addresses away, and writes others.
        for written in (None, [{"ip": "192.0.2.1"}]):
            status: JsonObject = {"status": {"loadBalancer": {"ingress": written}}}
            owner.patch(INGRESS_STATUS, "web", status, namespace="n", patch_type=PatchType.MERGE)
            eventually(lambda: reported(owner) == [{"ip": at, "ports": [{"port": 8080, "protocol": "TCP"}]}], watch)
        owner.patch(INGRESS, "web", {"spec": leading("two")["spec"]}, namespace="n", patch_type=PatchType.MERGE)
        eventually(lambda: is_answered(at, "a.test", "two"), watch)
        other = {"spec": {"ingressClassName": "other"}}
        owner.patch(INGRESS, "second", other, namespace="n", patch_type=PatchType.MERGE)
        eventually(lambda: reported(owner, "second") == [], watch)
        owner.delete(INGRESS, "web", namespace="n")
        eventually(lambda: not address_of(play, "ingressclasses"), watch)
    requested = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    refused = [each["requestURI"] for each in requested if each["responseStatus"]["code"] == httpx2.codes.FORBIDDEN]
    assert refused == []


def test_a_class_that_may_not_be_listed_is_not_asked_for(cluster: Objects, play: Stage, plane: ControlPlane) -> None:
    """With the rights for Services alone: one question that anybody may ask."""
    del cluster
    plane.audit_log.write_text("")
    play.up()
    requested = [json.loads(line)["requestURI"] for line in plane.audit_log.read_text().splitlines()]
    assert any("selfsubjectaccessreviews" in each for each in requested)
    assert not any("ingress" in each for each in requested)
