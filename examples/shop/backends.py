"""The shop's pods, as one small process: `backends.py start | stop | status`.

It answers on the nodePorts of `manifests/`, on the addresses of both nodes, and tells which Service, port and node was
asked: HTTP over TCP, plain datagrams over UDP. It needs nothing but Python and listens on 127.0.0.0/8 only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NODES = {"node-a": "127.0.0.1", "node-b": "127.0.0.2"}
TCP = {30880: "web http", 30890: "web admin", 30980: "api http", 30853: "names dns-tcp"}
UDP = {30853: "names dns-udp"}
RECORD = Path(__file__).resolve().parents[2] / ".cache" / "shop-backends.json"
START_SECONDS = 10.0


def http_handler(answer: str) -> type[BaseHTTPRequestHandler]:
    """Make a handler that answers every GET with `answer`."""

    class Handler(BaseHTTPRequestHandler):
        """Answers and keeps the connection."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer a request."""
            body = f"{answer}\n".encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def udp_handler(answer: str) -> type[socketserver.BaseRequestHandler]:
    """Make a handler that sends back every datagram behind `answer`."""

    class Handler(socketserver.BaseRequestHandler):
        """Answers one datagram."""

        def handle(self) -> None:
            """Answer a datagram."""
            datagram, listening = self.request
            listening.sendto(f"{answer}: ".encode() + datagram, self.client_address)

    return Handler


def serve() -> None:
    """Listen on every node's ports until SIGTERM."""
    servers: list[socketserver.BaseServer] = []
    for node, address in NODES.items():
        for port, what in TCP.items():
            servers.append(ThreadingHTTPServer((address, port), http_handler(f"{what} on {node}")))
        for port, what in UDP.items():
            servers.append(socketserver.UDPServer((address, port), udp_handler(f"{what} on {node}")))
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def start_ticks(pid: int) -> str | None:
    """Tell when process `pid` started, in the kernel's clock ticks; None if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def running() -> int | None:
    """Tell the process id of the backends that `start` left, if they still run."""
    try:
        record = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return None
    return record["pid"] if start_ticks(record["pid"]) == record["started"] else None


def start() -> str:
    """Start the backends detached, unless they run already."""
    if pid := running():
        return f"the shop's backends run already (process {pid})"
    child = subprocess.Popen(
        [sys.executable, __file__, "serve"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if not child.stdout or child.stdout.readline() != "ready\n":
        _, errors = child.communicate(timeout=START_SECONDS)
        raise SystemExit(f"the shop's backends could not start: {errors.strip().splitlines()[-1]}")
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps({"pid": child.pid, "started": start_ticks(child.pid)}))
    return f"the shop's backends run (process {child.pid})"


def stop() -> str:
    """Stop the backends that `start` left."""
    pid = running()
    if pid:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + START_SECONDS
        while start_ticks(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
    RECORD.unlink(missing_ok=True)
    return "the shop's backends are stopped" if pid else "the shop's backends don't run"


def main(words: list[str]) -> None:
    """Run one command."""
    if words == ["serve"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        serve()
    elif words == ["start"]:
        print(start())
    elif words == ["stop"]:
        print(stop())
    elif words == ["status"]:
        print(f"running as process {pid}" if (pid := running()) else "not running")
    else:
        raise SystemExit("usage: backends.py start | stop | status")


if __name__ == "__main__":
    main(sys.argv[1:])
