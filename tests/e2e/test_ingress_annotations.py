"""Annotations of other Ingress controllers through a real Envoy: each with the requests that tell if it is kept."""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import grpc
import pytest

from tests.support.certificates import Authority
from tests.support.gateway_clients import address_of, service, tls_secret
from tests.support.http_traffic import Answer, Client, Echo, grpc_server
from tests.support.ingress_objects import JsonObject, ingress, old, path, rule
from tests.support.manifests import node
from tests.support.stages import stage

pytestmark = pytest.mark.envoy

PORTS = {"http": 8080, "https": 8443}
SPECIFIC = "ImplementationSpecific"
CANARY = {"canary": "true", "canary_by_header": "X-New"}


def annotated(host: str, *paths: JsonObject, name: str = "", day: int = 1, **stated: str) -> JsonObject:
    """Make an Ingress for a host with annotations of ingress-nginx, `-` written as `_`."""
    annotations = {f"nginx.ingress.kubernetes.io/{key.replace('_', '-')}": text for key, text in stated.items()}
    metadata = {**old(day), "annotations": annotations}
    return ingress(
        rule(*paths or (path(to="a"),), host=host), name=name or host.removesuffix(".test"), metadata=metadata
    )


def traefik(host: str, entrypoints: str, tls: str = "false") -> JsonObject:
    """Make an Ingress with annotations of Traefik and a certificate."""
    prefix = "traefik.ingress.kubernetes.io/router."
    annotations = {f"{prefix}entrypoints": entrypoints, f"{prefix}tls": tls}
    return ingress(
        rule(path(to="a"), host=host),
        name=host.removesuffix(".test"),
        metadata={"annotations": annotations},
        tls=[{"hosts": [host], "secretName": "cert"}],
    )


INGRESSES = (
    annotated("rewritten.test", path("/api(/|$)(.*)", SPECIFIC, "a"), path("/none", to="a"), rewrite_target="/$2"),
    annotated("rewritten.test", path("/", to="b"), name="beside", day=2),
    annotated("whole.test", path("/old", to="a"), path("/same", to="a"), rewrite_target="/same"),
    annotated(
        "regex.test", path("/a[0-9]+/b", SPECIFIC, "a"), path("/A", SPECIFIC, "b"), path("/", to="b"), use_regex="true"
    ),
    annotated("longer.test", path("/(.*)", SPECIFIC, "b"), rewrite_target="/x/$1"),
    annotated("longer.test", path("/longer", to="a"), name="longest", day=2),
    annotated("secured.test", path("/", to="a"), ssl_redirect="true")
    | {"spec": {**annotated("secured.test")["spec"], "tls": [{"hosts": ["secured.test"], "secretName": "cert"}]}},
    annotated("forced.test", force_ssl_redirect="true"),
    annotated("by-tls.test", path("/", to="tls"), backend_protocol="HTTPS"),
    annotated("calls.test", path("/", to="calls"), backend_protocol="GRPC"),
    annotated("permanent.test", permanent_redirect="https://other.test/x?y=1%20z"),
    annotated("temporal.test", temporal_redirect="http://other.test:8080$request_uri"),
    annotated("rooted.test", path("/", "Exact", "b"), path("/", to="a"), app_root="/app"),
    annotated(
        "shared.test",
        enable_cors="true",
        cors_allow_origin="https://one.test, https://two.test:8443",
        cors_allow_headers="X-One,X-Two",
    ),
    annotated("anybody.test", enable_cors="true", cors_max_age="60", cors_expose_headers="X-From"),
    annotated("near.test", whitelist_source_range="127.0.0.0/8,::1"),
    annotated("far.test", whitelist_source_range="10.0.0.0/8, 192.0.2.1"),
    annotated("partly.test", path("/admin", to="a"), name="partly-admin", whitelist_source_range="10.0.0.0/8"),
    annotated("partly.test", path("/", to="a"), day=2),
    annotated("broken.test", whitelist_source_range="everybody"),
    annotated("patient.test", path("/", to="mute"), proxy_read_timeout="1"),
    annotated("main.test", path("/", to="a")),
    annotated("main.test", path("/", to="b"), name="share", day=2, canary="true", canary_weight="30"),
    annotated("headers.test", path("/", to="a")),
    annotated("headers.test", path("/", to="b"), name="by-header", day=2, **CANARY),
    annotated("values.test", path("/", to="a"), rewrite_target="/new"),
    annotated("values.test", path("/", to="b"), name="by-value", day=2, **CANARY, canary_by_header_value="tea"),
    annotated("alone.test", canary="true", canary_weight="100"),
    annotated("unknown.test", proxy_body_size="1m", session_cookie_name="id"),
    annotated("guarded.test", auth_url="https://x.test", server_snippet="deny all;"),
    traefik("only-tls.test", "websecure", "true"),
    traefik("only-plain.test", "web"),
    traefik("elsewhere.test", "internal"),
)


@dataclass(frozen=True)
class Served:
    """All of them, served."""

    address: str
    reported: str
    ask: Callable[..., Answer]
    lines: str
    authority: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve all of them at one address."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    pair = authority.sign(*(f"DNS:{name}.test" for name in ("secured", "only-tls", "only-plain")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    with ExitStack() as stack:
        play = stack.enter_context(stage())
        play.configure(ingress={"class": "local", **PORTS, "annotations": ["nginx", "traefik"]})
        echoes = [stack.enter_context(Echo(name, "127.0.0.1")) for name in "ab"]
        echoes.append(stack.enter_context(Echo("tls", "127.0.0.1", context)))
        ports = {each.name: each.backend.port for each in echoes}
        ports["calls"] = stack.enter_context(grpc_server("127.0.0.1")).port
        # Connections are taken, and never answered.
        ports["mute"] = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        secret = {**tls_secret(pair), "metadata": {"name": "cert", "namespace": "shop"}}
        play.write("cluster.yaml", node(), *(service(name, port) for name, port in ports.items()), secret)
        play.write("ingress.yaml", *INGRESSES)
        done = play.up()
        address = address_of(play)
        client = Client(address)
        stack.callback(client.close)

        def ask(host: str, at: str = "/", method: str = "GET", **headers: str) -> Answer:
            return client.ask(at, host, method, [(name.replace("_", "-"), value) for name, value in headers.items()])

        lines = play.run("status", "c/ingressclasses//local").out
        yield Served(address, done.out + done.err, ask, lines, str(authority.own.chain))


@pytest.mark.parametrize(
    ("host", "requested", "by", "path"),
    [
        ("rewritten.test", "/api/v1?q=1", "a", "/v1?q=1"),
        ("rewritten.test", "/API/V1/x", "a", "/V1/x"),
        ("rewritten.test", "/api", "a", "/"),
        ("rewritten.test", "/apis", "b", "/apis"),
        ("whole.test", "/old/thing?q=1", "a", "/same?q=1"),
        ("whole.test", "/same/thing", "a", "/same/thing"),
        ("regex.test", "/a1/b/c", "a", "/a1/b/c"),
        ("regex.test", "/A12/B", "a", "/A12/B"),
        ("regex.test", "/abc", "b", "/abc"),
        ("longer.test", "/longer/x", "a", "/longer/x"),
        ("longer.test", "/else", "b", "/x/else"),
        ("values.test", "/x", "a", "/new"),
    ],
)
def test_regex_paths_match_from_the_start_case_insensitively(
    served: Served, host: str, requested: str, by: str, path: str
) -> None:
    """Expressions begin where the path does and heed no capitals; the longest is asked first; the query stays."""
    observed = served.ask(host, requested).observed
    assert (observed["by"], observed["path"]) == (by, path)


def test_plain_http_is_redirected_to_https(served: Served) -> None:
    """Plain HTTP leads to the port of HTTPS, where there is a certificate; there the backend answers."""
    sent = served.ask("secured.test", "/x?y=1")
    assert (sent.status, sent.headers["location"]) == (308, "https://secured.test:8443/x?y=1")
    assert by_tls(served, "secured.test", "/x").observed["path"] == "/x"
    assert served.ask("forced.test").status == 200
    assert "Ingress shop/forced: forced.test has no certificate, so nobody is sent to HTTPS" in served.reported


def by_tls(served: Served, host: str, at: str = "/") -> Answer:
    client = Client(served.address, 8443, served.authority)
    try:
        return client.ask(at, host)
    finally:
        client.close()


def test_annotated_backends_are_reached_by_tls_and_grpc(served: Served) -> None:
    """By TLS, whoever answers; by gRPC."""
    assert served.ask("by-tls.test").observed["by"] == "tls"
    with grpc.insecure_channel(f"{served.address}:8080", [("grpc.default_authority", "calls.test")]) as channel:
        assert channel.unary_unary("/test.Echo/Say", None, None)(b"hello", timeout=5) == b"hello"


@pytest.mark.parametrize(
    ("host", "requested", "status", "location"),
    [
        ("permanent.test", "/old?q=1", 301, "https://other.test/x?y=1%20z"),
        ("temporal.test", "/old?q=1", 302, "http://other.test:8080/old?q=1"),
        ("rooted.test", "/?q=1", 302, "/app"),
    ],
)
def test_annotated_redirects_lead_to_the_target(
    served: Served, host: str, requested: str, status: int, location: str
) -> None:
    """To the very URL, or with the request's path and query; a root beside which all else is as it was."""
    sent = served.ask(host, requested)
    assert (sent.status, sent.headers["location"]) == (status, location)
    assert served.ask("rooted.test", "/app").observed["path"] == "/app"


def test_cors_allows_listed_origins(served: Served) -> None:
    """Those that are listed, with credentials; where every origin may, without."""
    wanted = {"access_control_request_method": "PUT", "access_control_request_headers": "X-One"}
    allowed = served.ask("shared.test", "/", "OPTIONS", origin="https://two.test:8443", **wanted).headers
    assert allowed["access-control-allow-origin"] == "https://two.test:8443"
    assert allowed["access-control-allow-methods"] == "GET, PUT, POST, DELETE, PATCH, OPTIONS"
    assert allowed["access-control-allow-headers"] == "X-One, X-Two"
    assert (allowed["access-control-allow-credentials"], allowed["access-control-max-age"]) == ("true", "1728000")
    refused = served.ask("shared.test", origin="https://three.test").headers
    assert not [name for name in refused if name.startswith("access-control-")]
    anybody = served.ask("anybody.test", origin="https://three.test").headers
    assert anybody["access-control-allow-origin"] in {"*", "https://three.test"}
    assert anybody["access-control-expose-headers"] == "X-From"
    assert "access-control-allow-credentials" not in anybody


def test_source_ranges_refuse_unlisted_clients(served: Served) -> None:
    """Who isn't listed is refused; where the list can't be read nobody is served."""
    assert [served.ask(f"{name}.test").status for name in ("near", "far", "broken")] == [200, 403, 503]
    requested = ["/", "/other", "/admin", "//admin", "/%2fadmin", "/./admin", "/x/../admin", "/other/..//admin/x"]
    assert [served.ask("partly.test", each).status for each in requested] == [200, 200, *[403] * (len(requested) - 2)]
    broken = 'nginx.ingress.kubernetes.io/whitelist-source-range is "everybody"; give ranges such as 10.0.0.0/8'
    assert f"Ingress shop/broken: {broken}" in served.reported


def test_silent_backend_is_given_up_after_the_annotated_timeout(served: Served) -> None:
    """A backend that says nothing for as long is given up."""
    assert served.ask("patient.test").status == 504


def test_canary_gets_its_share_by_weight_or_header(served: Served) -> None:
    """A share by weight, all or nothing by a header, whatever the main Ingress says of paths; alone none is served."""
    shares = Counter(served.ask("main.test").observed["by"] for _ in range(400))
    assert 80 < shares["b"] < 160  # 120 are expected, 4.3 standard deviations either way
    by_header = [served.ask("headers.test", x_new=value).observed["by"] for value in ("always", "never", "else")]
    assert by_header == ["b", "a", "a"]
    observed = [served.ask("values.test", x_new=value).observed for value in ("tea", "always")]
    assert [(each["by"], each["path"]) for each in observed] == [("b", "/new"), ("a", "/new")]
    assert served.ask("alone.test").status == 404
    assert "Ingress shop/alone: no other Ingress of its namespace has alone.test/" in served.reported


def test_entry_points_select_plain_http_or_tls(served: Served) -> None:
    """Rules are there by TLS alone, or by plain HTTP alone; of an entry point that nobody has, nobody is served."""
    assert [served.ask(f"{name}.test").status for name in ("only-tls", "only-plain", "elsewhere")] == [404, 200, 503]
    assert [by_tls(served, f"{name}.test").status for name in ("only-tls", "only-plain")] == [200, 404]


def test_unsupported_annotations_are_reported_once(served: Served) -> None:
    """Once, by name."""
    unknown = "these annotations aren't understood, and nothing comes of them: proxy-body-size, session-cookie-name"
    assert served.reported.count(f"Ingress shop/unknown: of nginx.ingress.kubernetes.io/ {unknown}") == 1
    assert served.ask("unknown.test").status == 200
    guards = "these annotations keep clients out and aren't understood: auth-url, server-snippet"
    assert served.reported.count(f"Ingress shop/guarded: of nginx.ingress.kubernetes.io/ {guards}") == 1
    assert served.ask("guarded.test").status == 503
    assert served.ask("rewritten.test", "/none").status == 503
    assert served.reported.count("rewrite-target of /none: only a route that matches by an expression has groups") == 1
    assert "8080: permanent.test/* → 301 https://other.test/x?y=1%20z" in served.lines
    assert "8080: main.test/* → shop/a:8080 70 %, shop/b:8080 30 %" in served.lines
