"""The explanation of a request: how its load balancer is found, and which rule answers and why no other.

That the answer is Envoy's own is in `tests/envoy/test_explanation.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from locallb.config.parsing import parse_settings
from locallb.model.http_requests import HttpRequest, normal_path
from locallb.model.identities import Home
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.explanation import MAX_CANDIDATES, Answered, Explanation, explain
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support import ingress_objects as ingresses
from tests.support.gateway_objects import (
    DEMO,
    JsonObject,
    backend,
    gateway,
    gateway_class,
    listener,
    parent,
    route,
    rule,
    service,
)
from tests.support.objects import node, parsed
from tests.support.objects import service as balancer

API = service("api", {"port": 8080, "nodePort": 30080}, type="NodePort")
NEXT = service("next", {"port": 8080, "nodePort": 30081}, type="NodePort")


def plan_of(*documents: Mapping[Any, Any]) -> Plan:
    """Plan objects of one cluster, with Services `api` and `next` and a Node."""
    read = parsed(gateway_class(), ingresses.ingress_class(), API, NEXT, node(), *documents)
    pools = [{"name": "p", "addresses": ["127.77.0.0/28"]}]
    given = {"sources": [{"manifests": "m", "name": DEMO}], "pools": pools, "ingress": {"class": "local"}}
    snapshot = Snapshot(
        Home("p", "s", "/p"),
        read.services,
        read.malformed,
        read.nodes,
        gateway_api=read.gateway_api,
        host=HostFacts(),
    )
    return make_plan(snapshot, parse_settings(given))


def explained(plan: Plan, url: str, method: str = "GET", *headers: str, hostless: bool = False) -> Explanation:
    """Explain a request; AT in the URL stands for the address of the first load balancer."""
    return explain(plan, HttpRequest.parse(url.replace("AT", at(plan)), method, headers), hostless=hostless)


def at(plan: Plan) -> str:
    return str(plan.placements[0].addresses[0])


def why(found: Explanation) -> list[tuple[str, str]]:
    return [(each.origin.partition(" ")[2], each.why) for each in found.earlier]


def later(found: Explanation) -> list[tuple[str, str]]:
    return [(each.origin.partition(" ")[2], each.why) for each in found.later]


SHOP = plan_of(
    gateway(listener("http", 8080, hostname="*.test")),
    route(
        rule(
            "/api",
            filters=[
                {
                    "type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
                }
            ],
            backends=[backend(weight=9), backend("next", weight=1)],
            timeouts={"request": "5s"},
        ),
        {
            "matches": [{"path": {"type": "Exact", "value": "/api/cart"}, "method": "POST"}],
            "backendRefs": [backend("next")],
        },
        name="api",
        hostnames=["shop.test"],
    ),
    route(name="web", hostnames=["*.test"]),
    route(rule("/api"), name="old", hostnames=["shop.test"], created="2026-01-02T00:00:00Z"),
)


def test_a_request_is_followed_to_its_backends() -> None:
    """By the most specific rule: what precedes it lacks something, what comes behind has less."""
    found = explained(SHOP, "http://shop.test:8080/api/cart?q=1")
    assert (found.answered, found.serves, found.place, found.host) == (
        Answered.BACKEND,
        True,
        f"{at(SHOP)}:8080",
        "shop.test",
    )
    assert (found.listener, found.origin, found.match) == ("http", "HTTPRoute shop/api, rule 1", "shop.test/api/*")
    assert [(share.service, share.percent, share.backends) for share in found.shares] == [
        ("shop/api:8080", 90, ("127.0.0.1:30080",)),
        ("shop/next:8080", 10, ("127.0.0.1:30081",)),
    ]
    assert (found.sent, found.filters) == ("shop.test:8080/cart?q=1", ("answers 504 after 5 s",))
    assert why(found) == [("shop/api, rule 2", "the method isn't POST")]
    assert later(found) == [
        ("shop/old, rule 1", "its object is younger, or as old and later by name"),
        ("shop/web, rule 1", "its hostname is less specific"),
    ]
    assert found.result == "shop/api:8080 90 %, shop/next:8080 10 % as shop.test:8080/cart?q=1"


@pytest.mark.parametrize(
    ("matches", "request_", "reasons"),
    [
        ([{"path": {"value": "/x"}}, {"path": {"value": "/"}}], "/x", ["its path is shorter"]),
        (
            [{"path": {"type": "Exact", "value": "/x"}}, {"path": {"value": "/x/"}}],
            "/x",
            ["a prefix comes after an exact path"],
        ),
        ([{"method": "GET"}, {}], "/", ["it names no method"]),
        ([{"headers": [{"name": "a", "value": "1"}]}, {}], "/", ["it compares fewer headers"]),
        ([{"queryParams": [{"name": "a", "value": "1"}]}, {}], "/?a=1", ["it compares fewer parameters"]),
        ([{}, {}], "/", ["it comes later in the same object"]),
    ],
)
def test_what_puts_a_rule_behind_is_named(matches: list[JsonObject], request_: str, reasons: list[str]) -> None:
    """By the first rule of precedence in which the two differ, whatever their order."""
    for listed in (matches, matches[::-1]):
        plan = plan_of(gateway(), route(*({"matches": [match], "backendRefs": [backend()]} for match in listed)))
        found = explained(plan, f"http://AT{request_}", "GET", "a: 1")
        assert [each.why for each in found.later] == reasons


@pytest.mark.parametrize(
    ("match", "reason"),
    [
        ({"path": {"type": "Exact", "value": "/y"}}, "the path isn't /y"),
        ({"path": {"value": "/y"}}, "the path isn't below /y"),
        ({"path": {"type": "RegularExpression", "value": "/y+"}}, "the path doesn't match /y+"),
        ({"method": "POST"}, "the method isn't POST"),
        ({"headers": [{"name": "b", "value": "1"}]}, "there is no header b"),
        ({"headers": [{"name": "A", "value": "2"}]}, "the header A isn't 2"),
        ({"headers": [{"name": "a", "type": "RegularExpression", "value": "x"}]}, "the header a doesn't match x"),
        ({"queryParams": [{"name": "r", "value": "1"}]}, "there is no parameter r"),
        ({"queryParams": [{"name": "q", "value": "1"}]}, "the parameter q isn't 1"),
    ],
)
def test_what_a_request_lacks_is_named(match: JsonObject, reason: str) -> None:
    """The first condition that it doesn't meet; then nothing answers but the proxy."""
    plan = plan_of(gateway(), route({"matches": [match], "backendRefs": [backend()]}))
    found = explained(plan, "http://AT/x?q=2", "GET", "a: 1")
    assert (found.answered, found.status, found.serves) == (Answered.PROXY, 404, False)
    assert (found.reason, [each.why for each in found.earlier]) == ("no rule takes it", [reason])


def test_the_nearest_rules_are_listed_and_the_others_counted() -> None:
    """Of seven the five of which the request meets most conditions, in their order."""
    rules = [{"matches": [{"path": {"value": "/x" * (n + 1)}}], "backendRefs": [backend()]} for n in range(7)]
    rules.append({"matches": [{"path": {"value": "/x"}, "method": "PUT"}], "backendRefs": [backend()]})
    found = explained(plan_of(gateway(), route(*rules)), "http://AT/x")
    assert (len(found.earlier), found.compared, found.match) == (MAX_CANDIDATES, 7, "*/x/*")
    assert found.earlier[-1].why == "the method isn't PUT"


@pytest.mark.parametrize(
    ("url", "headers", "result"),
    [
        ("http://AT:8080/x", ["Host: shop.test"], "shop/api:8080"),
        ("http://AT:8080/x", [], "404: nothing is served for the host AT there; there are rules for shop.test, *.test"),
        ("SHOP.test:8080/x", [], "shop/api:8080"),
        ("http://AT/x", [], "demo/gateways/shop/web has 8080 at AT, not 80"),
        ("http://127.78.0.9/x", [], "no load balancer of the stack has the address 127.78.0.9"),
        (
            "http://shop.test/x",
            [],
            "no load balancer of the stack serves shop.test at port 80 by http; it is served by http at port 8080",
        ),
        (
            "https://shop.test:8080/x",
            [],
            "no load balancer of the stack serves shop.test at port 8080 by https; it is served by http at port 8080",
        ),
        ("http://shop.example/x", [], "no load balancer of the stack serves shop.example at port 80 by http"),
        ("https://AT:8080/x", [], "port 8080 takes requests without TLS alone: ask by http"),
    ],
)
def test_the_load_balancer_is_found_by_address_or_host(url: str, headers: list[str], result: str) -> None:
    """Or else it is said why there is none."""
    assert explained(SHOP, url, "GET", *headers).result == result.replace("AT", at(SHOP))


def test_a_host_is_served_at_each_of_several_ports() -> None:
    """They are named where another one is asked for; so are hosts with rules where the one asked for has none."""
    plan = plan_of(gateway(listener("a", 8080), listener("b", 8081)), route(hostnames=["shop.test"]))
    assert explained(plan, "http://shop.test/").reason.endswith("it is served by http at ports 8080, 8081")
    assert explained(plan, "http://AT:8080/").reason == (
        f"no rule is attached there for the host {at(plan)}; there are rules for shop.test"
    )


def test_of_several_that_serve_a_host_the_most_specific_is_explained() -> None:
    """Those that serve the same hostname are named."""
    gateways = [
        gateway(listener("l", 8080, hostname=name), name=f"g{n}")
        for n, name in enumerate(("*.test", "a.test", "a.test"))
    ]
    routes = [route(name=f"r{n}", parentRefs=[parent(f"g{n}")]) for n in range(3)]
    found = explained(plan_of(*gateways, *routes), "http://a.test:8080/")
    assert found.key
    assert (found.key.name, found.others) == ("g1", ("demo/gateways/shop/g2",))
    assert explained(plan_of(*gateways, *routes), "http://b.test:8080/").origin == "HTTPRoute shop/r0, rule 1"


@pytest.mark.parametrize(
    ("rules", "status", "reason"),
    [
        ({"backendRefs": [backend("gone")]}, 500, "Service shop/gone isn't there; make it, or correct backendRefs"),
        ({"backendRefs": [backend("api", namespace="other")]}, 500, "no ReferenceGrant"),
        ({"backendRefs": []}, 500, "the rule has no backend with a weight"),
        ({"backendRefs": [backend(weight=0)]}, 500, "the rule has no backend with a weight"),
        ({"backendRefs": [backend("idle")]}, 503, "shop/idle:8080: it has no endpoint that takes requests"),
        ({"filters": [{"type": "ExtensionRef"}], "backendRefs": [backend()]}, 500, "ExtensionRef"),
    ],
)
def test_a_rule_without_a_backend_says_why(rules: JsonObject, status: int, reason: str) -> None:
    """With the status that the proxy answers."""
    plan = plan_of(gateway(), route(rules), service("idle"))
    found = explained(plan, "http://AT/")
    assert (found.answered, found.status, found.serves) == (Answered.PROXY, status, False)
    assert reason in found.reason
    assert found.origin == "HTTPRoute shop/route, rule 1"


def test_a_share_without_a_backend_is_said_beside_the_others() -> None:
    """Something serves the request all the same."""
    plan = plan_of(gateway(), route({"backendRefs": [backend(weight=3), backend("gone", weight=1)]}))
    found = explained(plan, "http://AT/")
    assert [(share.percent, share.status) for share in found.shares] == [(75, 0), (25, 500)]
    assert found.serves


def test_manifests_alone_say_nothing_of_endpoints() -> None:
    """A Service counts as if it had some."""
    plan = plan_of(gateway(), route({"backendRefs": [backend("idle")]}), service("idle"))
    assert explained(plan, "http://AT/", hostless=True).result == "shop/idle:8080"


def test_a_service_takes_connections() -> None:
    """What its backends do with a request is their own matter."""
    found = explained(plan_of(balancer()), "http://AT:8080/x")
    assert (found.answered, found.serves, found.result) == (
        Answered.CONNECTION,
        True,
        "the connection, to demo/shop/web",
    )
    assert found.shares[0].backends == ("127.0.0.1:30080",)


def test_rules_of_ingresses_are_explained_too() -> None:
    """With their paths; a default backend takes what no rule takes."""
    first = ingresses.ingress(
        ingresses.rule(ingresses.path("/a"), ingresses.path("/a/b", "Exact", "next"), host="a.test"),
        defaultBackend=ingresses.backend("next"),
    )
    plan = plan_of(first, ingresses.ingress(ingresses.rule(ingresses.path("/", to="gone")), name="odd"))
    found = explained(plan, "http://a.test/a/c")
    assert (found.origin, found.host, found.result) == ("Ingress shop/web, path /a", "a.test", "shop/api:8080")
    assert why(found) == [("shop/web, path /a/b", "the path isn't /a/b")]
    assert later(found) == [("shop/odd, path /", "its hostname is less specific")]
    refused = explained(plan, "http://b.test/")
    assert (refused.status, refused.origin) == (503, "Ingress shop/odd, path /")
    assert "Service shop/gone isn't there" in refused.reason


def test_redirects_name_their_place() -> None:
    """With the query of the request."""
    away = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}
    found = explained(plan_of(gateway(), route({"filters": [away]})), "http://AT/x?q", "GET", "host: a.test")
    assert (found.answered, found.serves, found.result) == (Answered.REDIRECT, True, "301 to https://a.test/x?q")


def test_what_is_done_besides_is_said_in_words() -> None:
    """Changes of headers, copies, retries, sessions and rights of scripts."""
    changed = {"set": [{"name": "x-a", "value": "1"}], "remove": ["x-b"]}
    filters: list[JsonObject] = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": changed},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-c", "value": "2"}]}},
        {"type": "RequestMirror", "requestMirror": {"backendRef": backend("next"), "percent": 50}},
        {"type": "CORS", "cors": {"allowOrigins": ["http://o.test"]}},
    ]
    session = {"sessionName": "s", "type": "Cookie"}
    whole = {
        "filters": filters,
        "backendRefs": [backend()],
        "retry": {"codes": [503], "attempts": 2},
        "sessionPersistence": session,
    }
    assert explained(plan_of(gateway(), route(whole)), "http://AT/").filters == (
        "sets x-a: 1 in the request",
        "removes x-b from the request",
        "adds x-c: 2 in the answer",
        "answers preflights, and gives rights to scripts of http://o.test",
        "copies 50 % of the requests to shop/next:8080",
        "repeats requests answered 503 up to 2 times",
        "keeps a client at its backend by the cookie s",
    )


def test_a_url_in_a_query_is_no_scheme() -> None:
    """What lacks `http://` itself is still of http."""
    assert HttpRequest.parse("a.test:8080/?to=https://b.test/").url == "http://a.test:8080/?to=https://b.test/"


@pytest.mark.parametrize(
    ("url", "method", "headers", "sentence"),
    [
        ("ftp://a.test/", "GET", [], "isn't a URL of http or https"),
        ("http://a.test:99999/", "GET", [], "isn't a URL such as"),
        ("http://a.test/\ud800", "GET", [], "isn't a URL such as"),
        ("http:///x", "GET", [], "needs a host"),
        ("http://a@b.test/", "GET", [], "and no user"),
        ("http://*.test/", "GET", [], "is no single host"),
        ("http://a_b^.test/", "GET", [], "is no host of requests"),
        ("http://a.test/", "GE T", [], "isn't a method such as GET"),
        ("http://a.test/", "", [], "isn't a method such as GET"),
        ("http://a.test/", "GET", ["Host:"], "the Host header is empty"),
        ("http://a.test/", "GET", ["x"], "isn't a header"),
        ("http://a.test/", "GET", ["host: a", "Host: b"], "one Host header"),
    ],
)
def test_what_is_no_request_is_refused_in_a_sentence(url: str, method: str, headers: list[str], sentence: str) -> None:
    """With what is wrong."""
    with pytest.raises(ValueError, match=sentence):
        HttpRequest.parse(url, method, headers)


def test_bytes_of_a_command_line_that_are_no_utf_8_are_sent_escaped() -> None:
    """As every client sends them."""
    assert HttpRequest.parse(os.fsdecode(b"a.test/\xff?\xc3\xa9")).target == "/%FF?%C3%A9"


@pytest.mark.parametrize(
    ("path", "merging", "normal"),
    [
        ("/a/./b/../c", False, "/a/c"),
        ("/..", False, "/"),
        ("/a/..", False, "/"),
        ("/a//../b", False, "/a/b"),
        ("/%61%2Fb", False, "/a%2Fb"),
        ("/a%2f%2e%2e//b", True, "/b"),
        ("/a\\b", False, "/a/b"),
        ("/%00", False, ""),
    ],
)
def test_paths_are_compared_in_their_normal_form(path: str, merging: bool, normal: str) -> None:  # noqa: FBT001 - a column
    """As the proxy does before it looks at routes."""
    assert normal_path(path, merges_slashes=merging) == normal


TLS = {"certificateRefs": [{"name": "cert"}]}


def test_tls_is_chosen_by_the_name_of_the_url() -> None:
    """A request for another host on its connection is misdirected."""
    listeners = [
        listener(f"l{n}", 8443, "HTTPS", hostname=name, tls=TLS) for n, name in enumerate(("a.test", "*.test"))
    ]
    plan = plan_of(gateway(*listeners), route(), ingresses.secret())
    found = explained(plan, "https://a.test:8443/")
    assert (found.tls, found.listener, found.result) == ("ends at the proxy for a.test", "l0", "shop/api:8080")
    assert explained(plan, "https://b.test:8443/").listener == "l1"
    assert explained(plan, "https://b.test:8443/", "GET", "host: a.test").status == 421
    assert explained(plan, "http://AT:8443/").answered is Answered.CLOSED
    assert explained(plan, "https://AT:8443/").answered is Answered.CLOSED
