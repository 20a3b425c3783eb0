"""Backends that tell what reached them, and clients that ask by HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self, cast

import grpc

from locallb.envoy import Rendered, render
from locallb.model.http_routes import Forward, HttpRoute, PathKind, PathMatch, Target
from locallb.model.http_serving import ANY, Chain, HttpBackends, HttpListener, HttpRoutes, VirtualHost
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, Proxy, Upstream
from tests.support.envoy_traffic import TIMEOUT
from tests.support.servers import QuietHandler


class Echo:
    """A backend: it answers with what it was asked, as JSON.

    `/status/<n>` is answered with that status, `/fails/<k>` with 503 until it was asked k times, `/slow` after 0.6 s,
    `/endless` with a body that goes on.
    """

    def __init__(self, name: str, address: str, context: ssl.SSLContext | None = None) -> None:
        self.name = name
        self.requested: list[str] = []
        self._server = _EchoServer((address, 0), _Handler)
        self._server.echo = self
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.backend = Backend.at(ip_address(address), self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _EchoServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    echo: Echo


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def version_string(self) -> str:
        return "echo"

    def do_GET(self) -> None:
        echo = cast("_EchoServer", self.server).echo
        echo.requested.append(self.path)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("upgrade") == "websocket":
            self._upgrade()
            return
        if self.path == "/endless":
            self._go_on()
            return
        time.sleep(0.6 if self.path == "/slow" else 0)
        reported = {"by": echo.name, "method": self.command, "path": self.path, "headers": self._headers()}
        body = json.dumps(reported).encode()
        self.send_response(self._status(echo))
        for header, value in (("content-length", str(len(body))), ("x-from", echo.name)):
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_PUT = do_HEAD = do_OPTIONS = do_DELETE = do_GET

    def _headers(self) -> Mapping[str, str]:
        return {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}

    def _status(self, echo: Echo) -> int:
        kind, _, number = self.path[1:].partition("/")
        if kind == "fails":
            return 503 if echo.requested.count(self.path) <= int(number) else 200
        return int(number) if kind == "status" else 200

    def _go_on(self) -> None:
        """Send a body piece by piece, until nobody takes it."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b"1\r\n.\r\n")
                time.sleep(0.02)

    def _upgrade(self) -> None:
        self.send_response(101)
        self.send_header("connection", "upgrade")
        self.send_header("upgrade", "websocket")
        self.end_headers()
        while data := self.connection.recv(4096):
            self.connection.sendall(data)


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def observed(self) -> Any:  # noqa: ANN401 - JSON of `Echo`
        return json.loads(self.body)


class Client:
    """Connections to one place that are kept; `made` counts them."""

    def __init__(self, address: str, port: int = 8080, authorities: str = "") -> None:
        self._place = address, port
        self._context = ssl.create_default_context(cafile=authorities) if authorities else None
        self._connection: http.client.HTTPConnection | None = None
        self.made = 0

    def ask(
        self, path: str = "/", host: str = "a.test", method: str = "GET", headers: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        """Ask, on the connection that is there or on a new one."""
        if self._connection is None:
            self._connection = self._connected(host)
            self.made += 1
        connection = self._connection
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in (("host", host), *headers):
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        reported = Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
        )
        if response.will_close:
            connection.close()
            self._connection = None
        return reported

    def _connected(self, host: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self._place, timeout=TIMEOUT)
        connection.connect()
        if self._context:
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=host)
        return connection

    def close(self) -> None:
        if self._connection:
            self._connection.close()


@contextmanager
def grpc_server(address: str) -> Iterator[Backend]:
    """Serve `test.Echo/Say` and `/Stream`: what is sent comes back, once or three times."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    handlers = {
        "Say": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
        "Stream": grpc.unary_stream_rpc_method_handler(lambda request, _: iter([request] * 3)),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port(f"{address}:0")
    server.start()
    try:
        yield Backend.at(ip_address(address), port)
    finally:
        server.stop(None).wait()


def upstream(name: str, *echoes: Echo, speaks: HttpBackends | None = None) -> Upstream:
    """Describe backends that are asked by HTTP."""
    return Upstream(
        UpstreamName(name), Protocol.TCP, tuple(echo.backend for echo in echoes), http=speaks or HttpBackends()
    )


def rendering(
    address: str,
    chains: Sequence[Chain] | Sequence[HttpRoute],
    upstreams: Sequence[Upstream] = (),
    discovery: Discovery = Discovery.EDS,
) -> Rendered:
    """Render a proxy that serves chains, or routes of every host by plain HTTP, on port 8080."""
    routes = tuple(each for each in chains if isinstance(each, HttpRoute))
    served = tuple(each for each in chains if isinstance(each, Chain))
    plain = Chain(HttpRoutes((VirtualHost((ANY,), routes),)))
    listener = HttpListener(ip_address(address), 8080, served or (plain,))
    name, identity = ProxyName("test/gateways/default/web"), ProxyId("0123456789ab")
    proxy = Proxy(name, identity, discovery, (), tuple(upstreams), http=(listener,), may_serve_http=True)
    return render(proxy)


WEB = Forward((Target(UpstreamName("web")),))


def prefix(path: str) -> PathMatch:
    return PathMatch(PathKind.PREFIX, path)
