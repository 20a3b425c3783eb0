"""What is asked of a running cluster for its Gateways, and what counts while something of it isn't known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.kinds import (
    CONFIG_MAP,
    KINDS,
    NAMESPACE,
    SECRET,
    SERVICE,
    by_kind,
    kind_of,
    named_objects,
    wanted_kinds,
)
from locallb.kubernetes.relevant import parse_gateway_api
from locallb.model.gateway_of_cluster import ObjectOfCluster
from locallb.model.memory import Memo
from locallb.sources.kubernetes.gateway_listing import GATEWAYS
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    api_object,
    gateway,
    gateway_class,
    grant,
    listener,
    namespace,
    route,
    service,
)

EVERYTHING = (*KINDS, NAMESPACE, SECRET, CONFIG_MAP, SERVICE)


def read(*documents: JsonObject) -> list[ObjectOfCluster]:
    return [one for document in documents for one in parse_gateway_api(DEMO, document, Memo())]


def cluster(to: str) -> list[ObjectOfCluster]:
    """Return a cluster with a Gateway of ours, a route, and what it leads to."""
    return read(gateway_class(), gateway(), route(name=to), service(to), namespace(to), grant(to))


@given(st.sets(st.sampled_from(EVERYTHING)))
def test_each_kind_is_as_it_is_known_or_as_it_was(kinds: set[str]) -> None:
    """While classes or Gateways aren't known, all is as it was; else kind by kind."""
    now, last = cluster("now"), cluster("last")
    existing = {kind: some for kind, some in by_kind(now, EVERYTHING).items() if kind in kinds}
    reported = GATEWAYS.current_or_last(KINDS, existing, last)
    if not {"GatewayClass", "Gateway"} <= kinds:
        assert reported == tuple(last)
        return
    for kind in EVERYTHING:
        source = now if kind in kinds else last
        assert [one for one in reported if kind_of(one.object) == kind] == [
            one for one in source if kind_of(one.object) == kind
        ]


def test_kinds_not_asked_yet_count_as_last_read_and_absent_kinds_as_gone() -> None:
    """A cluster that was asked and has no Gateway API has nothing, whatever was read before."""
    last = cluster("last")
    assert GATEWAYS.current_or_last(None, {}, last) == tuple(last)
    assert GATEWAYS.current_or_last((), {}, last) == ()
    assert GATEWAYS.current_or_last(KINDS, {"GatewayClass": []}, last) == ()
    assert wanted_kinds(KINDS, {}) == ("GatewayClass",)


def test_secrets_are_those_that_may_be_named() -> None:
    """By Gateways of ours: in their own namespace, elsewhere with a grant."""
    refs = [{"name": "mine"}, {"name": "granted", "namespace": "open"}, {"name": "theirs", "namespace": "closed"}]
    ours = gateway(listener("https", 443, "HTTPS", tls={"certificateRefs": refs}))
    other = gateway(listener("https", 443, "HTTPS", tls={"certificateRefs": [{"name": "no"}]}), name="other")
    other["spec"]["gatewayClassName"] = "other"
    objects = read(gateway_class(), ours, other, grant("open", kind="Gateway", what="Secret"))
    assert {str(one.key) for one in named_objects(objects)} == {"shop/mine", "open/granted"}


def test_gateway_tls_names_only_objects_that_it_may_reference() -> None:
    """Authorities of clients and the certificate shown to backends; policies name objects of their own namespace."""
    refs = [{"kind": "ConfigMap", "name": "mine"}, {"kind": "ConfigMap", "name": "a", "namespace": "open"}]
    closed = [{"kind": "ConfigMap", "name": "a", "namespace": "closed"}, {"kind": "Service", "name": "a"}]
    frontend = {
        "default": {"validation": {"caCertificateRefs": refs}},
        "perPort": [{"port": 1, "tls": {"validation": {"caCertificateRefs": closed}}}],
    }
    ours = gateway(tls={"frontend": frontend, "backend": {"clientCertificateRef": {"name": "shown"}}})
    other = gateway(tls={"frontend": {"default": {"validation": {"caCertificateRefs": [{"name": "no"}]}}}}, name="no")
    other["spec"]["gatewayClassName"] = "other"
    named = {"targetRefs": [], "validation": {"caCertificateRefs": [{"kind": "ConfigMap", "name": "policy"}]}}
    policy = api_object("BackendTLSPolicy", "policy", spec=named)
    grants = grant("open", kind="Gateway", what="ConfigMap"), grant("closed", kind="Gateway", what="Secret")
    objects = read(gateway_class(), ours, other, policy, *grants)
    assert {(one.kind, str(one.key)) for one in named_objects(objects)} == {
        ("Secret", "shop/shown"),
        ("ConfigMap", "shop/mine"),
        ("ConfigMap", "open/a"),
        ("ConfigMap", "shop/policy"),
    }
