"""What clients say in headers and versions of HTTP: no client commands Envoy, and backends get what Envoy has seen."""

from __future__ import annotations

import json
import re
import socket
from itertools import product

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.envoy.http_routes import of_route
from locallb.model.http_routes import MAX_SEPARATORS, Forward, GrpcMethod, HeaderChanges, HttpRoute, Match, Target
from locallb.model.http_serving import HttpBackends, Speaks, VirtualHost
from locallb.model.identities import Protocol, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Upstream
from tests.envoy.conftest import ServeHttp, Start
from tests.support.envoy_traffic import Block
from tests.support.http_traffic import Echo, grpc_server, rendering

pytestmark = pytest.mark.envoy
WEB = Forward((Target(UpstreamName("web")),))
COMMANDS = (
    ("x-envoy-retry-on", "5xx"),
    ("x-envoy-max-retries", "9"),
    ("x-envoy-upstream-rq-timeout-ms", "60000"),
    ("x-envoy-upstream-rq-per-try-timeout-ms", "60000"),
    ("x-envoy-upstream-rq-timeout-alt-response", "1"),
    ("x-envoy-expected-rq-timeout-ms", "60000"),
    ("x-envoy-hedge-on-per-try-timeout", "true"),
    ("x-envoy-retriable-status-codes", "500"),
    ("x-envoy-original-path", "/other"),
    ("x-envoy-internal", "true"),
    ("x-envoy-anything", "1"),
)


@pytest.mark.parametrize("discovery", Discovery)
@pytest.mark.parametrize("forwarded", [(), (("x-forwarded-for", "10.1.2.3"),)])
def test_no_client_commands_envoy(
    discovery: Discovery, forwarded: tuple[tuple[str, str], ...], serve: ServeHttp, echoes: dict[str, Echo]
) -> None:
    """Also none of this host or of a private network: a request goes once, within its time, without these headers."""
    client = serve(HttpRoute(Match(), Forward(WEB.targets, timeout=200)), discovery=discovery)
    assert client.ask("/status/500", method="POST", headers=(*COMMANDS, *forwarded)).status == 500
    assert echoes["a"].requested == ["/status/500"]
    assert client.ask("/slow", headers=COMMANDS).status == 504
    assert not [name for name in client.ask(headers=COMMANDS).observed["headers"] if name.startswith("x-envoy")]


@pytest.mark.parametrize(
    ("sent", "observed"), [((), "127.0.0.1"), ((("x-forwarded-for", "1.2.3.4"),), r"1\.2\.3\.4, ?127\.0\.0\.1")]
)
def test_backends_get_the_client_as_it_connected(
    sent: tuple[tuple[str, str], ...], observed: str, serve: ServeHttp
) -> None:
    """Last in X-Forwarded-For, also one of loopback; before it is what the client says itself."""
    headers = serve(HttpRoute(Match(), WEB)).ask(headers=(*sent, ("x_forwarded_for", "9.9.9.9"))).observed["headers"]
    assert re.fullmatch(observed, headers["x-forwarded-for"])
    assert not [name for name in headers if "_" in name]


def test_client_does_not_say_by_which_scheme_it_came(serve: ServeHttp) -> None:
    """X-Forwarded-Proto is what Envoy has seen, whatever the client says in any spelling."""
    sent = [("x-forwarded-proto", "https"), ("x_forwarded_proto", "https"), ("x-forwarded_proto", "https")]
    headers = serve(HttpRoute(Match(), WEB)).ask(headers=sent).observed["headers"]
    assert {name: value for name, value in headers.items() if "proto" in name} == {"x-forwarded-proto": "http"}


@pytest.mark.parametrize("by_share", [True, False])
def test_header_that_a_route_decides_has_no_double(by_share: bool, serve: ServeHttp) -> None:  # noqa: FBT001 - a case
    """One that is set, added or removed, of a route or of a share of it; other headers with `_` pass."""
    changes = HeaderChanges(set=(("X-User-Id", "route"),), add=(("x-also", "route"),), remove=("x-role",))
    shared = Forward((Target(UpstreamName("web"), request=changes),))
    client = serve(HttpRoute(Match(), shared) if by_share else HttpRoute(Match(), WEB, request=changes))
    spoofed = [f"x{first}user{second}id" for first, second in product("-_", "-_")]
    sent = [(name, "client") for name in (*spoofed, "X_ROLE", "x-role", "x_also", "api_key")]
    headers = client.ask(headers=sent).observed["headers"]
    assert {name: value for name, value in headers.items() if name.startswith(("x-user", "x-al", "x-ro", "api"))} == {
        "x-user-id": "route",
        "x-also": "route",
        "api_key": "client",
    }
    assert not [name for name in headers if name.startswith("x_") or name == "x-user_id"]


@given(st.from_regex(r"[a-z0-9.]{1,3}([-_][a-z0-9.]{1,3}){0,6}", fullmatch=True), st.data())
def test_every_spelling_of_a_decided_header_but_its_own_is_removed(name: str, data: st.DataObject) -> None:
    """Whatever hyphens and underscores it has; a name with other letters is another one."""
    expressions = re.findall(r'"regex": "([^"]*)"', json.dumps(of_route([name])).replace("\\\\", "\\"))
    spelling = "".join(data.draw(st.sampled_from("-_")) if letter in "-_" else letter for letter in name)
    assert any(re.fullmatch(expression, spelling) for expression in expressions) == (spelling != name)
    assert not any(re.fullmatch(expression, f"{spelling}x") for expression in expressions)


_OF_A_NAME = str.maketrans("ABCDEFGH", "--__a0.z")
_LONG = st.builds(
    str.__add__,
    st.sampled_from("az09."),
    st.text("ABCDEFGH", min_size=MAX_SEPARATORS + 1, max_size=160).map(lambda letters: letters.translate(_OF_A_NAME)),
).filter(lambda name: name.count("-") + name.count("_") > MAX_SEPARATORS)
"""Drawn as one text, as is a spelling of it."""


@given(_LONG, st.data())
def test_every_spelling_of_a_name_of_many_separators_is_removed(name: str, data: st.DataObject) -> None:
    """Its own as well, by a single expression."""
    (expression,) = re.findall(r'"regex": "([^"]*)"', json.dumps(of_route([name])).replace("\\\\", "\\"))
    separators = data.draw(st.text("-_", min_size=len(name), max_size=len(name)))
    spelling = "".join(other if letter in "-_" else letter for letter, other in zip(name, separators, strict=True))
    assert re.fullmatch(expression, spelling)
    assert not re.fullmatch(expression, f"{spelling}x")


@given(st.lists(st.text("a-_.", min_size=1, max_size=256), max_size=16))
def test_size_of_what_removes_spellings_grows_with_names_and_their_lengths(names: list[str]) -> None:
    """Whatever separators they have; not with the square of a length."""
    one = len(json.dumps(of_route(["a-a"])))
    rendered = len(json.dumps(of_route(names)))
    assert rendered <= one * (1 + len(names)) * (1 + MAX_SEPARATORS) + 4 * MAX_SEPARATORS * sum(map(len, names))


def test_metadata_with_underscores_reaches_a_grpc_backend(start: Start, block: Block) -> None:
    """GRPC's own names; but for Envoy's commands."""
    with grpc_server(block[1]) as backend:
        speaks = HttpBackends(Speaks.HTTP2)
        web = Upstream(UpstreamName("web"), Protocol.TCP, (backend,), http=speaks)
        start(rendering(block[9], [HttpRoute(Match(GrpcMethod("test.Echo", "")), WEB)], [web]))
        with grpc.insecure_channel(f"{block[9]}:8080") as channel:
            call = channel.unary_unary("/test.Echo/Say", request_serializer=None, response_deserializer=None)
            metadata = (("user_id", "7"), ("x-envoy-upstream-rq-timeout-ms", "1"))
            assert call(b"hello", metadata=metadata, wait_for_ready=True, timeout=10) == b"hello"


@pytest.mark.parametrize(("host", "answered"), [("Host: a.test\r\n", "a.test"), ("", "")])
def test_client_of_http_1_0_is_answered(host: str, answered: str, serve: ServeHttp, block: Block) -> None:
    """One that names no host means the address that it uses: a route for every host answers."""
    serve(VirtualHost(("a.test" if answered else "*",), (HttpRoute(Match(), WEB),)))
    with socket.create_connection((block[9], 8080), 10) as client:
        client.sendall(f"GET / HTTP/1.0\r\n{host}\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.0 200")
    assert f'"host": "{answered or f"{block[9]}:8080"}"' in answer
