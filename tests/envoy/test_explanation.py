"""What is explained of a request is what a real Envoy answers: random Gateways, routes, Ingresses and requests.

`LOCALLB_ROUTE_SETS=200 LOCALLB_ROUTE_REQUESTS=10` has it try that many sets of routes, with so many requests each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.envoy import Rendered, render
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.http_requests import HttpRequest, normal_path
from locallb.model.identities import Home, ObjectKind, ProxyId, ProxyName
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.explanation import Answered, Explanation, explain
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support import ingress_objects as ingresses
from tests.support.envoy import Envoy
from tests.support.envoy_traffic import Block
from tests.support.gateway_objects import DEMO, JsonObject, backend, gateway, gateway_class, listener, route, service
from tests.support.http_traffic import Answer, Client, Echo
from tests.support.objects import node

pytestmark = pytest.mark.envoy
SETS = int(os.environ.get("LOCALLB_ROUTE_SETS") or 10)
REQUESTS = int(os.environ.get("LOCALLB_ROUTE_REQUESTS") or 20)
SERVICES = ("s0", "s1", "s2")
"""Services with a backend that names itself."""
EMPTY, GONE = "empty", "gone"
"""A Service without endpoints, and one that there isn't."""
_HOSTNAMES = ("*.t", "*.a.t", "a.t", "b.t", "b.a.t")
_AGES = tuple(f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))
_TO_ANY = st.sampled_from([*SERVICES, *SERVICES, EMPTY, GONE])

_paths = st.sampled_from(
    [
        {"type": kind, "value": value}
        for kind, values in (
            ("Exact", ("/", "/x", "/x/", "/x/y", "/svc/M")),
            ("PathPrefix", ("/", "/x", "/x/", "/x/y")),
            ("RegularExpression", ("/x.*", "/(x|z)/[a-z]+", "/[^/]")),
        )
        for value in values
    ]
)
_headers: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"name": "x-a", "value": "1"},
        {"name": "X-A", "type": "RegularExpression", "value": "[0-9]+"},
        {"name": "x-b", "value": "2"},
        {"name": "x-forwarded-proto", "value": "http"},
    ]
)
_parameters: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"name": "q", "value": "1"},
        {"name": "q", "type": "RegularExpression", "value": "[0-9]*"},
        {"name": "r", "value": "2"},
    ]
)
_MORE: dict[str, st.SearchStrategy[Any]] = {
    "method": st.sampled_from(["GET", "POST", "OPTIONS"]),
    "headers": st.lists(_headers, max_size=2, unique_by=lambda header: str(header["name"]).lower()),
    "queryParams": st.lists(_parameters, max_size=2, unique_by=lambda parameter: str(parameter["name"])),
}
_matches: st.SearchStrategy[JsonObject] = st.fixed_dictionaries({"path": _paths}, optional=_MORE)
_REDIRECTS: tuple[JsonObject, ...] = (
    {"scheme": "https"},
    {"hostname": "c.t", "statusCode": 301},
    {"port": 81, "path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}},
)
_FILTERS: tuple[list[JsonObject], ...] = (
    [],
    [],
    [],
    *([{"type": "RequestRedirect", "requestRedirect": redirect}] for redirect in _REDIRECTS),
    [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/whole"}}}],
    [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/p/"}}}],
    [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}],
    [{"type": "URLRewrite", "urlRewrite": {"hostname": "other.t"}}],
    [{"type": "CORS", "cors": {"allowOrigins": ["http://o.t"], "allowMethods": ["GET", "POST"]}}],
    [{"type": "Nonsense"}],
)
_backends = st.lists(st.tuples(_TO_ANY, st.integers(0, 3)), max_size=2, unique_by=lambda each: each[0])
_rules = st.tuples(st.lists(_matches, max_size=2), st.sampled_from(_FILTERS), _backends)
_routes = st.tuples(
    st.lists(st.sampled_from(_HOSTNAMES), max_size=2, unique=True),
    st.lists(_rules, min_size=1, max_size=3),
    st.sampled_from(_AGES),
    st.sampled_from(["shop", "shop", "shop", "other"]),
)
_calls = st.fixed_dictionaries(
    {}, optional={"method": st.sampled_from([{"service": "svc"}, {"service": "svc", "method": "M"}, {"method": "M"}])}
)
_grpc_routes = st.tuples(st.sampled_from(_HOSTNAMES), st.lists(_calls, min_size=1, max_size=2), st.sampled_from(_AGES))
_gateways = st.tuples(
    st.lists(st.sampled_from(("", *_HOSTNAMES)), min_size=1, max_size=3, unique=True),
    st.lists(_routes, min_size=1, max_size=5),
    st.lists(_grpc_routes, max_size=1),
)
_ingress_paths = st.builds(
    ingresses.path,
    st.sampled_from(["/", "/x", "/x/", "/x/y"]),
    st.sampled_from(["Exact", "Prefix", "ImplementationSpecific"]),
    _TO_ANY,
)
_ingress_rules = st.tuples(st.sampled_from(["", "a.t", "*.a.t", "b.t"]), st.lists(_ingress_paths, max_size=3))
_ingresses = st.lists(
    st.tuples(st.lists(_ingress_rules, max_size=3), st.none() | _TO_ANY, st.integers(1, 3)), min_size=1, max_size=3
)
_PLAIN = ("/", "/x", "/x/", "/xy", "/x/y", "/x/y/z", "/z/abc", "/svc/M", "/X", "/x;a")
_ODD = ("//x", "/x//y", "/./x", "/x/../x/y", "/%78", "/x%2Fy", "/x\\y", "/x/%2e%2e/z/abc", "/x/..", "/x/.", "/x/%zz")
"""Paths that aren't in their normal form."""
_requests = st.tuples(
    st.booleans(),
    st.sampled_from(["a.t", "b.t", "b.a.t", "c.b.a.t", "t", "else", "A.T", "a.t.", "a.t:99"]),
    st.sampled_from([*_PLAIN, *_ODD]),
    st.sampled_from(["", "", "?q=1", "?q=2&q=1", "?q=%31", "?r=2&q=", "?q", "?r=2", "?q=1&r=2"]),
    st.sampled_from(["GET", "GET", "GET", "POST", "OPTIONS", "PUT"]),
    st.lists(
        st.sampled_from(
            [
                ("x-a", "1"),
                ("X-a", "12"),
                ("x-b", "2"),
                ("origin", "http://o.t"),
                ("access-control-request-method", "GET"),
                ("x-forwarded-proto", "https"),
            ]
        ),
        max_size=3,
    ),
)
_Set = tuple[
    tuple[
        list[str],
        list[tuple[list[str], list[tuple[list[JsonObject], list[JsonObject], list[tuple[str, int]]]], str, str]],
        list[tuple[str, list[JsonObject], str]],
    ],
    list[tuple[list[tuple[str, list[JsonObject]]], str | None, int]],
]


def documents(drawn: _Set) -> Iterator[JsonObject]:
    """Make the objects of a set; each rule of a route names itself in its answers."""
    (names, routes, calls), drawn_ingresses = drawn
    everywhere = {"namespaces": {"from": "All"}}
    yield gateway_class()
    yield gateway(
        *(
            listener(f"l{number}", 8080, allowedRoutes=everywhere, **({"hostname": name} if name else {}))
            for number, name in enumerate(names)
        )
    )
    for number, (hostnames, rules, created, namespace) in enumerate(routes):
        name = f"r{number}"
        made = [_rule(f"{name}-{place}", *drawn_rule) for place, drawn_rule in enumerate(rules, 1)]
        yield route(*made, name=name, created=created, namespace=namespace, hostnames=hostnames)
    for number, (hostname, matches, created) in enumerate(calls):
        rule = {"matches": matches, "filters": [_naming(f"g{number}-1")], "backendRefs": [backend(GONE)]}
        yield route(rule, name=f"g{number}", kind="GRPCRoute", created=created, hostnames=[hostname])
    yield ingresses.ingress_class()
    for number, (listed, default, day) in enumerate(drawn_ingresses):
        spec: dict[str, Any] = {"defaultBackend": ingresses.backend(default)} if default else {}
        written = [ingresses.rule(*paths, host=host) for host, paths in listed]
        yield ingresses.ingress(*written, name=f"i{number}", metadata=ingresses.old(day), **spec)


def _rule(
    name: str, matches: list[JsonObject], filters: list[JsonObject], backends: list[tuple[str, int]]
) -> JsonObject:
    refs = [backend(to, weight=weight, namespace="shop") for to, weight in backends]
    redirects = any(each["type"] == "RequestRedirect" for each in filters)
    return {
        **({"matches": matches} if matches else {}),
        "filters": [_naming(name), *filters],
        **({} if redirects else {"backendRefs": refs}),
    }


def _naming(name: str) -> JsonObject:
    return {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-rule", "value": name}]}}


def planned(block: Block, echoes: list[Echo], objects: Iterable[JsonObject], *, annotated: bool = False) -> Plan:
    """Plan a set on addresses of a block, with its Services' backends at NodePorts of this host."""
    named = [service(echo.name, {"port": 8080, "nodePort": echo.backend.port}, type="NodePort") for echo in echoes]
    read = parse_objects(DEMO, [*objects, *named, service(EMPTY), node()])
    pools = [{"name": "p", "addresses": [f"{block.prefix}.16/28"]}]
    keys = {
        "sources": [{"manifests": "m", "name": "demo"}],
        "pools": pools,
        "ingress": {"class": "local", "http": 8080, "annotations": ["nginx"] if annotated else []},
    }
    snapshot = Snapshot(
        Home("p", "s", "/p"),
        read.services,
        read.malformed,
        read.nodes,
        gateway_api=read.gateway_api,
        host=HostFacts(),
    )
    return make_plan(snapshot, parse_settings(keys))


def together(plan: Plan) -> Rendered:
    """Render what all proxies of a plan serve as one, without health checks."""
    every = [each.proxy for each in plan.proxies]
    upstreams = tuple(replace(upstream, health=None) for proxy in every for upstream in proxy.upstreams)
    http = tuple(listener for proxy in every for listener in proxy.http)
    proxy = Proxy(
        ProxyName("test"), ProxyId("0123456789ab"), Discovery.EDS, (), upstreams, http=http, may_serve_http=True
    )
    return render(proxy)


def differences(explanation: Explanation, answer: Answer) -> Iterator[str]:
    """Yield in what an answer differs from what is explained of it."""
    found = answer.headers.get("location", "")
    match explanation.answered:
        case Answered.BACKEND:
            yield from _of_backend(explanation, answer)
        case Answered.REDIRECT if (answer.status, _where(found)) != (explanation.status, _where(explanation.location)):
            yield f"redirect {answer.status} {found}"
        case Answered.PROXY if answer.status != explanation.status:
            yield f"status {answer.status}"
        case Answered.CONNECTION | Answered.CLOSED | Answered.NOTHING:
            yield f"an answer, {answer.status}"
    rule = answer.headers.get("x-rule", "")
    is_named = explanation.answered is not Answered.PROXY and explanation.origin.startswith("HTTPRoute")
    if (rule or is_named) and _rule_of(explanation) != rule:
        yield f"rule {rule}"


def _of_backend(explanation: Explanation, answer: Answer) -> Iterator[str]:
    if answer.status not in {share.status or 200 for share in explanation.shares}:
        yield f"status {answer.status}"
    elif answer.status == 200:
        services = {share.service for share in explanation.shares if not share.problem}
        if f"shop/{answer.observed['by']}:8080" not in services:
            yield f"backend {answer.observed['by']}"
        asked = explanation.sent or f"{explanation.request.authority}{explanation.request.target}"
        if _path(asked) != _path(answer.observed["path"]):
            yield f"path {answer.observed['path']}, not {asked}"


def _path(asked: str) -> str:
    """Return the path of a URL without a scheme; slashes in front are one, as the backends' library has them."""
    return f"/{asked.partition('/')[2].lstrip('/')}"


def _where(url: str) -> tuple[str, str, int | None, str, str]:
    parts = urlsplit(url)
    port = parts.port if parts.port != {"http": 80, "https": 443}[parts.scheme] else None
    return parts.scheme, (parts.hostname or "").rstrip("."), port, parts.path, parts.query


def _rule_of(explanation: Explanation) -> str:
    """Return the rule as it names itself: `HTTPRoute shop/r0, rule 2` is `r0-2`."""
    named, _, number = explanation.origin.partition(", rule ")
    return f"{named.rpartition('/')[2]}-{number}"


@settings(max_examples=SETS, suppress_health_check=list(HealthCheck))
@given(st.tuples(_gateways, _ingresses), st.lists(_requests, min_size=REQUESTS, max_size=REQUESTS))
def test_envoy_answers_as_is_explained(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: _Set,
    requests: list[tuple[bool, str, str, str, str, list[tuple[str, str]]]],
) -> None:
    """Status, backend, its path, the place of a redirect, and the rule; each Service's backend says its name."""
    block = Block()
    with ExitStack() as stack:
        echoes = [stack.enter_context(Echo(name, "127.0.0.1")) for name in SERVICES]
        plan = planned(block, echoes, documents(drawn))
        rendered = together(plan)
        envoy = stack.enter_context(Envoy(tmp_path_factory.mktemp("envoy"), rendered))
        envoy.wait(rendered)
        places = {
            placement.key.kind is ObjectKind.GATEWAY: placement for placement in plan.placements if placement.addresses
        }
        clients = {kind: stack.enter_context(closing(Client(str(each.addresses[0])))) for kind, each in places.items()}
        for of_gateway, host, path, query, method, headers in requests:
            address = str(places[of_gateway].addresses[0])
            terms = [f"host: {host}", *(f"{name}: {value}" for name, value in headers)]
            explanation = explain(plan, HttpRequest.parse(f"http://{address}:8080{path}{query}", method, terms))
            answer = clients[of_gateway].ask(f"{path}{query}", host, method, headers)
            assert list(differences(explanation, answer)) == [], (str(explanation.request), explanation, answer)


def test_paths_are_normalized_as_is_explained(tmp_path: Path) -> None:
    """Every character, as it is and escaped, and segments of dots and slashes; with annotations `//` is `/` as well."""
    block, dots = Block(), ("a", "", ".", "..", "%2e", "%2E.", "%2F..", "..%5c", "\\..")
    paths = [
        f"/{path}" for number in range(33, 127) if chr(number) not in "?#" for path in (chr(number), f"%{number:02x}")
    ]
    paths += [f"/b/{one}/{two}{rest}" for one in dots for two in dots for rest in ("", "/c")] + ["/%7F", "/%e4", "/%00"]
    everything = ingresses.ingress(ingresses.rule(ingresses.path("/", to="s0")))
    with ExitStack() as stack:
        echo = stack.enter_context(Echo("s0", "127.0.0.1"))
        for merges in (False, True):
            plan = planned(block, [echo], [ingresses.ingress_class(), everything], annotated=merges)
            rendered = together(plan)
            directory = tmp_path / str(merges)
            directory.mkdir()
            with Envoy(directory, rendered) as envoy:
                envoy.wait(rendered)
                address = str(plan.placements[0].addresses[0])
                client = stack.enter_context(closing(Client(address)))
                for path in paths:
                    answer = client.ask(path)
                    normal = normal_path(path, merges_slashes=merges)
                    assert answer.status == (200 if normal else 400), path
                    assert not normal or answer.observed["path"] == _path(normal), (path, merges)
