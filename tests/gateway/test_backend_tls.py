"""BackendTLSPolicies: which one counts, how backends are believed by it, and what its status says."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.backend_tls import BackendTlsPolicies, policy_status
from locallb.gateway.parsing import SECRET_REFERENCE
from locallb.gateway.routes import Backends
from locallb.gateway.statuses import gateways_by_policy, route_status, verdicts_by_route
from locallb.gateway.texts import sentences
from locallb.gateway.translation import bind
from locallb.model.gateway_objects import CONTROLLER, GROUP, Named
from locallb.model.gateway_of_cluster import GatewayObjects
from locallb.model.http_routes import Forward
from locallb.model.http_serving import BackendTls, TcpForward
from tests.support.backend_tls import KEY, OTHER_PEM, PEM, REF, bundle, policy
from tests.support.gateway_objects import (
    JsonObject,
    backend,
    gateway,
    gateway_class,
    hosts,
    listener,
    objects,
    only,
    parent,
    route,
    service,
)

SECRET = {**SECRET_REFERENCE, "metadata": {"name": "cert", "namespace": "shop"}, "spec": {"digest": "0"}}
FINE = ("True", "Accepted"), ("True", "ResolvedRefs")


def cluster(*documents: object) -> GatewayObjects:
    """Have a Gateway with a route to the Service `api`, and these."""
    return objects(gateway_class(), service(), gateway(), route(), *documents)


def reported(read: GatewayObjects) -> dict[str, list[Mapping[str, Any]]]:
    """Return the ancestors of each policy that is told something."""
    policies = BackendTlsPolicies(read)
    return {
        each.meta.key.name: policy_status(each, policies, gateways)["ancestors"]
        for each, gateways in gateways_by_policy(bind(read), policies)
    }


def stated(*documents: object, name: str = "tls") -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """Return what the only ancestor of a policy says of being accepted, and of its references."""
    (ancestor,) = reported(cluster(*documents))[name]
    conditions = {one["type"]: (one["status"], one["reason"]) for one in ancestor["conditions"]}
    return conditions.get("Accepted"), conditions.get("ResolvedRefs")


def believed(*documents: object) -> BackendTls | str | None:
    """Return how the backends of the route are believed; `500` where nobody is spoken to."""
    one = only(gateway(), route(), *documents)
    (served,) = hosts(one)["*"]
    assert isinstance(served.action, Forward)
    (target,) = served.action.targets
    return one.targets[target.upstream].tls if target.upstream else "500"


INVALID = ("False", "Invalid")
NO_AUTHORITY = ("False", "NoValidCACertificate"), ("False", "InvalidCACertificateRef")
KIND = {"group": "example.com", "kind": "Authority", "name": "ca"}
URI = {"type": "URI", "uri": "spiffe://a/b"}
POLICIES: dict[str, tuple[JsonObject, object, object, object]] = {
    "a ConfigMap": ({}, *FINE, BackendTls("a.test", PEM)),
    "two of them": (
        {"caCertificateRefs": [REF, {**REF, "name": "more"}]},
        *FINE,
        BackendTls("a.test", PEM + OTHER_PEM),
    ),
    "what the system trusts": (
        {"caCertificateRefs": None, "wellKnownCACertificates": "System"},
        *FINE,
        BackendTls("a.test"),
    ),
    "names": (
        {"subjectAltNames": [{"type": "Hostname", "hostname": "*.B.test"}, URI]},
        *FINE,
        BackendTls("a.test", PEM, ("*.b.test",), ("spiffe://a/b",)),
    ),
    "a name that is missing": ({"subjectAltNames": [{"type": "URI", "hostname": "a.test"}]}, INVALID, None, "500"),
    "a type of names that nobody knows": ({"subjectAltNames": [{"type": "Email"}]}, INVALID, None, "500"),
    "an address for a hostname": ({"hostname": "1.2.3.4"}, INVALID, None, "500"),
    "many hostnames": ({"hostname": "*.a.test"}, INVALID, FINE[1], "500"),
    "no hostname": ({"hostname": None}, INVALID, FINE[1], "500"),
    "nobody to trust": ({"caCertificateRefs": None}, INVALID, None, "500"),
    "others' well-known authorities": (
        {"caCertificateRefs": None, "wellKnownCACertificates": "example.com/ours"},
        INVALID,
        None,
        "500",
    ),
    "both": ({"wellKnownCACertificates": "System"}, INVALID, None, "500"),
    "a ConfigMap that isn't there": ({"caCertificateRefs": [{**REF, "name": "gone"}]}, *NO_AUTHORITY, "500"),
    "one without certificates": ({"caCertificateRefs": [{**REF, "name": "odd"}]}, *NO_AUTHORITY, "500"),
    "another kind": (
        {"caCertificateRefs": [KIND]},
        ("False", "NoValidCACertificate"),
        ("False", "InvalidKind"),
        "500",
    ),
    "one that is there beside one that isn't": (
        {"caCertificateRefs": [{**REF, "name": "gone"}, REF]},
        ("True", "Accepted"),
        ("False", "InvalidCACertificateRef"),
        BackendTls("a.test", PEM),
    ),
}
"""What validation says, the conditions Accepted and ResolvedRefs, and how backends are believed."""


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_is_kept_or_says_why_not(case: str) -> None:
    """Where it can't be kept no backend gets clear text instead."""
    validation, accepted, resolved, tls = POLICIES[case]
    documents = policy(**validation), bundle(), bundle("more", OTHER_PEM), bundle("odd", "rubbish")
    assert stated(*documents) == (accepted, resolved)
    assert believed(*documents) == tls


def test_bytes_whose_tls_ends_here_go_on_by_tls() -> None:
    """Those that are passed through, or came by TCP, go as they came: they may be a client's TLS."""
    tls = {"certificateRefs": [{"name": "cert"}]}
    listeners = (
        listener("ends", 443, "TLS", hostname="a.test", tls=tls),
        listener("through", 443, "TLS", hostname="b.test", tls={"mode": "Passthrough"}),
        listener("tcp", 81, "TCP"),
    )
    rules = {"backendRefs": [backend()]}
    routes = route(rules, kind="TLSRoute", hostnames=["*.test"]), route(rules, kind="TCPRoute")
    for documents, expected in (
        ((policy(), bundle()), {None, BackendTls("a.test", PEM)}),
        ((policy(),), {None}),
    ):
        one = only(gateway(*listeners), *routes, SECRET, *documents)
        assert {target.tls for target in one.targets.values()} == expected
        by_name = {chain.names: chain.serves for chain in one.chains[443]}
        served = by_name["a.test",], by_name["b.test",]
        assert all(isinstance(each, TcpForward) for each in served)
        ends, through = (each.targets[0].upstream for each in served if isinstance(each, TcpForward))
        assert (ends in one.targets, through in one.targets) == (len(expected) > 1, True)
        assert one.services == {Named("shop", "api")}


@pytest.mark.parametrize("text", ["", "rubbish", PEM[:-40], PEM + KEY, KEY, PEM + "x" * (3 << 20)])
def test_a_bundle_with_anything_but_certificates_is_none(text: str) -> None:
    """Nothing of what is in it is told."""
    documents = policy(), bundle(text=text)
    assert stated(*documents) == NO_AUTHORITY
    assert believed(*documents) == "500"
    assert KEY.splitlines()[1] not in str(reported(cluster(*documents)))


def test_a_policy_with_options_is_not_kept_by_halves() -> None:
    """What they ask for isn't known here."""
    odd = policy()
    odd["spec"]["options"] = {"example.com/ciphers": "best"}
    assert stated(odd, bundle()) == (INVALID, None)
    assert believed(odd, bundle()) == "500"


def test_a_policy_that_cannot_be_kept_is_reported_once_and_by_the_status_of_each_route() -> None:
    """One sentence, however many routes and Gateways lead there; ResolvedRefs of routes "MUST" be False."""
    read = cluster(policy(), gateway(name="second"), route(name="b", parentRefs=[parent(), parent("second")]))
    assert [one["ancestorRef"] for one in reported(read)["tls"]] == [
        {"group": GROUP, "kind": "Gateway", "namespace": "shop", "name": name} for name in ("second", "web")
    ]
    assert {one["controllerName"] for one in reported(read)["tls"]} == {CONTROLLER}
    (sentence,) = sentences(read, bind(read))
    assert sentence.startswith(
        "demo: BackendTLSPolicy shop/tls: NoValidCACertificate: caCertificateRefs names ConfigMap"
    )
    statuses = [route_status(each, Backends(read)).status for _, each in verdicts_by_route(bind(read))]
    reasons = {one["reason"] for status in statuses for each in status["parents"] for one in each["conditions"]}
    assert reasons == {"Accepted", "NoValidCACertificate"}


@pytest.mark.parametrize(
    "target", [{"name": "other"}, {"kind": "Backend"}, {"group": "example.com"}, {"kind": "Service", "name": "API"}]
)
def test_policy_for_another_kind_of_target_gets_no_status(target: JsonObject) -> None:
    """Somebody else answers for it."""
    assert reported(cluster(policy(target=target), bundle(), service("other"))) == {}
    assert believed(policy(target=target), bundle(), service("other")) is None


def test_a_policy_for_a_port_that_is_not_there_says_so() -> None:
    """The others aren't concerned."""
    absent = policy(target={"sectionName": "https"})
    assert stated(absent, bundle()) == (("False", "TargetNotFound"), ("True", "ResolvedRefs"))
    assert believed(absent, bundle()) is None


_ages = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
_sections = st.sampled_from(["", "http", "https"])
_made = st.lists(st.tuples(_ages, _sections, st.booleans()), min_size=1, max_size=5)


@given(_made, st.randoms(use_true_random=False))
def test_the_oldest_of_a_target_counts_and_all_others_say_so(made: list[tuple[str, str, bool]], mixed: Random) -> None:
    """In whatever order they come and whether or not they can be kept; one for the port goes before one for all."""
    policies = [
        policy(f"p{number}", created=age, target={"sectionName": section}, **({} if fine else {"hostname": "*.a.test"}))
        for number, (age, section, fine) in enumerate(made)
    ]
    mixed.shuffle(policies)
    ports = {"name": "http", "port": 8080}, {"name": "https", "port": 8443}
    read = objects(gateway_class(), gateway(), route(), bundle(), *policies, service("api", *ports))
    first: dict[str, int] = {}
    for _age, number, section in sorted((age, number, section) for number, (age, section, _) in enumerate(made)):
        first.setdefault(section, number)
    assert len(reported(read)) == len(made)
    for name, (ancestor,) in reported(read).items():
        _, section, fine = made[int(name[1:])]
        reason = "Conflicted" if first[section] != int(name[1:]) else "Accepted" if fine else "Invalid"
        assert next(one["reason"] for one in ancestor["conditions"] if one["type"] == "Accepted") == reason
    for port in ("http", "https"):
        counts = BackendTlsPolicies(read).of(Named("shop", "api"), port)
        expected = [f"p{first[section]}" for section in (port, "") if section in first]
        assert (counts.meta.key.name if counts else None) == next(iter(expected), None)
