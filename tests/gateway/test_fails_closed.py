"""Whatever isn't understood or served of an object, no request gets past what the object would have stopped.

Each rule has a backend of its own, so a request that another rule answers is one that got past it. The proxy's tables
are evaluated as the proxy does it: the most specific virtual host, and there the first route that matches.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway import attachment
from locallb.gateway.translation import BoundGateway
from locallb.model import http_checks
from locallb.model.http_serving import HttpRoutes, TcpForward
from tests.support.backend_tls import policy
from tests.support.evaluation import RUBBISH, answered, broken, fields, upstream_service
from tests.support.gateway_objects import (
    JsonObject,
    api_object,
    backend,
    gateway,
    listener,
    namespace,
    only,
    parent,
    route,
    rule,
    service,
)

HOSTS, PATHS = ("a.t", "b.t", "my_host.t"), ("/", "/x", "/x/y", "/xy", "/z")
REQUESTS = [(host, path, method) for host in HOSTS for path in PATHS for method in ("GET", "POST")]


_paths = st.sampled_from(
    [("Exact", "/x"), ("PathPrefix", "/"), ("PathPrefix", "/x"), ("RegularExpression", "/x.*"), ("Exact", "/x/y")]
)
_matches = st.builds(
    lambda path, method: {"path": {"type": path[0], "value": path[1]}, **({"method": method} if method else {})},
    _paths,
    st.sampled_from(["", "GET"]),
)
_filter = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-guard", "value": "yes"}]}}
_rules = st.builds(
    lambda matches, filters, timeouts: {"matches": matches, "filters": filters, "timeouts": timeouts},
    st.lists(_matches, min_size=1, max_size=2),
    st.sampled_from([[], [_filter]]),
    st.sampled_from([{}, {"request": "10s", "backendRequest": "1s"}]),
)
_routes = st.tuples(
    st.lists(st.sampled_from(["a.t", "*.t", "b.t"]), max_size=1),
    st.lists(_rules, min_size=1, max_size=2),
)
_listeners = st.lists(st.sampled_from(["", "*.t", "a.t"]), min_size=1, max_size=2, unique=True)
Drawn = tuple[list[str], list[JsonObject]]


def documents(hostnames: list[str], routes: list[Drawn]) -> list[JsonObject]:
    """Make a Gateway, routes whose rules have a backend each, and these."""
    selector = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}}
    listeners = [listener(f"l{n}", hostname=name, allowedRoutes=deepcopy(selector)) for n, name in enumerate(hostnames)]
    made, services = [], []
    for number, (names, rules) in enumerate(routes):
        backends = [f"s{number}-{place}" for place in range(len(rules))]
        spec = [{**deepcopy(each), "backendRefs": [backend(name)]} for each, name in zip(rules, backends, strict=True)]
        services += [service(name) for name in backends]
        made.append(route(*spec, name=f"r{number}", hostnames=names))
        made[-1]["metadata"]["annotations"] = {"note": "text"}
    return [gateway(*listeners), namespace("shop", team="a"), *made, *services]


def _breakable(found: list[JsonObject]) -> list[tuple[str | int, ...]]:
    """Return the fields whose meaning lies within their rule, their listener's allowedRoutes or the metadata."""
    return [
        (number, *path)
        for number, document in enumerate(found)
        if document["kind"] in {"Gateway", "HTTPRoute"}
        for path in fields(document)
        if {"rules", "allowedRoutes", "annotations"} & set(path)
    ]


_TEXTS = {
    "type": ["Unknown", "ExtensionRef", "ExternalAuth"],
    "from": ["Some"],
    "request": ["1 day"],
    "backendRequest": ["20s", "x"],
    "/x.*": ["/x(?=y)", "/x[a-", "/x**"],
}


@given(_listeners, st.lists(_routes, min_size=1, max_size=3), st.data())
def test_no_request_gets_past_a_rule_that_is_not_understood(
    hostnames: list[str], routes: list[Drawn], data: st.DataObject
) -> None:
    """Whatever stands in one field: each request is answered by the backend of before, or by none."""
    found = documents(hostnames, routes)
    path = data.draw(st.sampled_from(_breakable(found)))
    at: Any = found
    for key in path:
        at = at[key]
    texts = _TEXTS.get(at if path[-1] == "value" else str(path[-1]), [])
    rubbish = data.draw(st.sampled_from([*RUBBISH[type(at)], *texts]))
    _check(found, broken(found, path, rubbish))


def _check(before: list[JsonObject], after: list[JsonObject]) -> None:
    one, other = only(*before), only(*after)
    for request in REQUESTS:
        was, is_now = answered(one, *request), answered(other, *request)
        assert is_now == was or is_now in {"500", "404", "refused"}, request


GUARDED = rule("/admin", backends=[backend("guarded")])
OPEN = route(rule("/", backends=[backend("open")]), name="open")
UNSERVED: dict[str, JsonObject] = {
    "a filter of an extension": {
        "filters": [{"type": "ExtensionRef", "extensionRef": {"group": "x.test", "kind": "Auth", "name": "auth"}}]
    },
    "authentication by another": {"filters": [{"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP"}}]},
    "a filter that no version has": {"filters": [{"type": "Later"}]},
    "filters against each other": {"filters": [{"type": "RequestRedirect"}, {"type": "URLRewrite"}]},
    "a filter of a backend": {
        "backendRefs": [{"name": "guarded", "port": 8080, "filters": [{"type": "ExtensionRef"}]}]
    },
    "a backend of another kind": {"backendRefs": [{"name": "guarded", "kind": "Else", "port": 1}]},
    "a backend of another namespace": {"backendRefs": [{"name": "guarded", "namespace": "else", "port": 8080}]},
    "a time that is none": {"timeouts": {"request": "soon"}},
    "a header that can't be set": {
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "host"}]}}]
    },
    "a path that looks around": {"matches": [{"path": {"type": "RegularExpression", "value": "/admin(?!/open).*"}}]},
    "an expression without an end": {"matches": [{"path": {"type": "RegularExpression", "value": "/admin/?[a-"}}]},
    "a path of a later type": {"matches": [{"path": {"type": "Glob", "value": "/admin"}}]},
    "a header that isn't one": {"matches": [{"path": {"value": "/admin"}, "headers": [{"name": "a b", "value": "x"}]}]},
    "an expression of a header": {
        "matches": [
            {"path": {"value": "/admin"}, "headers": [{"name": "x", "type": "RegularExpression", "value": "("}]}
        ]
    },
}
SERVICES = [service("guarded"), service("open")]


@pytest.mark.parametrize("case", UNSERVED)
@pytest.mark.parametrize("together", [True, False])
def test_a_rule_that_is_not_served_keeps_its_requests(case: str, *, together: bool) -> None:
    """HTTPRouteFilter: "requests that would have been processed by that filter MUST receive a HTTP error response"."""
    refused = {**GUARDED, **UNSERVED[case]}
    routes = [route(refused, OPEN["spec"]["rules"][0])] if together else [route(refused, name="guarded"), OPEN]
    one = only(gateway(), *routes, *SERVICES)
    assert answered(one, "a.t", "/admin", x="any") == "500"
    assert answered(one, "a.t", "/admin/x", x="any") == "500"
    assert answered(one, "a.t", "/shop") == "open"


@pytest.mark.parametrize(
    ("expression", "closed", "free"),
    [
        ("/admin(?!/open).*", ["/admin", "/admin/open", "/administrator"], ["/adm", "/"]),
        ("^/admins?/[a-", ["/admin/x", "/admins/x"], ["/adm"]),
        ("/v1\\.0/(?=x)", ["/v1.0/y"], ["/v1", "/v110/y"]),
        ("/a(?=x)|/b", ["/a", "/b", "/"], []),
        ("(?i:/a)(?=x)", ["/a", "/b"], []),
        ("/a(?=x|y)", ["/a", "/ab"], ["/b"]),
    ],
)
def test_an_expression_that_is_not_served_keeps_all_that_begins_as_it_does(
    expression: str, closed: list[str], free: list[str]
) -> None:
    """Up to its first sign with a meaning, whatever the syntax: what it would match begins so."""
    refused = {"matches": [{"path": {"type": "RegularExpression", "value": expression}}], "backendRefs": [backend()]}
    one = only(gateway(), route(refused, OPEN["spec"]["rules"][0]), *SERVICES)
    assert {path: answered(one, "a.t", path) for path in closed} == dict.fromkeys(closed, "500")
    assert {path: answered(one, "a.t", path) for path in free} == dict.fromkeys(free, "open")


def test_what_is_understood_of_a_match_still_narrows_it() -> None:
    """Requests that the rule could never have matched are served by others."""
    match = {
        "path": {"type": "RegularExpression", "value": "(?=x)"},
        "method": "POST",
        "headers": [{"name": "x-tenant", "value": "a"}],
    }
    one = only(gateway(), route({"matches": [match]}, OPEN["spec"]["rules"][0]), *SERVICES)
    tenant = {"x-tenant": "a"}
    assert answered(one, "a.t", "/x", "POST", **tenant) == "500"
    assert answered(one, "a.t", "/x", "GET", **tenant) == "open"
    assert answered(one, "a.t", "/x", "POST") == "open"


def test_a_more_specific_rule_is_served_as_before() -> None:
    """A refused rule has the precedence that it would have had."""
    refused = {**GUARDED, "filters": [{"type": "ExtensionRef"}]}
    one = only(gateway(), route(refused, rule("/admin/public", backends=[backend("open")])), *SERVICES)
    assert answered(one, "a.t", "/admin/public/x") == "open"
    assert answered(one, "a.t", "/admin/private") == "500"


@pytest.mark.parametrize("hostnames", [["my_host.t"], ["MY_HOST.t", 5], ["my_host.t", "a.t"]])
def test_hosts_of_a_route_that_is_refused_are_not_served_by_another(hostnames: list[object]) -> None:
    """Names that DNS doesn't have are named by requests all the same."""
    refused = route(GUARDED, name="guarded", hostnames=hostnames)
    one = only(gateway(), refused, OPEN, *SERVICES)
    assert answered(one, "my_host.t", "/admin") == "500"
    assert answered(one, "b.t", "/admin") == "open"


def test_a_route_without_a_hostname_that_is_understood_is_not_one_for_every_host() -> None:
    """It has hostnames, so it would never have taken others."""
    one = only(gateway(), route(GUARDED, name="guarded", hostnames=[5]), OPEN, *SERVICES)
    assert answered(one, "b.t", "/admin") == "open"


def test_a_parent_that_is_not_understood_does_not_free_requests_at_the_others() -> None:
    """The route is refused at all of its parents, and closed there."""
    refused = route(GUARDED, name="guarded", parentRefs=[parent(), parent(port="http")])
    one = only(gateway(), refused, OPEN, *SERVICES)
    assert answered(one, "a.t", "/admin") == "500"
    assert answered(one, "a.t", "/shop") == "open"


@pytest.mark.parametrize("change", [{"allowedRoutes": {"namespaces": {"from": "Some"}}}, {"tls": {}}, {"tls": "on"}])
def test_hosts_of_a_listener_that_is_refused_belong_to_no_other_one(change: JsonObject) -> None:
    """Listeners are isolated: a request belongs to the most specific listener, whether that is served or not."""
    one = only(gateway(listener(), listener("admin", hostname="admin.t", **change)), OPEN, *SERVICES)
    assert answered(one, "admin.t", "/") == "404"
    assert answered(one, "a.t", "/") == "open"


def test_listeners_that_conflict_leave_their_host_to_no_other_one() -> None:
    """Neither of both is served, and the broader one isn't in their place."""
    twins = [listener("one", hostname="admin.t"), listener("two", hostname="admin.t")]
    one = only(gateway(listener(), *twins), OPEN, *SERVICES)
    assert answered(one, "admin.t", "/") == "404"


def _by_sni(one: BoundGateway, name: str) -> str:
    """Return the backends of a connection with a server name, or what becomes of it without one."""
    chains = {each: chain for chain in one.chains.get(80, ()) for each in chain.names or ("",)}
    wider = ("*." + ".".join(name.split(".")[number:]) for number in range(1, 3))
    chain = next((chains[each] for each in (name, *wider, "") if each in chains), None)
    if chain is None:
        return "refused"
    if isinstance(chain.serves, HttpRoutes):
        return "https"
    return " ".join(upstream_service(one, target.upstream) for target in chain.serves.targets) or "closed"


PASSED: JsonObject = {"protocol": "TLS", "tls": {"mode": "Passthrough"}}


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "absent"}]}},
        {"protocol": "HTTPS"},
        {**PASSED, "allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}]}},
        PASSED,
    ],
    ids=["no-secret", "no-tls", "no-kind", "no-route"],
)
@pytest.mark.parametrize("broader", ["", "*.t"])
def test_connections_for_a_listener_that_does_not_serve_reach_no_other_one(broader: str, change: JsonObject) -> None:
    """Listeners are isolated: no less specific one shows its certificate or passes on, whatever it serves."""
    wide: JsonObject = {"hostname": broader} if broader else {}
    admin = listener("admin", hostname="*.admin.t", **change)
    route_of_all = route({"backendRefs": [backend("open")]}, kind="TLSRoute", parentRefs=[parent(sectionName="http")])
    route_of_all["spec"]["hostnames"] = ["a.t", "x.admin.t", "*.t"]
    one = only(gateway(listener(**PASSED, **wide), admin), route_of_all, *SERVICES)
    assert [_by_sni(one, name) for name in ("x.admin.t", "a.t", "b.t")] == ["closed", "open", "open"]


def test_no_chain_is_added_where_no_other_listener_has_the_name() -> None:
    """Envoy closes what no chain has; listeners that serve stay as they are."""
    narrow, refused = listener(hostname="a.t", **PASSED), listener("b", hostname="b.t", protocol="HTTPS")
    named = route({"backendRefs": [backend("open")]}, kind="TLSRoute", hostnames=["a.t"])
    assert [chain.names for chain in only(gateway(narrow, refused), named, *SERVICES).chains[80]] == [("a.t",)]


def _forwarded(one: BoundGateway, sni: str = "") -> list[str]:
    chains = [chain for chain in one.chains[80] if (chain.names or ("",))[0] == sni]
    (chain,) = chains
    assert isinstance(chain.serves, TcpForward)
    return [upstream_service(one, target.upstream) for target in chain.serves.targets]


@pytest.mark.parametrize("rules", [[], [{}, {}], "all", [{"backendRefs": "x"}], [{"backendRefs": [{"name": 5}]}]])
def test_connections_of_a_route_that_is_refused_go_to_no_other_one(rules: object) -> None:
    """The oldest TCPRoute has its port, and a TLSRoute its hostname, whether they are served or not."""
    tcp = gateway(listener(protocol="TCP"))
    old, new = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    refused = route(kind="TCPRoute", name="old", created=old)
    refused["spec"]["rules"] = rules
    other = route({"backendRefs": [backend("open")]}, kind="TCPRoute", name="new", created=new)
    assert _forwarded(only(tcp, refused, other, *SERVICES)) == []
    tls = gateway(listener(protocol="TLS", tls={"mode": "Passthrough"}))
    named = route(kind="TLSRoute", name="old", hostnames=["a.t"])
    named["spec"]["rules"] = rules
    broad = route({"backendRefs": [backend("open")]}, kind="TLSRoute", name="new", hostnames=["*.t"])
    one = only(tls, named, broad, *SERVICES)
    assert (_forwarded(one, "a.t"), _forwarded(one, "*.t")) == ([], ["open"])


@pytest.mark.parametrize("section", [{}, {"sectionName": 5}])
def test_a_policy_that_is_not_understood_never_means_clear_text(section: JsonObject) -> None:
    """Of its targets those count that are understood, and a port that isn't is every port."""
    malformed = policy()
    malformed["spec"]["targetRefs"] = [{"group": "", "kind": "Service", "name": "api", **section}, {"name": 5}]
    assert answered(only(gateway(), route(), malformed), "a.t", "/") == "500"


def test_an_object_with_metadata_that_is_not_understood_does_not_vanish() -> None:
    """It is refused, and its requests with it."""
    refused = route(GUARDED, name="guarded")
    refused["metadata"]["annotations"] = {"x": 5}
    one = only(gateway(), refused, OPEN, *SERVICES)
    assert answered(one, "a.t", "/admin") == "500"


def test_calls_of_a_grpc_rule_that_is_not_served_reach_no_other_rule() -> None:
    """GRPCRouteFilter has the same words: they are answered with an error, of which gRPC makes a status."""
    guarded = {"matches": [{"method": {"service": "shop.Admin"}}], "filters": [{"type": "ExtensionRef"}]}
    unclear = {"matches": [{"method": {"service": "shop.Cart", "method": 5}}]}
    free = {"backendRefs": [backend("open")]}
    one = only(gateway(), route(guarded, unclear, free, kind="GRPCRoute"), *SERVICES)
    assert answered(one, "a.t", "/shop.Admin/Drop") == "500"
    assert answered(one, "a.t", "/shop.Cart/Add") == "500"
    assert answered(one, "a.t", "/shop.Shop/List") == "open"


def test_a_listener_set_that_is_not_understood_keeps_its_hosts() -> None:
    """Each of its listeners is refused, and none of their hosts is the Gateway's."""
    twins = [listener("x", hostname="admin.t"), listener("x", hostname="b.t")]
    refused = api_object("ListenerSet", "more", spec={"parentRef": parent(), "listeners": twins})
    one = only(gateway(allowedListeners={"namespaces": {"from": "Same"}}), refused, OPEN, *SERVICES)
    assert answered(one, "admin.t", "/") == "404"


def test_without_re2_an_expression_closes_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """No expression can be checked then, and so none is compared."""
    monkeypatch.setitem(sys.modules, "re2", None)
    http_checks._measured.cache_clear()
    refused = {"matches": [{"path": {"type": "RegularExpression", "value": "/admin/.*"}}]}
    one = only(gateway(), route(refused, OPEN["spec"]["rules"][0]), *SERVICES)
    assert (answered(one, "a.t", "/admin/x"), answered(one, "a.t", "/shop")) == ("500", "500")


_own_rules = st.lists(_rules, min_size=1, max_size=2)


@given(_own_rules, _own_rules, st.sampled_from(["a.t", "*.t"]), st.data())
def test_a_refused_route_takes_no_request_of_an_older_one_of_another_namespace(
    old: list[JsonObject], new: list[JsonObject], hostname: str, data: st.DataObject
) -> None:
    """But for requests that it would have had as it was before, or that begin as a path of it does."""
    old_route = _of_namespace("first", old, hostname, "2026-01-01T00:00:00Z")
    late = _of_namespace("late", new, hostname, "2026-01-02T00:00:00Z")
    may_mean = [late, *(_read_as(late, kind, method=method) for kind in ("", *_WIDER) for method in (True, False))]
    path = data.draw(st.sampled_from([path for path in fields(late) if "rules" in path]))
    at: Any = late
    for key in path:
        at = at[key]
    texts = _TEXTS.get(at if path[-1] == "value" else str(path[-1]), [])
    changed = broken([late], (0, *path), data.draw(st.sampled_from([*RUBBISH[type(at)], *texts])))
    sibling = [
        gateway(listener(allowedRoutes={"namespaces": {"from": "All"}})),
        *(service(name, namespace=name) for name in ("first", "late")),
    ]
    alone, refused = only(*sibling, old_route), only(*sibling, old_route, *changed)
    wanted = [only(*sibling, old_route, each) for each in may_mean]
    too_large = _without_room(*sibling, old_route, late)
    for request in REQUESTS:
        was = answered(alone, *request)
        if was == "first":
            assert answered(too_large, *request) == was, request
            may_take = "late" in {answered(each, *request) for each in wanted}
            assert may_take or answered(refused, *request) == was, request


_WIDER = {"PathPrefix": "", "RegularExpression": ".*"}


def _read_as(route: JsonObject, kind: str, *, method: bool) -> JsonObject:
    """Return a route whose paths are beginnings of a type, if any, and whose methods are left out unless they count."""
    read = deepcopy(route)
    for match in (match for each in read["spec"]["rules"] for match in each["matches"]):
        if not method:
            match.pop("method", None)
        if kind and match["path"]["value"] != "/":
            match["path"] = {"type": kind, "value": f"{match['path']['value']}{_WIDER[kind]}"}
    return read


def _of_namespace(name: str, rules: list[JsonObject], hostname: str, created: str) -> JsonObject:
    """Make a route of a namespace that leads to the Service of this name there."""
    made = [{**deepcopy(each), "backendRefs": [backend(name)]} for each in rules]
    return route(*made, namespace=name, hostnames=[hostname], created=created)


def _without_room(*documents: JsonObject) -> BoundGateway:
    """Bind a Gateway of which the older route takes all the room."""
    size = sum(len(rule["matches"]) for rule in documents[-2]["spec"]["rules"])
    with mock.patch.object(attachment, "MAX_ENTRIES", size):
        return only(*documents)


def test_a_refused_rule_stops_its_own_namespace_beside_others() -> None:
    """What it might match reaches no rule of its author, and older routes of others keep their requests."""
    unclear = {"matches": [{"path": {"type": "RegularExpression", "value": "((("}}], "backendRefs": [backend("late")]}
    late = [unclear, rule("/x", backends=[backend("late")])]
    documents = [
        gateway(listener(allowedRoutes={"namespaces": {"from": "All"}})),
        _of_namespace("first", [rule("/")], "a.t", "2026-01-01T00:00:00Z"),
        _of_namespace("late", late, "a.t", "2026-01-02T00:00:00Z"),
        *(service(name, namespace=name) for name in ("first", "late")),
    ]
    one = only(*documents)
    assert (answered(one, "a.t", "/x/y"), answered(one, "a.t", "/z")) == ("500", "first")
