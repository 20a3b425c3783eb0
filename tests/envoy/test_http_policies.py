"""What goes along with routes, through a real Envoy: weights, copies, time limits, retries, sessions, other origins."""

from __future__ import annotations

import re
import subprocess

import pytest

from locallb.model.http_routes import (
    Cors,
    Forward,
    HttpRoute,
    Match,
    Mirror,
    Redirect,
    RetryRule,
    SessionAffinity,
    SessionKind,
    Target,
    ValueMatch,
)
from locallb.model.identities import UpstreamName
from tests.envoy.conftest import ServeHttp, Start
from tests.support.envoy_traffic import TIMEOUT, Block
from tests.support.http_traffic import Client, Echo, prefix, rendering, upstream
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy
ENDED_BY_THE_SERVER = (18, 92)
"""Exit codes of curl: a response isn't whole, in HTTP/1.1 and in HTTP/2."""
WEB = Forward((Target(UpstreamName("web")),))


def endless(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Read a response that goes on until the proxy ends it."""
    limit = ["--max-time", str(TIMEOUT), "--silent", "--write-out", "%{response_code}"]
    command = ["curl", *limit, *options, f"http://{address}:8080/endless"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_requests_are_split_by_weight(serve: ServeHttp) -> None:
    """9 to 1, nobody for weight 0; a share without a backend is answered 500, one without endpoints 503."""
    shares = (Target(UpstreamName("web"), 90), Target(UpstreamName("other"), 10), Target(UpstreamName("empty"), 0))
    client = serve(
        HttpRoute(Match(prefix("/shares")), Forward(shares)),
        HttpRoute(Match(prefix("/invalid")), Forward((Target(UpstreamName("web")), Target(UpstreamName(""))))),
        HttpRoute(Match(prefix("/empty")), Forward((Target(UpstreamName("web")), Target(UpstreamName("empty"))))),
        HttpRoute(Match(prefix("/none")), Forward(())),
        HttpRoute(Match(prefix("/zero")), Forward((Target(UpstreamName("web"), 0),))),
    )
    by = [client.ask("/shares").observed["by"] for _ in range(500)]
    assert 20 < by.count("b") < 90  # 50 are expected, 4.5 standard deviations either way
    assert {client.ask("/invalid").status for _ in range(60)} == {200, 500}
    assert {client.ask("/empty").status for _ in range(60)} == {200, 503}
    assert [client.ask(path).status for path in ("/none", "/zero")] == [500, 500]


def test_mirrored_requests_reach_another_backend_too(serve: ServeHttp, echoes: dict[str, Echo]) -> None:
    """A copy of each request, or of a share, reaches another backend; the client hears of the first alone."""
    half = (Mirror(UpstreamName("other"), 500_000),)
    client = serve(
        HttpRoute(
            Match(prefix("/all")),
            Forward((Target(UpstreamName("web")),), mirrors=(Mirror(UpstreamName("other")), Mirror(UpstreamName("")))),
        ),
        HttpRoute(Match(prefix("/half")), Forward((Target(UpstreamName("web")),), mirrors=half)),
    )
    assert {client.ask(path).observed["by"] for path in ["/all"] * 20 + ["/half"] * 100} == {"a"}
    becomes(lambda: echoes["b"].requested.count("/all") == 20, "all copies arrived")
    assert 25 < echoes["b"].requested.count("/half") < 75


def test_timeouts_answer_504_and_named_statuses_are_retried(serve: ServeHttp, echoes: dict[str, Echo]) -> None:
    """504 when time is up, for the whole or for each attempt; statuses that are named are tried again."""
    client = serve(
        HttpRoute(Match(headers=(ValueMatch("x", "whole"),)), Forward((Target(UpstreamName("web")),), timeout=200)),
        HttpRoute(
            Match(headers=(ValueMatch("x", "attempt"),)), Forward((Target(UpstreamName("web")),), attempt_timeout=200)
        ),
        HttpRoute(
            Match(headers=(ValueMatch("x", "again"),)),
            Forward((Target(UpstreamName("web")),), retry=RetryRule((503,), 3, 10)),
        ),
        HttpRoute(Match(), WEB),
    )
    assert [client.ask("/slow", headers=(("x", how),)).status for how in ("whole", "attempt", "none")] == [
        504,
        504,
        200,
    ]
    assert client.ask("/fails/3", headers=(("x", "again"),)).status == 200
    assert client.ask("/fails/9", headers=(("x", "again"),)).status == 503
    assert client.ask("/fails/1").status == 503
    requested = echoes["a"].requested
    assert [requested.count(path) for path in ("/slow", "/fails/3", "/fails/9", "/fails/1")] == [3, 4, 4, 1]


@pytest.mark.parametrize(
    "forward",
    [
        Forward(WEB.targets, timeout=300),
        Forward(WEB.targets, attempt_timeout=300),
        Forward(WEB.targets, attempt_timeout=300, retry=RetryRule((503,), 3, 10)),
    ],
    ids=["request", "backendRequest", "retried"],
)
@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge"])
def test_response_that_goes_on_ends_with_its_time(
    protocol: str, forward: Forward, serve: ServeHttp, echoes: dict[str, Echo], block: Block
) -> None:
    """HTTPRouteTimeouts.backendRequest: until "the full response has been received from the backend"; not repeated."""
    serve(HttpRoute(Match(), forward))
    ended = endless(block[9], protocol)
    assert ended.returncode in ENDED_BY_THE_SERVER
    assert re.fullmatch(r"\.+200", ended.stdout)
    assert echoes["a"].requested == ["/endless"]


@pytest.mark.parametrize("header", ["upgrade: 0", "upgrade: websocket", "x-envoy-upstream-stream-duration-ms: 600000"])
def test_no_client_lengthens_the_time_of_an_attempt(header: str, serve: ServeHttp, block: Block) -> None:
    """Neither by Envoy's own header nor by that of an upgrade which isn't one: the response ends."""
    serve(HttpRoute(Match(), Forward((Target(UpstreamName("web")),), attempt_timeout=300)))
    assert endless(block[9], "--header", header).returncode in ENDED_BY_THE_SERVER


def test_no_backend_gets_the_command_that_ends_an_attempt(serve: ServeHttp) -> None:
    """Neither the first nor one that is asked again."""
    retry = Forward((Target(UpstreamName("web")),), attempt_timeout=5000, retry=RetryRule((503,), 3, 10))
    answer = serve(HttpRoute(Match(), retry)).ask("/fails/1")
    assert answer.status == 200
    assert not [name for name in answer.observed["headers"] if name.startswith("x-envoy")]


def test_a_backend_that_takes_nothing_is_passed_over(start: Start, block: Block, echoes: dict[str, Echo]) -> None:
    """Nobody listens on one of two: every request is answered by the other, with no retry asked for."""
    removed = Echo("gone", block[3])
    removed._server.server_close()
    start(rendering(block[9], [HttpRoute(Match(), WEB)], [upstream("web", removed, echoes["a"])]))
    client = Client(block[9])
    assert {client.ask().observed["by"] for _ in range(20)} == {"a"}
    client.close()


@pytest.mark.parametrize("kind", list(SessionKind))
def test_session_persistence_keeps_a_client_at_its_backend(serve: ServeHttp, kind: SessionKind) -> None:
    """A client that says what it was told stays with its backend; others are spread."""
    client = serve(
        HttpRoute(Match(), Forward((Target(UpstreamName("both")),), session=SessionAffinity("s", kind, 60_000)))
    )
    first = client.ask()
    reported = first.headers["set-cookie"] if kind is SessionKind.COOKIE else first.headers["s"]
    assert kind is SessionKind.HEADER or "Max-Age=60" in reported
    back = ("cookie", reported.partition(";")[0]) if kind is SessionKind.COOKIE else ("s", reported)
    assert {client.ask(headers=(back,)).observed["by"] for _ in range(20)} == {first.observed["by"]}
    assert {client.ask().observed["by"] for _ in range(20)} == {"a", "b"}


def test_cors_preflights_are_answered_by_the_proxy(serve: ServeHttp, echoes: dict[str, Echo]) -> None:
    """Preflights are answered here, for origins that may; others get no permission."""
    cors = Cors(
        ("https://*.a.test", "http://b.test"), ("GET", "PUT"), ("x-a",), ("x-from",), credentials=True, max_age=60
    )
    client = serve(
        HttpRoute(Match(prefix("/any")), WEB, cors=Cors(("*",), ("*",), ("*",))),
        HttpRoute(Match(prefix("/whatever")), WEB, cors=Cors(("*",), ("GET", "*"), ("*",), credentials=True)),
        HttpRoute(Match(), WEB, cors=cors),
    )

    def preflight(path: str, origin: str) -> dict[str, str]:
        head = "access-control-request"
        requested = (("origin", origin), (f"{head}-method", "PUT"), (f"{head}-headers", "x-a, x-b"))
        answer = client.ask(path, method="OPTIONS", headers=requested)
        assert answer.status == 200
        return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}

    for origin in ("https://x.a.test", "http://b.test"):
        permission = preflight("/", origin)
        assert (permission["access-control-allow-origin"], permission["access-control-allow-credentials"]) == (
            origin,
            "true",
        )
        assert (permission["access-control-allow-methods"], permission["access-control-allow-headers"]) == (
            "GET, PUT",
            "x-a",
        )
        assert permission["access-control-max-age"] == "60"
    for origin in ("https://a.test.evil", "http://x.a.test", "null"):
        assert "access-control-allow-origin" not in preflight("/", origin)
    assert preflight("/any", "http://x")["access-control-allow-origin"] in {"http://x", "*"}
    permission = preflight("/whatever", "http://x")
    assert (permission["access-control-allow-methods"], permission["access-control-allow-headers"]) == (
        "PUT",
        "x-a, x-b",
    )
    assert not echoes["a"].requested
    answer = client.ask(headers=(("origin", "http://b.test"),))
    assert answer.headers["access-control-allow-origin"] == "http://b.test"


def test_a_preflight_is_answered_for_the_method_that_its_route_matches(
    serve: ServeHttp, echoes: dict[str, Echo]
) -> None:
    """A preflight is OPTIONS, whatever it is for; no other request with that method reaches the route's backend."""

    def cors(*methods: str) -> Cors:
        return Cors(("http://a.test",), methods)

    elsewhere = Redirect(hostname="b.test")
    client = serve(
        HttpRoute(Match(prefix("/x"), method="GET"), WEB, cors=cors("GET")),
        HttpRoute(Match(prefix("/x"), method="PUT"), elsewhere, cors=cors("PUT")),
        HttpRoute(Match(prefix("/own"), method="GET"), WEB, cors=cors("GET")),
        HttpRoute(Match(prefix("/own"), method="OPTIONS"), WEB),
        HttpRoute(Match(prefix("/plain"), method="GET"), WEB),
        HttpRoute(Match(prefix("/behind")), Forward((Target(UpstreamName("other")),))),
    )

    def requested(path: str, method: str = "", origin: str | None = "http://a.test") -> tuple[int, str, str]:
        headers = [("origin", origin)] if origin is not None else []
        headers += [("access-control-request-method", method)] if method else []
        answer = client.ask(path, method="OPTIONS", headers=headers)
        permitted = (answer.headers.get(f"access-control-allow-{name}", "") for name in ("origin", "methods"))
        return answer.status, *permitted  # type: ignore[return-value]

    assert requested("/x", "GET") == (200, "http://a.test", "GET")
    assert requested("/x/y", "PUT") == (200, "http://a.test", "PUT")
    assert requested("/x", "GET", "http://evil.test")[:2] == (200, "")
    refused = [
        requested("/x", "DELETE"),
        requested("/x"),
        requested("/x", "GET", None),
        requested("/x", "GET", ""),
        requested("/plain", "GET"),
    ]
    assert {status for status, *_ in refused} == {404}
    assert not echoes["a"].requested
    assert requested("/own", "GET")[0] == 200
    assert echoes["a"].requested == ["/own"]
    assert requested("/behind", "GET")[0] == 200
    assert echoes["b"].requested == ["/behind"]
