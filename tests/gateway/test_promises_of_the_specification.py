"""Single sentences of the specification, each quoted with the field that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from locallb.gateway.routes import Backends
from locallb.gateway.statuses import GatewayResult, gateway_status, listener_set_status, route_status, verdicts_by_route
from locallb.gateway.texts import sentences
from locallb.gateway.translation import bind
from locallb.model.http_serving import Speaks
from tests.support.backend_tls import bundle, policy
from tests.support.evaluation import answered
from tests.support.gateway_objects import (
    JsonObject,
    api_object,
    backend,
    bound,
    gateway,
    gateway_class,
    listener,
    objects,
    only,
    parent,
    route,
    service,
)


def _condition(entry: Mapping[str, Any], kind: str) -> tuple[str, str]:
    (stated,) = (each for each in entry["conditions"] if each["type"] == kind)
    return stated["status"], stated["reason"]


def _resolved(*documents: JsonObject) -> tuple[str, str]:
    read = objects(gateway_class(), service(), *documents)
    ((_, verdicts),) = verdicts_by_route(bind(read))
    (parent_status,) = route_status(verdicts, Backends(read)).status["parents"]
    return _condition(parent_status, "ResolvedRefs")


def _listeners(*documents: JsonObject) -> dict[str, JsonObject]:
    status = gateway_status(only(*documents), GatewayResult()).status
    return {each["name"]: each for each in status["listeners"]}


def test_a_policy_that_cannot_be_met_is_a_reference_of_the_route_that_is_not_resolved() -> None:
    """BackendTLSPolicy.spec.validation: "Connections using an invalid CACertificateRef MUST fail"; routes say so."""
    assert _resolved(gateway(), route(), policy()) == ("False", "NoValidCACertificate")
    assert _resolved(gateway(), route(), policy(), bundle()) == ("True", "ResolvedRefs")
    tls = gateway(listener(protocol="TLS", tls={"certificateRefs": [{"name": "cert"}]}))
    opened = route({"backendRefs": [backend()]}, kind="TLSRoute")
    assert _resolved(tls, opened, policy()) == ("False", "NoValidCACertificate")
    passed = gateway(listener(protocol="TLS", tls={"mode": "Passthrough"}))
    assert _resolved(passed, opened, policy()) == ("True", "ResolvedRefs")


def test_a_policy_for_bytes_that_pass_as_they_come_is_reported() -> None:
    """It can't be kept where clients may have closed the bytes themselves."""
    for kind, where in (
        ("TCPRoute", listener(protocol="TCP")),
        ("TLSRoute", listener(protocol="TLS", tls={"mode": "Passthrough"})),
    ):
        read = objects(
            gateway_class(),
            service(),
            gateway(where),
            route({"backendRefs": [backend()]}, kind=kind),
            policy(),
            bundle(),
        )
        reported = [sentence for sentence in sentences(read, bind(read)) if "gets bytes as they come" in sentence]
        assert len(reported) == 1, kind


@pytest.mark.parametrize(
    ("one", "other", "reasons"),
    [
        (
            listener("a", protocol="SCTP"),
            listener("b"),
            (("False", "UnsupportedProtocol"), ("True", "Accepted")),
        ),
        (
            listener("a", protocol="HTTPS", tls={"certificateRefs": [{"name": "cert"}]}),
            listener("b", protocol="TCP"),
            (("False", "ProtocolConflict"), ("False", "ProtocolConflict")),
        ),
    ],
)
def test_conflicts_are_judged_on_both_sides(
    one: JsonObject, other: JsonObject, reasons: tuple[tuple[str, str], ...]
) -> None:
    """GatewaySpec.listeners: conflicted listeners aren't accepted, whatever else one of them lacks."""
    tls = {
        "frontend": {
            "default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "x"}]}}
        }
    }
    found = _listeners(gateway(one, other, tls=tls))
    assert tuple(_condition(found[name], "Accepted") for name in ("a", "b")) == reasons


@pytest.mark.parametrize("hostname", ["1.2.3.4", "a_b.test", "A B"])
def test_the_hostname_is_the_reason_why_a_listener_is_refused_for_it(hostname: str) -> None:
    """Listener.hostname: "IPs are not allowed". Routes that it allows aren't told of its allowedRoutes."""
    allowed = {"namespaces": {"from": "All"}}
    one = only(gateway(listener(hostname=hostname, allowedRoutes=allowed)), route(namespace="else"))
    (bound_listener,) = one.listeners
    assert bound_listener.accepted is not None
    assert "hostname" in bound_listener.accepted.message
    (verdict,) = one.attachment.verdicts
    assert verdict.accepted is None


def test_a_listener_set_of_which_a_part_is_served_says_so() -> None:
    """ListenerSetStatus: as of a Gateway, ListenersNotValid where one or more of its listeners aren't valid."""
    served, refused = listener("x", 81), listener("y", 82, protocol="SCTP")
    set_ = api_object("ListenerSet", "more", spec={"parentRef": parent(), "listeners": [served, refused]})
    read = objects(gateway_class(), gateway(allowedListeners={"namespaces": {"from": "Same"}}), set_)
    (one,) = bind(read)
    status = listener_set_status(read.listener_sets[0], one, GatewayResult(), read).status
    assert _condition(status, "Accepted") == ("True", "ListenersNotValid")


WSS = service("api", {"port": 8080, "appProtocol": "kubernetes.io/wss"})


def test_the_app_protocol_of_a_port_matters_to_requests_alone() -> None:
    """GEP-1911: kubernetes.io/wss is WebSocket by TLS, as a BackendTLSPolicy says; TCP and TLS routes carry bytes."""
    read = objects(gateway_class(), WSS, gateway(), route())
    (one,) = bind(read)
    assert answered(one, "a.test", "/") == "500"
    (one,) = bind(objects(gateway_class(), WSS, gateway(), route(), policy(), bundle()))
    assert answered(one, "a.test", "/") == "api"
    (target,) = one.targets.values()
    assert (target.speaks, target.tls is not None) == (Speaks.HTTP1, True)
    for kind, where in (
        ("TCPRoute", listener(protocol="TCP")),
        ("TLSRoute", listener(protocol="TLS", tls={"mode": "Passthrough"})),
    ):
        (one,) = bind(objects(gateway_class(), WSS, gateway(where), route({"backendRefs": [backend()]}, kind=kind)))
        assert [each.service.name for each in one.targets.values()] == ["api"]


def test_without_any_listener_that_is_understood_nothing_is_bound_twice() -> None:
    """Two of one protocol and hostname conflict, whether they could be served or not."""
    twins = [listener(name, protocol="HTTPS", tls={"certificateRefs": [{"name": "gone"}]}) for name in ("a", "b")]
    (one,) = bound(gateway(*twins))
    assert {each.conflict.reason for each in one.listeners if each.conflict} == {"HostnameConflict"}


def test_without_any_weight_requests_are_refused() -> None:
    """BackendRef.weight: "If weight is set to 0, no traffic should be forwarded for this entry"."""
    weightless = {"backendRefs": [{**backend(), "weight": 0}, {**backend(), "weight": 0}]}
    (one,) = bind(objects(gateway_class(), service(), gateway(), route(weightless)))
    assert answered(one, "a.test", "/") == "500"


def test_a_request_goes_on_to_less_specific_hostnames_of_its_listener_alone() -> None:
    """HTTPRouteSpec.hostnames: the most specific one decides first; what its rules don't match, the next one gets."""
    listeners = listener("all"), listener("b", hostname="*.b.test")
    mine = {"matches": [{"path": {"value": "/mine"}}], "backendRefs": [backend("mine")]}
    rest = {"backendRefs": [backend("rest")]}
    documents = [
        route(mine, name="mine", hostnames=["x.a.test", "x.b.test"]),
        route(rest, name="rest", hostnames=["*.a.test"]),
        route(rest, name="every", parentRefs=[parent(sectionName="all")]),
    ]
    (one,) = bind(objects(gateway_class(), service("mine"), service("rest"), gateway(*listeners), *documents))
    assert [answered(one, "x.a.test", path) for path in ("/mine", "/else")] == ["mine", "rest"]
    assert [answered(one, "x.b.test", path) for path in ("/mine", "/else")] == ["mine", "404"]
