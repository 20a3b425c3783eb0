"""A Gateway of a real API: served where its kinds came later than the loop, followed as it changes, and told of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from lightkube import Client
from lightkube.types import PatchType

from locallb.cli.failures import Exit
from locallb.gateway.kinds import KINDS
from locallb.kubernetes.api.writes import Unwritable
from locallb.model.gateway_objects import GROUP
from locallb.outputs import status
from tests.support.backends import Backend, ask
from tests.support.cluster_gateways import (
    CRD,
    NAME,
    RIGHTS,
    ROLE,
    address_of,
    definition,
    is_created,
    owner,
    resource,
    status_of,
)
from tests.support.control_plane import Objects
from tests.support.gateway_objects import JsonObject, gateway, gateway_class, listener
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.waiting import becomes
from tests.support.watching import Watch, answers, eventually, watching

__all__ = ["owner"]

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]


def tcp_route(name: str) -> JsonObject:
    """Make a route of the Gateway `web` to a Service."""
    spec = {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [{"name": name, "port": 8080}]}]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "TCPRoute", "metadata": {"name": "r", "namespace": "n"}, "spec": spec}


def test_a_gateway_of_a_cluster_serves_changes_and_goes_by_itself(
    cluster: Objects, owner: Client, play: Stage, backend: Backends
) -> None:
    """The loop runs before there are CRDs; a Service beside it is served at all times."""
    for name in ("one", "two"):
        made = cluster.service({**service(name, port(8080, 0)), "spec": {"type": "NodePort", "ports": [port(8080, 0)]}})
        backend(name, port=made["spec"]["ports"][0]["nodePort"])
    with watching(play) as watch:
        serve(owner, watch)
        eventually(lambda: address_of(play), watch)
        at = address_of(play)
        eventually(lambda: answers(at, 8080, "one"), watch)
        owner.patch(
            resource("TCPRoute"), "r", {"spec": tcp_route("two")["spec"]}, namespace="n", patch_type=PatchType.MERGE
        )
        eventually(lambda: answers(at, 8080, "two"), watch)
        assert ask(at, 8080) == "two: hello"
        eventually(
            lambda: status_of(owner, "TCPRoute", "r")["parents"][0]["conditions"][0]["observedGeneration"] == 2, watch
        )
        eventually(lambda: status_of(owner, "Gateway", "web").get("addresses"), watch)
        assert [each["value"] for each in status_of(owner, "Gateway", "web")["addresses"]] == [at]
        clear(owner, "Gateway", "web", "addresses")
        eventually(lambda: status_of(owner, "Gateway", "web")["addresses"], watch)
        clear(owner, "TCPRoute", "r", "parents")
        eventually(lambda: status_of(owner, "TCPRoute", "r")["parents"], watch)
        owner.delete(resource("Gateway"), "web", namespace="n")
        eventually(lambda: not address_of(play), watch)
        eventually(lambda: status_of(owner, "TCPRoute", "r")["parents"] == [], watch)


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
        becomes(partial(is_created, owner, document), "the kinds are served")
    done = play.run("up", "--yes")
    assert done.code == Exit.FAILED
    assert (done.out + done.err).count("missing permission: patch") == 1
    assert ask(address_of(play), 8080) == "one: hello"
    (entry,) = (cluster.read("web") or {})["status"]["loadBalancer"]["ingress"]
    assert ask(entry["ip"], 8080) == "web: hello"


def clear(owner: Client, kind: str, name: str, field: str) -> None:
    """Take what stands in a field of a status away, as somebody else would."""
    patch: JsonObject = {"status": {field: []}}
    owner.patch(resource(kind).Status, name, patch, namespace="n", patch_type=PatchType.MERGE)


def serve(owner: Client, watch: Watch) -> None:
    """Have the cluster serve the kinds, and make a class, a Gateway and a route."""
    for kind in KINDS.values():
        owner.create(CRD.from_dict(definition(kind)))
    web = gateway(listener("tcp", 8080, "TCP"), metadata={"namespace": "n"})
    of_ours = {**gateway_class(), "metadata": {"name": "local"}}
    for document in (of_ours, web, tcp_route("one")):
        eventually(partial(is_created, owner, document), watch)
