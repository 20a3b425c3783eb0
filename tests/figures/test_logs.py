"""`locallb logs` tells of each connection and request that clients count by themselves, and only while it runs."""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

from locallb.envoy.listeners import GATE, SOCKET
from tests.support.backends import backends
from tests.support.gateway_clients import service as node_port_service
from tests.support.gateway_objects import gateway, gateway_class, listener, route
from tests.support.http_traffic import Client, Echo
from tests.support.log_reading import Logs, logs
from tests.support.manifests import node, port, service
from tests.support.schemas import mistakes
from tests.support.stages import CHECKOUT, Stage, stage
from tests.support.watching import eventually

pytestmark = pytest.mark.envoy

COUNT = 100
PORT = 8080
SCHEMA = json.loads((CHECKOUT / "docs/schemas/logs.schema.json").read_text())


def speak(address: str) -> str:
    """Send a line on a connection of its own; return where it came from."""
    with socket.create_connection((address, 8080), 10) as client, client.makefile("rb") as answers:
        client.sendall(b"one\n")
        assert answers.readline() == b"b: one\n"
        host, number = client.getsockname()[:2]
        return f"{host}:{number}"


def is_heard(running: Logs, address: str) -> bool:
    """Speak, and tell whether the command has said anything."""
    speak(address)
    assert running.process.poll() is None, running.file.read_text()
    return bool(running.file.read_text())


def check(play: Stage, addresses: dict[str, str], number: int) -> None:
    """Follow the log of one of two Services, speak with both, and end by a signal."""
    with logs(play, "n/web", "--json") as running:
        eventually(lambda: is_heard(running, addresses["n/web"]))
        mine = [speak(addresses["n/web"]) for _ in range(COUNT)]
        speak(addresses["n/other"])
        eventually(lambda: {*mine} <= {line["client"] for line in running.lines()})
        refused = play.spawn("logs", "n/web")
        assert (refused.code, "reads the proxy in" in refused.err) == (1, True)
        reported = [line for line in running.lines() if line["client"] in mine]
        assert len(reported) == COUNT
        assert {(line["name"], line["bytesIn"], line["bytesOut"]) for line in reported} == {("web", 4, 7)}
        assert {line["name"] for line in running.lines()} == {"web"}
        assert running.end(number) == (0 if number == signal.SIGTERM else -number)


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_each_connection_is_a_line_and_none_is_cut(proxies: str) -> None:
    """Whoever else has the proxy; the key is set, and the command begins and is killed, beside an open connection."""
    with stage() as play, backends() as make:
        backend = make("b")
        play.configure(proxies=proxies)
        play.write("s.yaml", node(), *(service(name, port(8080, backend.port)) for name in ("web", "other")))
        play.up()
        addresses, pids = play.addresses(), play.pids()
        with socket.create_connection((addresses["n/web"], 8080), 10) as retained, retained.makefile("rb") as answers:
            assert "local-lb:accessLogs" in play.run("logs").err
            play.configure(proxies=proxies, accessLogs=True)
            play.up()
            for number in (signal.SIGKILL, signal.SIGTERM):
                check(play, addresses, number)
            (directory,) = {path.parent for path in (play.state_home / "proxies").glob(f"*/{GATE}") if _read(path)}
            assert not (directory / SOCKET).exists()
            retained.sendall(b"two\n")
            assert answers.readline() == b"b: two\n"
        assert play.pids() == pids
        assert play.run("up", "--yes", "--expect-no-changes").code == 0


def _read(gate: Path) -> bool:
    return (gate.parent / "logs.lock").exists()


def test_each_request_is_a_line() -> None:
    """With what became of it, and without what follows a question mark."""
    with stage() as play, Echo("a", "127.0.0.1") as echo:
        play.configure(accessLogs=True)
        play.write("n.yaml", node(), node_port_service("api", echo.backend.port))
        play.write("g.yaml", gateway_class(), gateway(listener(port=PORT)), route())
        play.up()
        (address,) = play.addresses().values()
        client = Client(address, PORT)
        with logs(play, "--json") as running:
            eventually(lambda: client.ask("/before").status == 200 and running.lines())
            paths = [f"/status/{503 if number % 3 else 404}?token=secret" for number in range(COUNT)]
            answers = Counter(client.ask(path).status for path in paths)

            def reported() -> Counter[int]:
                return Counter(
                    line["request"]["status"] for line in running.lines() if line["request"]["path"] != "/before"
                )

            eventually(lambda: reported().total() >= COUNT)
            assert reported() == answers
            assert not [wrong for line in running.lines() for wrong in mistakes(line, SCHEMA, SCHEMA)]
            assert "secret" not in running.file.read_text()
            last = running.lines()[-1]
            assert (last["name"], last["request"]["method"], last["backend"]) == ("web", "GET", str(echo.backend))
            assert running.end(signal.SIGINT) == 0
        with logs(play) as running:
            eventually(lambda: client.ask("/plain").status == 200 and "/plain 200" in running.file.read_text())
        client.close()
