"""Requests through a real Envoy: which route they take, what becomes of them, what the backend and the client see."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    GrpcMethod,
    HeaderChanges,
    HttpRoute,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    Target,
    ValueMatch,
)
from locallb.model.http_serving import VirtualHost
from locallb.model.identities import UpstreamName
from locallb.model.objects import Discovery
from tests.envoy.conftest import ServeHttp
from tests.support.http_traffic import prefix

pytestmark = pytest.mark.envoy


def on(path: PathMatch | GrpcMethod | None, text: str, **more: object) -> HttpRoute:
    """Make a route that answers with a text."""
    return HttpRoute(Match(path, **more), DirectResponse(200, text))  # type: ignore[arg-type]


def exact(path: str) -> PathMatch:
    return PathMatch(PathKind.EXACT, path)


@pytest.mark.parametrize("discovery", list(Discovery))
def test_the_first_route_that_matches_is_taken(serve: ServeHttp, discovery: Discovery) -> None:
    """Paths by elements, whole, or by expression; methods, headers and parameters; gRPC's services and methods."""
    client = serve(
        on(exact("/exact"), "exact"),
        on(PathMatch(PathKind.REGEX, "/re[0-9]+(/.*)?"), "regex"),
        on(GrpcMethod("a.B", "C"), "grpc"),
        on(GrpcMethod("a.B"), "service"),
        on(GrpcMethod("", "Only"), "method"),
        on(
            prefix("/both"),
            "both",
            method="POST",
            headers=(ValueMatch("X-A", "1"), ValueMatch("x-b", "b+", regex=True)),
        ),
        on(prefix("/query"), "query", query=(ValueMatch("q", "1"), ValueMatch("r", "[ab]", regex=True))),
        on(prefix("/a/b/"), "ab"),
        on(prefix("/a"), "a"),
        on(prefix("/"), "rest", headers=(ValueMatch("x-rest", "yes"),)),
        discovery=discovery,
    )
    yes, headers = (("x-rest", "yes"),), (("x-a", "1"), ("x-b", "bbb"), ("x-rest", "yes"))
    claimed = {
        ("/exact", "GET", yes): "exact",
        ("/exact/", "GET", yes): "rest",
        ("/exact?x=1", "GET", yes): "exact",
        ("/re12", "GET", yes): "regex",
        ("/xre12", "GET", yes): "rest",
        ("/re12/3?a", "GET", yes): "regex",
        ("/a.B/C", "POST", yes): "grpc",
        ("/a.B/D", "POST", yes): "service",
        ("/aXB/D", "POST", yes): "rest",
        ("/z/Only", "POST", yes): "method",
        ("/both", "POST", headers): "both",
        ("/both", "GET", headers): "rest",
        ("/both", "POST", yes): "rest",
        ("/query?q=1&r=a", "GET", yes): "query",
        ("/query?q=1", "GET", yes): "rest",
        ("/a/b", "GET", yes): "ab",
        ("/a/b/c", "GET", yes): "ab",
        ("/a/bc", "GET", yes): "a",
        ("/ab", "GET", yes): "rest",
        ("/a//b", "GET", yes): "a",
        ("/x/../a/b", "GET", yes): "ab",
        ("/x%2F..%2Fa", "GET", yes): "rest",
    }
    assert {(path, how, with_): client.ask(path, "a.test", how, with_).body for path, how, with_ in claimed} == claimed
    assert client.ask("/nowhere").status == 404
    assert client.made == 1


def test_the_most_specific_host_is_taken(serve: ServeHttp) -> None:
    """Names before wildcards, longer ones before shorter, whatever the case, the port and the dot at the end."""
    names = ("a.test", "*.a.test", "*.b.a.test", "*")
    client = serve(*(VirtualHost((name,), (on(None, name),)) for name in names))
    requested = {
        **dict.fromkeys(("a.test", "A.Test", "a.test:8080", "a.test."), "a.test"),
        **dict.fromkeys(("x.a.test", "x.y.a.test"), "*.a.test"),
        "x.b.a.test": "*.b.a.test",
        **dict.fromkeys(("b.test", "127.0.0.1"), "*"),
    }
    assert {host: client.ask("/", host).body for host in requested} == requested


REWRITES = (
    ("/foo", PathRewrite("/xyz", prefix=True), "/foo/bar", "/xyz/bar"),
    ("/foo", PathRewrite("/xyz/", prefix=True), "/foo/bar", "/xyz/bar"),
    ("/foo/", PathRewrite("/xyz", prefix=True), "/foo/bar", "/xyz/bar"),
    ("/foo", PathRewrite("/xyz", prefix=True), "/foo", "/xyz"),
    ("/foo", PathRewrite("/xyz", prefix=True), "/foo/", "/xyz/"),
    ("/foo", PathRewrite("", prefix=True), "/foo/bar", "/bar"),
    ("/foo", PathRewrite("/", prefix=True), "/foo/bar?q=%2F", "/bar?q=%2F"),
    ("/foo", PathRewrite("", prefix=True), "/foo", "/"),
    ("/foo", PathRewrite("/", prefix=True), "/foo/", "/"),
    ("/", PathRewrite("/xyz", prefix=True), "/bar", "/xyz/bar"),
    ("/", PathRewrite("/", prefix=True), "/bar", "/bar"),
    ("/foo", PathRewrite("/a\\1b"), "/foo/bar?x=1", "/a\\1b?x=1"),
    ("/f.o", PathRewrite("", prefix=True), "/f.o/bar", "/bar"),
)


def test_path_rewrites_follow_the_specifications_table(serve: ServeHttp) -> None:
    """As the specification's table has it, towards backends and in redirects."""
    client = serve(
        *(
            VirtualHost(
                (f"{number}.test",),
                (
                    HttpRoute(Match(prefix(match), headers=(ValueMatch("x-to", "client"),)), Redirect(302, path=path)),
                    HttpRoute(Match(prefix(match)), Forward((Target(UpstreamName("web")),), "b.test", path)),
                ),
            )
            for number, (match, path, _, _) in enumerate(REWRITES)
        )
    )
    for number, (_, _, requested, reached) in enumerate(REWRITES):
        observed = client.ask(requested, f"{number}.test").observed
        assert (requested, observed["path"], observed["headers"]["host"]) == (requested, reached, "b.test")
        answer = client.ask(requested, f"{number}.test", headers=(("x-to", "client"),))
        assert answer.headers["location"] == f"http://{number}.test:8080{reached}"


PATH = PathRewrite("/x")
REDIRECTS = (
    (Redirect(301, "https"), "a.test:8080", "https://a.test/p?q=1"),
    (Redirect(301, "https"), "a.test", "https://a.test/p?q=1"),
    (Redirect(301, "http"), "a.test:8080", "http://a.test/p?q=1"),
    (Redirect(302, "https", "b.test", 443), "a.test:8080", "https://b.test/p?q=1"),
    (Redirect(302, port=80), "a.test:8080", "http://a.test/p?q=1"),
    (Redirect(303, "https", "b.test", 8443), "a.test", "https://b.test:8443/p?q=1"),
    (Redirect(307, hostname="b.test"), "a.test:8080", "http://b.test:8080/p?q=1"),
    (Redirect(308, port=8443), "a.test:99", "http://a.test:8443/p?q=1"),
    (Redirect(302, "http", "b.test"), "a.test", "http://b.test/p?q=1"),
    (Redirect(302, path=PATH), "a.test:8080", "http://a.test:8080/x?q=1"),
    (Redirect(302, path=PATH), "a.test:99", "http://a.test:8080/x?q=1"),
    (Redirect(302, path=PATH), "a.test", "http://a.test:8080/x?q=1"),
)
OF_SEVERAL_HOSTS = (
    (Redirect(301, "https"), "a.test:8080", "https://a.test:443/p?q=1"),
    (Redirect(302, "https", "b.test"), "a.test:8080", "https://b.test/p?q=1"),
    (Redirect(302, path=PATH), "a.test", "http://a.test:8080/x?q=1"),
)


@pytest.mark.parametrize(("domain", "table"), [("a.test", REDIRECTS), ("*.test", OF_SEVERAL_HOSTS)])
def test_redirects_change_only_the_given_parts_of_the_url(
    serve: ServeHttp, domain: str, table: Sequence[tuple[Redirect, str, str]]
) -> None:
    """Scheme, host, port and status; the path and the query stay. What isn't said is as at the listener, here 8080.

    HTTPRequestRedirectFilter.port: "If redirect scheme is empty, the redirect port MUST be the Gateway Listener port";
    "Implementations SHOULD NOT add the port number" that the scheme implies, which is so for hosts with a name.
    """
    routes = [HttpRoute(Match(headers=(ValueMatch("n", f"{n}"),)), case[0]) for n, case in enumerate(table)]
    client = serve(VirtualHost((domain,), tuple(routes)))
    for number, (redirect, host, location) in enumerate(table):
        answer = client.ask("/p?q=1", host, headers=(("n", f"{number}"),))
        assert (number, answer.status, answer.headers["location"]) == (number, redirect.code, location)


def test_headers_are_set_added_and_removed(serve: ServeHttp) -> None:
    """Of requests and answers, by route and by backend, whatever stands in a value; nothing else is changed."""
    by_route = HeaderChanges((("X-Set", "%START_TIME%"),), (("x-add", "2"),), ("x-gone",))
    by_target = HeaderChanges((("x-target", "a"),))
    client = serve(
        HttpRoute(Match(prefix("/answer")), DirectResponse(404), response=by_route),
        HttpRoute(
            Match(),
            Forward((Target(UpstreamName("web"), 1, by_target, HeaderChanges(remove=("x-from",))),)),
            by_route,
            by_route,
        ),
    )
    sent = (
        ("x-set", "0"),
        ("x-add", "1"),
        ("x-gone", "1"),
        ("x-envoy-retry-on", "5xx"),
        ("x-forwarded-for", "1.2.3.4"),
    )
    answer = client.ask(headers=sent)
    wanted = {"x-set": "%START_TIME%", "x-add": "1, 2", "x-target": "a", "host": "a.test", "x-forwarded-proto": "http"}
    assert {name: answer.observed["headers"].get(name) for name in wanted} == wanted
    assert answer.observed["headers"]["x-forwarded-for"].startswith("1.2.3.4,")
    assert set(answer.observed["headers"]) == {*wanted, "x-forwarded-for"}
    assert set(answer.headers) == {"content-length", "server", "date", "x-set", "x-add"}
    assert answer.headers["server"] == "echo"
    assert client.ask("/answer").headers["x-set"] == "%START_TIME%"
