"""Names below `localhost`, from `up` to `destroy`, by real Envoys, in curl and in Chromium."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
import pytest

from locallb.certificates import store, trust_stores
from tests.support.browser import chromium, running
from tests.support.certificates import certutil
from tests.support.environment import lent
from tests.support.gateway_objects import backend as to
from tests.support.gateway_objects import gateway, gateway_class, parent, route, rule
from tests.support.http_traffic import Echo, grpc_server
from tests.support.manifests import node, service
from tests.support.servers import QuietHandler, in_thread
from tests.support.stages import Stage, stage

pytestmark = pytest.mark.envoy
HERE = "127.0.0.1"


class _Echo(QuietHandler):
    """Answers with the host that was asked for, and the length of what was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length", 0))
        text = f"host={self.headers['host']} sent={len(self.rfile.read(length))}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET


@pytest.fixture
def echo() -> Iterator[int]:
    """Return the port of an HTTP server."""
    with in_thread(ThreadingHTTPServer((HERE, 0), _Echo)) as server:
        yield server.server_port


def web(port: int, name: str = "web") -> dict[str, Any]:
    return service(name, {"name": "http", "port": 8080, "nodePort": port})


def prepared(play: Stage, port: int, **settings: object) -> None:
    play.configure(localhost=True, **settings)
    play.write("nodes.yaml", node())
    play.write("web.yaml", web(port))


def served(play: Stage) -> int:
    """Return the port of the names."""
    (row,) = (row for row in play.run("status", "--json").json if row["kind"] == "localhost")
    assert row["state"] == "serving", row
    return int(row["ports"][0].get("mapped", row["ports"][0]["port"]))


def ask(port: int, host: str, body: bytes | None = None) -> tuple[int, str]:
    """Send a request with exactly this host."""
    with closing(http.client.HTTPConnection(HERE, port, timeout=10)) as connection:
        connection.putrequest("POST" if body else "GET", "/", skip_host=True)
        connection.putheader("Host", host)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture
def play() -> Iterator[Stage]:
    with stage() as made:
        yield made


def test_a_service_is_found_by_its_name(play: Stage, echo: int) -> None:
    """However its host is written; what else is asked for gets one sentence or an error, and no backend."""
    prepared(play, echo)
    play.up()
    port = served(play)
    for host in (
        "web.n.localhost",
        f"WEB.n.LocalHost:{port}",
        "web.n.localhost.",
        "web.n.c.localhost",
        "web.n.localhost:1",
    ):
        assert ask(port, host)[0] == 200, host
    assert ask(port, f"web.n.localhost:{port}") == (200, f"host=web.n.localhost:{port} sent=0")
    assert ask(port, "web.n.localhost", b"x" * 3_000_000)[1].endswith("sent=3000000")
    others = (
        "localhost",
        HERE,
        "web.localhost",
        "x.web.n.localhost",
        "evil.test",
        "a" * 300,
        "web.n.localhost.evil.test",
    )
    for host in others:
        status, text = ask(port, host)
        assert (status, "serves no Service" in text, "web.n" in text) == (404, True, False), host
    for rubbish in ("", "we b", "a/b", "web.n.localhost@x", "web.n.localhost\\x"):
        status, text = ask(port, rubbish)
        assert status in {400, 404}, rubbish
        assert "host=" not in text
    url = f"http://web.n.localhost{'' if port == 80 else f':{port}'}/"
    assert play.run("url", "web").out == f"{url}\n"
    if curl := shutil.which("curl"):
        done = subprocess.run((curl, "-sS", url), capture_output=True, text=True, check=False, timeout=30)
        assert done.stdout.startswith("host=web.n.localhost"), done.stderr
    assert play.run("destroy", "--yes").code == 0
    with pytest.raises(OSError, match="refused"):
        ask(port, "web.n.localhost")


def test_websockets_and_grpc_pass_by_name(play: Stage) -> None:
    """An upgrade both ways; HTTP/2 from the client to a backend of h2c."""
    with ExitStack() as stack:
        upgrading, calls = stack.enter_context(Echo("ws", HERE)), stack.enter_context(grpc_server(HERE))
        ports = {"name": "grpc", "port": 9000, "nodePort": calls.port, "appProtocol": "kubernetes.io/h2c"}
        prepared(play, upgrading.backend.port)
        play.write("calls.yaml", service("calls", ports))
        play.up()
        at = HERE, served(play)
        with socket.create_connection(at, 10) as client:
            head = b"GET / HTTP/1.1\r\nhost: web.n.localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            client.sendall(head)
            assert client.recv(4096).startswith(b"HTTP/1.1 101")
            client.sendall(b"hello")
            assert client.recv(4096).endswith(b"hello")
        authority = (("grpc.default_authority", "calls.n.localhost"),)
        with grpc.insecure_channel(f"{at[0]}:{at[1]}", authority) as channel:
            assert channel.unary_unary("/test.Echo/Say", None, None)(b"hello", timeout=10) == b"hello"
            assert [*channel.unary_stream("/test.Echo/Stream", None, None)(b"again", timeout=10)] == [b"again"] * 3


def test_a_browser_finds_services_and_routes(play: Stage, echo: int) -> None:
    """Chromium resolves the names by itself, by whichever family it likes first."""
    prepared(play, echo)
    routes = route(
        rule("/", backends=[to("web", 8080)]), hostnames=["app.localhost"], parentRefs=[parent()], namespace="n"
    )
    objects = gateway_class(), gateway(metadata={"namespace": "n"}), routes
    play.write("gateway.yaml", *objects)
    play.up()
    port = served(play)
    with running() as browser:
        for name in ("web.n.localhost", "app.localhost"):
            text = browser.visit(f"http://{name}:{port}/", 400).evaluate("document.body.innerText")
            assert text.startswith(f"host={name}")


def test_https_is_served_where_the_stack_has_its_own_authority(
    play: Stage, echo: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a certificate that clients who trust it believe, for each family."""
    certutil()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(trust_stores, "ANCHORS", ())
    prepared(play, echo, certificates="local")
    with patch.dict(os.environ, XDG_DATA_HOME=str(play.root / "d")):
        play.up()
        (row,) = (row for row in play.run("status", "--json").json if row["kind"] == "localhost")
        trusted = play.root / "d" / "local-lb" / "ca" / store.CERTIFICATE
        context = ssl.create_default_context(cafile=str(trusted))
        number = next(each.get("mapped", 443) for each in row["ports"] if each["port"] == 443)
        for at in row["addresses"]:
            with (
                socket.create_connection((at, number), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname="web.n.localhost") as client,
            ):
                client.sendall(b"GET / HTTP/1.1\r\nhost: web.n.localhost\r\nconnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: client.recv(4096), b""))
            assert answer.endswith(b"host=web.n.localhost sent=0")
        assert play.run("ca", "trust", "--yes").code == 0
        assert "host=web.n.localhost" in _page(f"https://web.n.localhost:{number}/", tmp_path)


def _page(url: str, home: Path) -> str:
    """Return what Chromium shows to the user of this home directory."""
    with tempfile.TemporaryDirectory(prefix="llb-browser-", ignore_cleanup_errors=True) as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
        command = [chromium(), *flags, f"--user-data-dir={profile}", "--dump-dom", url]
        places = {"HOME": str(home), "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile}
        environment = {name: text for name, text in os.environ.items() if name != "XDG_DATA_HOME"} | places
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment).stdout


def test_two_stacks_have_two_ports(echo: int) -> None:
    """Without a common ledger, as two users have none; each keeps its own."""
    with ExitStack() as stages:
        plays = [stages.enter_context(stage()) for _ in range(2)]
        found = []
        for play in plays:
            with lent(play.homes):
                prepared(play, echo)
                play.up()
                found.append(served(play))
        assert len(set(found)) == 2
        for play, port in zip(plays, found, strict=True):
            with lent(play.homes):
                play.up()
                assert served(play) == port
            assert ask(port, "web.n.localhost")[0] == 200


def test_a_port_that_another_program_took_is_waited_for(play: Stage, echo: int) -> None:
    """The state says which one has it; nothing else is chosen, and it serves again once that is gone."""
    prepared(play, echo)
    play.up()
    port = served(play)
    proxy = next(pid for key, pid in play.pids().items() if key == "/localhost")
    os.kill(proxy, 9)
    with closing(_taking(port)):
        play.run("up", "--yes")
        (row,) = (row for row in play.run("status", "--json").json if row["kind"] == "localhost")
        assert row["state"] != "serving"
        assert f"({os.getpid()})" in row["message"]
        assert str(port) in row["message"]
    play.up()
    assert served(play) == port


def _taking(port: int) -> socket.socket:
    """Take a port as another program, as soon as it is free."""
    while True:
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HERE, port))
            taken.listen()
        except OSError:
            taken.close()
            time.sleep(0.05)
        else:
            return taken
