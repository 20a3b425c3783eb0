"""HTTP/1.1, HTTP/2, gRPC, WebSocket and TLS through a real Envoy: terminated, passed through, verified."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from locallb.envoy import Rendered
from locallb.model.http_routes import DirectResponse, Forward, GrpcMethod, HttpRoute, Match, Target
from locallb.model.http_serving import (
    ANY,
    BackendTls,
    Chain,
    ClientValidation,
    HttpBackends,
    HttpRoutes,
    Speaks,
    TcpForward,
    Termination,
    VirtualHost,
)
from locallb.model.identities import Protocol, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Upstream
from tests.support.certificates import Authority, Pair
from tests.support.envoy import Envoy
from tests.support.envoy_traffic import TIMEOUT, Block
from tests.support.http_traffic import WEB, Echo, grpc_server, rendering, upstream

pytestmark = pytest.mark.envoy


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ExitStack]:
    """Keep what runs until the test ends."""
    del tmp_path
    with ExitStack() as stack:
        yield stack


def start(running: ExitStack, directory: Path, rendered: Rendered, *pairs: tuple[str, Pair]) -> Envoy:
    """Start an Envoy that has these certificates beside its files, by the names of their Secrets."""
    directory = directory / "envoy"
    directory.mkdir()
    for name, pair in pairs:
        pair.put(directory, name)
    envoy = running.enter_context(Envoy(directory, rendered))
    envoy.wait(rendered)
    return envoy


def answering(text: str, *names: str, pair: tuple[str, Pair], clients: ClientValidation | None = None) -> Chain:
    """Make a chain that terminates TLS and answers with a text."""
    routes = HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), DirectResponse(200, text)),)),))
    return Chain(routes, names, Termination((pair[1].reference(pair[0]),), clients))


def forwarding(*names: str, pair: tuple[str, Pair]) -> Chain:
    """Make a chain that terminates TLS and forwards to web."""
    routes = HttpRoutes((VirtualHost((ANY,), (HttpRoute(Match(), WEB),)),))
    return Chain(routes, names, Termination((pair[1].reference(pair[0]),)))


CUT = {"RemoteDisconnected", "ConnectionResetError", "SSLEOFError"}
"""A connection that ends without an answer: after the request, in the midst of it, and before it."""


def requested(address: str, name: str, context: ssl.SSLContext) -> str:
    """Ask by HTTPS for a name; return what is answered, or the error's name."""
    try:
        with (
            socket.create_connection((address, 8080), TIMEOUT) as plain,
            context.wrap_socket(plain, server_hostname=name) as client,
        ):
            client.sendall(f"GET / HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n".encode())
            response = http.client.HTTPResponse(client)
            response.begin()
            return response.read().decode()
    except OSError as error:
        return type(error).__name__


def trusting(authority: Authority, shown: Pair | None = None) -> ssl.SSLContext:
    """Make a client's context, with a certificate of its own where it has one."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    if shown:
        context.load_cert_chain(shown.chain, shown.key)
    return context


def test_name_without_a_backend_gets_no_certificate_of_another(
    running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """A chain that leads nowhere closes the connection before any handshake; a broader name goes on being served."""
    pair = ("a", authority.sign("DNS:*.a.test"))
    chains = [answering("a", "*.a.test", pair=pair), Chain(TcpForward(()), ("closed.a.test",), by_tls=True)]
    start(running, tmp_path, rendering(block[9], chains), pair)
    context = trusting(authority)
    assert requested(block[9], "open.a.test", context) == "a"
    assert requested(block[9], "closed.a.test", context) in CUT


@pytest.mark.parametrize("discovery", list(Discovery))
def test_names_choose_certificates_and_routes(
    discovery: Discovery, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """The most specific name wins; what is passed through is the backend's own TLS; other names are turned away."""
    a, b = ("a", authority.sign("DNS:a.test")), ("b", authority.sign("DNS:*.b.test"))
    backend = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = authority.sign("DNS:through.test", "DNS:x.through.test")
    backend.load_cert_chain(own.chain, own.key)
    secure = running.enter_context(Echo("secure", block[1], backend))
    plain = running.enter_context(Echo("plain", block[2]))
    terminated = Termination((a[1].reference("a"),))
    chains = [
        answering("a", "a.test", pair=a),
        answering("b", "*.b.test", pair=b),
        Chain(
            TcpForward((Target(UpstreamName("web")), Target(UpstreamName("other"), 0))),
            ("through.test", "*.through.test"),
        ),
        Chain(TcpForward((Target(UpstreamName("plain")),)), ("tcp.a.test",), terminated),
        Chain(TcpForward((Target(UpstreamName("again")),)), ("again.test",), terminated),
        Chain(TcpForward((Target(UpstreamName("wrong")),)), ("wrong.test",), terminated),
        Chain(TcpForward(()), ("nobody.test",)),
    ]
    tcp = [
        Upstream(UpstreamName(name), Protocol.TCP, (echo.backend,))
        for name, echo in (("web", secure), ("plain", plain))
    ]
    for name, theirs in (("again", "through.test"), ("wrong", "else.test")):
        tls = BackendTls(theirs, authority.own.pem)
        tcp.append(Upstream(UpstreamName(name), Protocol.TCP, (secure.backend,), bytes_by=tls))
    start(running, tmp_path, rendering(block[9], chains, tcp, discovery), a, b)
    trusted, anyone = trusting(authority), ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    assert {name: requested(block[9], name, trusted) for name in ("a.test", "x.b.test", "y.x.b.test")} == {
        "a.test": "a",
        "x.b.test": "b",
        "y.x.b.test": "SSLCertVerificationError",
    }
    assert '"by": "secure"' in requested(block[9], "x.through.test", trusted)
    assert '"by": "plain"' in requested(block[9], "tcp.a.test", anyone)
    assert '"by": "secure"' in requested(block[9], "again.test", anyone)
    assert requested(block[9], "wrong.test", anyone) in CUT
    refused = {name: requested(block[9], name, anyone) for name in ("nobody.test", "c.test")}
    assert set(refused.values()) <= {"SSLEOFError", "ConnectionResetError", "SSLZeroReturnError"}, refused


@pytest.mark.parametrize("discovery", list(Discovery))
def test_client_certificates_are_required_or_optional(
    discovery: Discovery, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """One that the authority signed; where it is optional, none or another is let in as well."""
    pair, stranger = ("a", authority.sign("DNS:a.test", "DNS:b.test")), Authority(tmp_path / "stranger", "stranger")
    must, may = (ClientValidation(authority.own.pem, optional=optional) for optional in (False, True))
    chains = [answering("a", "a.test", pair=pair, clients=must), answering("b", "b.test", pair=pair, clients=may)]
    start(running, tmp_path, rendering(block[9], chains, (), discovery), pair)
    shown = (authority.sign("DNS:client"), stranger.sign("DNS:client"), None)
    by_name = {
        name: [requested(block[9], name, trusting(authority, own)) for own in shown] for name in ("a.test", "b.test")
    }
    assert by_name["b.test"] == ["b", "b", "b"]
    assert by_name["a.test"][0] == "a"
    assert "a" not in by_name["a.test"][1:]


@pytest.mark.parametrize("discovery", list(Discovery))
@pytest.mark.parametrize(
    ("names", "server_name", "status"),
    [
        ((), "backend.test", 200),
        ((), "else.test", 503),
        (("other.test",), "backend.test", 503),
        (("*.backend.test", "backend.test"), "anything.test", 200),
    ],
)
def test_backend_certificates_are_verified(  # noqa: PLR0913, PLR0917 - a table and what it needs
    discovery: Discovery,
    names: tuple[str, ...],
    server_name: str,
    status: int,
    running: ExitStack,
    tmp_path: Path,
    block: Block,
) -> None:
    """By SNI's name, or by the names that are given; the proxy shows its own certificate to those that want one."""
    authority = Authority(tmp_path / "authority")
    own, mine = authority.sign("DNS:backend.test"), authority.sign("DNS:proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.chain, own.key)
    context.load_verify_locations(authority.own.chain)
    context.verify_mode = ssl.CERT_REQUIRED
    echo = running.enter_context(Echo("secure", block[1], context))
    tls = BackendTls(server_name, authority.own.pem, names, client=mine.reference("mine"))
    web = upstream("web", echo, speaks=HttpBackends(tls=tls))
    start(running, tmp_path, rendering(block[9], [HttpRoute(Match(), WEB)], [web], discovery), ("mine", mine))
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=TIMEOUT)) as client:
        client.request("GET", "/")
        assert client.getresponse().status == status


DAY = timedelta(days=1)
dated = pytest.mark.parametrize(
    ("begins", "ends"), [(-2 * DAY, -DAY), (DAY, 2 * DAY)], ids=["expired", "not valid yet"]
)


@dated
def test_a_served_certificate_is_served_whatever_its_dates(  # noqa: PLR0913, PLR0917 - a table and what it needs
    begins: timedelta, ends: timedelta, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """It is for clients to refuse it: those that check dates do."""
    pair = ("a", authority.sign_for(begins, ends, "DNS:a.test"))
    start(running, tmp_path, rendering(block[9], [answering("a", "a.test", pair=pair)]), pair)
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    assert requested(block[9], "a.test", careless) == "a"
    assert requested(block[9], "a.test", trusting(authority)) == "SSLCertVerificationError"


@dated
def test_dates_of_clients_certificates_are_checked_where_one_is_demanded(  # noqa: PLR0913, PLR0917 - as above
    begins: timedelta, ends: timedelta, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """Where it is optional, one of other dates is let in as one that nobody trusts is."""
    pair, shown = ("a", authority.sign("DNS:a.test", "DNS:b.test")), authority.sign_for(begins, ends, "DNS:client")
    must, may = (ClientValidation(authority.own.pem, optional=optional) for optional in (False, True))
    chains = [answering("a", "a.test", pair=pair, clients=must), answering("b", "b.test", pair=pair, clients=may)]
    start(running, tmp_path, rendering(block[9], chains), pair)
    assert requested(block[9], "a.test", trusting(authority, authority.sign("DNS:client"))) == "a"
    assert requested(block[9], "a.test", trusting(authority, shown)) not in {"a", "SSLCertVerificationError"}
    assert requested(block[9], "b.test", trusting(authority, shown)) == "b"


@dated
def test_dates_of_backends_certificates_are_checked(  # noqa: PLR0913, PLR0917 - as above
    begins: timedelta, ends: timedelta, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """Requests to such a backend are answered with 503."""
    answers = []
    for number, own in enumerate(
        (authority.sign("DNS:backend.test"), authority.sign_for(begins, ends, "DNS:backend.test"))
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.chain, own.key)
        echo = running.enter_context(Echo("secure", block[1 + number], context))
        web = upstream("web", echo, speaks=HttpBackends(tls=BackendTls("backend.test", authority.own.pem)))
        directory = tmp_path / str(number)
        directory.mkdir()
        start(running, directory, rendering(block[8 + number], [HttpRoute(Match(), WEB)], [web]))
        with closing(http.client.HTTPConnection(block[8 + number], 8080, timeout=TIMEOUT)) as client:
            client.request("GET", "/")
            answers.append(client.getresponse().status)
    assert answers == [200, 503]


def test_websocket_upgrades_pass_both_ways(running: ExitStack, tmp_path: Path, block: Block) -> None:
    """An upgrade reaches the backend, and then bytes go both ways."""
    echo = running.enter_context(Echo("a", block[1]))
    start(running, tmp_path, rendering(block[9], [HttpRoute(Match(), WEB)], [upstream("web", echo)]))
    with socket.create_connection((block[9], 8080), TIMEOUT) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        head = client.recv(4096)
        assert head.startswith(b"HTTP/1.1 101")
        client.sendall(b"hello")
        assert (head.partition(b"\r\n\r\n")[2] + client.recv(4096)).endswith(b"hello")


@pytest.mark.parametrize("limited", [Forward(WEB.targets, timeout=2000), Forward(WEB.targets, attempt_timeout=2000)])
def test_a_websocket_outlives_the_timeouts_of_its_request(
    limited: Forward, running: ExitStack, tmp_path: Path, block: Block
) -> None:
    """HTTPRouteTimeouts: the specification leaves open what ends upgraded connections; here, neither of them does."""
    echo = running.enter_context(Echo("a", block[1]))
    start(running, tmp_path, rendering(block[9], [HttpRoute(Match(), limited)], [upstream("web", echo)]))
    with socket.create_connection((block[9], 8080), TIMEOUT) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
        time.sleep(2.5)
        client.sendall(b"hello")
        assert client.recv(4096) == b"hello"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_clients_may_use_http2_with_and_without_tls(
    scheme: str, running: ExitStack, tmp_path: Path, block: Block, authority: Authority
) -> None:
    """By prior knowledge without TLS, by ALPN with it; the backend is asked by HTTP/1.1."""
    echo, pair = running.enter_context(Echo("a", block[1])), ("a", authority.sign("DNS:a.test"))
    chains: Sequence[Chain | HttpRoute] = (
        [HttpRoute(Match(), WEB)] if scheme == "http" else [forwarding("a.test", pair=pair)]
    )
    start(running, tmp_path, rendering(block[9], chains, [upstream("web", echo)]), pair)  # type: ignore[arg-type]
    how = ["--http2-prior-knowledge"] if scheme == "http" else ["--http2", "--cacert", str(authority.own.chain)]
    reported = ["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_version} %{response_code}"]
    command = ["curl", *how, *reported, "--resolve", f"a.test:8080:{block[9]}", f"{scheme}://a.test:8080/"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "2 200"


def test_grpc_calls_are_routed_by_service_and_method(running: ExitStack, tmp_path: Path, block: Block) -> None:
    """Calls and streams, by service and method; what has no route is unimplemented, without endpoints unavailable."""
    backend = running.enter_context(grpc_server(block[1]))
    http2 = HttpBackends(Speaks.HTTP2)
    upstreams = [
        Upstream(UpstreamName("web"), Protocol.TCP, (backend,), http=http2),
        Upstream(UpstreamName("empty"), Protocol.TCP, (), http=http2),
    ]
    routes = [
        HttpRoute(Match(GrpcMethod("test.Echo", "Say")), WEB),
        HttpRoute(Match(GrpcMethod("test.Echo", "S.*", regex=True)), WEB),
        HttpRoute(Match(GrpcMethod("test.Empty")), Forward((Target(UpstreamName("empty")),))),
    ]
    start(running, tmp_path, rendering(block[9], routes, upstreams))
    with grpc.insecure_channel(f"{block[9]}:8080") as channel:
        assert channel.unary_unary("/test.Echo/Say", None, None)(b"x", timeout=TIMEOUT) == b"x"
        assert list(channel.unary_stream("/test.Echo/Stream", None, None)(b"x", timeout=TIMEOUT)) == [b"x"] * 3
        codes = {}
        for method in ("/test.Empty/Say", "/test.Other/Say"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method, None, None)(b"x", timeout=TIMEOUT)
            codes[method] = caught.value.code()
    assert codes == {
        "/test.Empty/Say": grpc.StatusCode.UNAVAILABLE,
        "/test.Other/Say": grpc.StatusCode.UNIMPLEMENTED,
    }
