"""Objects of Gateway API from anywhere: what is understood, what is refused and how, and that nothing raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway.kinds import KINDS, parse_api_object
from locallb.gateway.parsing import parse_referred
from locallb.gateway.translation import bind
from locallb.model.gateway_objects import GROUP, GatewayRoute
from tests.support.gateway_objects import (
    JsonObject,
    api_object,
    backend,
    bound,
    gateway,
    gateway_class,
    objects,
    route,
    rule,
)

_terms = st.sampled_from(
    ["spec", "rules", "matches", "path", "value", "type", "filters", "backendRefs", "name", "listeners", "port", "from"]
)
rubbish: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | _terms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_terms | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
_names = st.just({"name": "web", "namespace": "shop"}) | rubbish


@given(st.sampled_from(sorted(KINDS)), _names, rubbish, rubbish)
def test_rubbish_is_reported_and_never_raised(kind: str, metadata: object, spec: object, sibling: object) -> None:
    """Whatever an object has, it is understood somehow, and so is what it is bound to."""
    document = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}
    parse_api_object(document)
    whole = {"rules": spec, "listeners": spec, "parentRefs": [{"name": "web"}], "gatewayClassName": "local"}
    bind(objects(gateway_class(), gateway(), {**document, "spec": whole}, sibling))


@given(rubbish, rubbish)
def test_rubbish_of_a_rule_keeps_to_its_rule(piece: object, other: object) -> None:
    """A rule of rubbish doesn't take the rule beside it away."""
    fields = {"matches": piece, "filters": other}
    read = parse_api_object(route(rule("/good"), fields))
    assert isinstance(read, GatewayRoute)
    assert not read.rules or not read.rules[0].problem


@given(rubbish)
def test_rubbish_is_no_service_either(spec: object) -> None:
    """Services and Namespaces that make no sense are none."""
    parse_referred({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    parse_referred({"apiVersion": "v1", "kind": "Namespace", "metadata": spec})


def _with_filter(kind: str, **fields: object) -> JsonObject:
    name = {"URLRewrite": "urlRewrite", "CORS": "cors"}.get(kind, kind[0].lower() + kind[1:])
    return rule("/", filters=[{"type": kind, name: fields}])


def _with_match(**match: object) -> JsonObject:
    return {"matches": [match], "backendRefs": [backend()]}


REFUSED: dict[str, tuple[JsonObject, str]] = {
    "a path that isn't absolute": (_with_match(path={"value": "cart"}), "isn't a path"),
    "a path with dots": (_with_match(path={"value": "/a/../b"}), "without . and .."),
    "a path that ends a line": (_with_match(path={"value": "/a\r\nhost: evil"}), "isn't a path"),
    "a path of a type that isn't known": (_with_match(path={"type": "Glob", "value": "/*"}), "Exact or PathPrefix"),
    "a regular expression that explodes": (
        _with_match(path={"type": "RegularExpression", "value": "((a{1000}){1000}){1000}"}),
        "becomes too large",
    ),
    "a regular expression that looks around": (
        _with_match(path={"type": "RegularExpression", "value": "/(?=a)"}),
        "looks around, which RE2 can't",
    ),
    "a header that isn't one": (_with_match(headers=[{"name": "a b", "value": "x"}]), "isn't the name of a header"),
    "a method that isn't one": (_with_match(method="BREW"), "GET"),
    "65 matches": ({"matches": [{}] * 65}, "64 are allowed"),
    "10,000 matches": ({"matches": [{}] * 10_000}, "64 are allowed"),
    "a prefix that nothing replaces": (
        _with_filter("URLRewrite", path={"type": "ReplacePrefixMatch"}),
        "give replacePrefixMatch and nothing else",
    ),
    "a whole path that nothing replaces": (
        _with_filter("URLRewrite", path={"type": "ReplaceFullPath"}),
        "give replaceFullPath and nothing else",
    ),
    "a prefix and a whole path": (
        _with_filter(
            "URLRewrite", path={"type": "ReplacePrefixMatch", "replacePrefixMatch": "/", "replaceFullPath": "/"}
        ),
        "give replacePrefixMatch and nothing else",
    ),
    "a header that ends a line": (
        _with_filter("RequestHeaderModifier", set=[{"name": "x", "value": "a\r\nset-cookie: b"}]),
        "none that ends a line",
    ),
    "another host by a header": (_with_filter("RequestHeaderModifier", set=[{"name": "Host", "value": "a"}]), "own"),
    "another length": (_with_filter("ResponseHeaderModifier", remove=["Content-Length"]), "proxy's own"),
    "a redirect to a wildcard": (_with_filter("RequestRedirect", hostname="*.a.test"), "isn't a hostname"),
    "a redirect by another scheme": (_with_filter("RequestRedirect", scheme="javascript"), "http or https"),
    "a redirect that is none": (_with_filter("RequestRedirect", statusCode=304), "isn't the status of a redirect"),
    "a rewrite to an address": (_with_filter("URLRewrite", hostname="a b"), "isn't a hostname"),
    "a filter of somebody's": (rule("/", filters=[{"type": "ExtensionRef"}]), "isn't served"),
    "a filter twice": (rule("/", filters=[{"type": "CORS", "cors": {}}] * 2), "put all into one"),
    "redirect and rewrite": (
        rule(
            "/",
            backends=[],
            filters=[{"type": "RequestRedirect"}, {"type": "URLRewrite", "urlRewrite": {"hostname": "a"}}],
        ),
        "keep one of both",
    ),
    "redirect and backends": (_with_filter("RequestRedirect", scheme="https"), "keep one of both"),
    "a prefix that isn't matched": (
        {
            "matches": [{"path": {"type": "Exact", "value": "/a"}}],
            "filters": [
                {
                    "type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/b"}},
                }
            ],
        },
        "match by PathPrefix",
    ),
    "a weight below nothing": (rule("/", backends=[backend(weight=-1)]), "0 to 1000000"),
    "a port that isn't one": (rule("/", backends=[backend(port=70_000)]), "1 to 65535"),
    "a Service whose name is a path": (rule("/", backends=[backend("../x")]), "lower-case letters"),
    "a filter of a backend that isn't served": (
        rule("/", backends=[backend(filters=[{"type": "URLRewrite", "urlRewrite": {}}])]),
        "isn't served",
    ),
    "a duration that isn't one": (rule("/", timeouts={"request": "soon"}), "such as 500ms"),
    "an attempt longer than the whole": (
        rule("/", timeouts={"request": "1s", "backendRequest": "2s"}),
        "make it shorter",
    ),
    "a retry of what went well": (rule("/", retry={"codes": [200]}), "isn't within 400 and 599"),
    "a cookie for ever": (
        rule("/", sessionPersistence={"cookie": {"lifetimeType": "Permanent"}}),
        "without absoluteTimeout",
    ),
    "a mirror of more than all": (
        _with_filter("RequestMirror", backendRef=backend(), fraction={"numerator": 2, "denominator": 1}),
        "0 to 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_rule_that_cannot_be_served_says_why_and_its_neighbour_goes_on(case: str) -> None:
    """The route stays accepted for what of it is served."""
    odd, why = REFUSED[case]
    (one,) = bound(gateway(), route(rule("/good"), odd))
    (verdict,) = one.attachment.verdicts
    good, refused = verdict.route.rules
    assert why in refused.problem
    assert not good.problem
    assert verdict.accepted is None


ODD_LISTENERS: dict[str, tuple[JsonObject, str]] = {
    "an address for a hostname": ({"hostname": "127.0.0.1"}, "give a DNS name"),
    "a hostname with a slash": ({"hostname": "a/../b"}, "give a DNS name"),
    "a wildcard within": ({"hostname": "a.*.test"}, "give a DNS name"),
    "a port in a hostname": ({"hostname": "a.test:80"}, "give a DNS name"),
    "namespaces that aren't": ({"allowedRoutes": {"namespaces": {"from": "Some"}}}, "use All or Same"),
}


@pytest.mark.parametrize("case", ODD_LISTENERS)
def test_an_odd_listener_is_not_accepted_and_its_neighbour_is(case: str) -> None:
    """What is wrong with one listener is its own."""
    fields, why = ODD_LISTENERS[case]
    odd = {"name": "odd", "port": 81, "protocol": "HTTP", **fields}
    (one,) = bound(gateway({"name": "good", "port": 80, "protocol": "HTTP"}, odd))
    good, refused = one.listeners
    assert good.serves
    assert refused.accepted
    assert refused.accepted.reason == "UnsupportedValue"
    assert why in refused.accepted.message


@pytest.mark.parametrize(
    ("kind", "version", "is_read"),
    [
        ("Gateway", "v1", True),
        ("Gateway", "v1beta1", True),
        ("TLSRoute", "v1alpha2", True),
        ("TCPRoute", "v1alpha2", True),
        ("Gateway", "v2", False),
        ("Mesh", "v1", False),
    ],
)
def test_versions_of_both_channels_are_read(kind: str, version: str, *, is_read: bool) -> None:
    """A version that nobody knows is somebody else's."""
    assert (parse_api_object(api_object(kind, "x", version=version)) is not None) == is_read


def test_hostnames_are_compared_in_lower_case() -> None:
    """DNS names have no case."""
    read = parse_api_object(route(hostnames=["Shop.TEST"]))
    assert isinstance(read, GatewayRoute)
    assert read.hostnames == ("shop.test",)
