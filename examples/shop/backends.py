"""The shop's pods, as one small process: `backends.py start | stop | status`.

It answers on the nodePorts of `manifests/`, on the addresses of both nodes, and tells which Service, port and node was
asked: HTTP over TCP, plain datagrams over UDP. It needs nothing but Python and listens on 127.0.0.0/8 only. Where
another shop of this host has the usual addresses it takes the next ones. Until `stop`, `manifests/nodes.yaml` of the
examples, which Git ignores, has the nodes with the addresses that it took.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NODES = ("node-a", "node-b")
ADDRESSES = tuple((f"127.0.{number}.1", f"127.0.{number}.2") for number in range(64))
"""What the nodes' addresses may be, the usual ones first."""
TCP = {30880: "web http", 30890: "web admin", 30980: "api http", 30853: "names dns-tcp"}
UDP = {30853: "names dns-udp"}
ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / ".cache" / "shop-backends.json"
SHOP = Path(__file__).resolve().parent
MANIFESTS = tuple(SHOP.parent / example / "manifests" for example in ("shop", "ingress", "gateway"))
"""Where examples read the nodes whose pods these are."""
NODES_FILE = "nodes.yaml"
TEMPLATE = SHOP / NODES_FILE
INTERNAL = re.compile(r"(type: InternalIP, address: )([0-9.]+)")
START_SECONDS = 10.0


def http_handler(answer: str) -> type[BaseHTTPRequestHandler]:
    """Make a handler that answers every GET with `answer`."""

    class Handler(BaseHTTPRequestHandler):
        """Answers and keeps the connection."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
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
            datagram, listening = self.request
            listening.sendto(f"{answer}: ".encode() + datagram, self.client_address)

    return Handler


def listening(addresses: tuple[str, ...]) -> list[socketserver.BaseServer]:
    """Listen on every node's ports, or on none: raises OSError with the place that is taken."""
    servers: list[socketserver.BaseServer] = []
    try:
        for node, address in zip(NODES, addresses, strict=True):
            for port, what in TCP.items():
                place = f"{address}:{port}/TCP"
                servers.append(ThreadingHTTPServer((address, port), http_handler(f"{what} on {node}")))
            for port, what in UDP.items():
                place = f"{address}:{port}/UDP"
                servers.append(socketserver.UDPServer((address, port), udp_handler(f"{what} on {node}")))
    except OSError as error:
        for server in servers:
            server.server_close()
        raise OSError(error.errno, error.strerror, place) from error
    return servers


def serve(preferred: tuple[str, ...]) -> None:
    """Listen where all of the nodes' ports are free, until SIGTERM."""
    failures: list[OSError] = []
    for addresses in dict.fromkeys((preferred, *ADDRESSES)):
        try:
            servers = listening(addresses)
            break
        except OSError as error:
            failures.append(error)
    else:
        place = str(failures[0].filename)
        raise SystemExit(f"{place} is taken by {holder(place)}, and so on 127.0.0.0/8: end that process, and run again")
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", *addresses, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def holder(place: str) -> str:
    """Return who has a port, as far as this user may know."""
    port, _, protocol = place.rpartition(":")[2].partition("/")
    inodes = set()
    for table in (protocol.lower(), f"{protocol.lower()}6"):
        with contextlib.suppress(OSError):
            fields = [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
            inodes |= {f"socket:[{field[9]}]" for field in fields if int(field[1].rpartition(":")[2], 16) == int(port)}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()) in inodes:
                process = descriptor.parents[1]
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return "a process of another user"


def write_nodes(addresses: tuple[str, ...]) -> None:
    following = iter(addresses)
    text = INTERNAL.sub(lambda match: match[1] + next(following), TEMPLATE.read_text())
    for path in (directory / NODES_FILE for directory in MANIFESTS if directory.is_dir()):
        if not (path.exists() and path.read_text() == text):
            sibling = path.with_name(f".{NODES_FILE}.new")
            sibling.write_text(text)
            sibling.replace(path)


def start_ticks(pid: int) -> str | None:
    """Return when process `pid` started, in the kernel's clock ticks; None if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def running() -> tuple[int, tuple[str, ...]] | None:
    """Return the process that `start` left and its addresses, if it still runs and belongs to this very directory."""
    try:
        record = json.loads(RECORD.read_text())
        ours = Path(f"/proc/{record['pid']}/cwd").samefile(ROOT)  # a copy of the directory has a copy of the record
    except (OSError, ValueError):
        return None
    if not ours or start_ticks(record["pid"]) != record["started"]:
        return None
    return record["pid"], tuple(record.get("addresses", ()))


def start() -> str:
    """Start the backends detached, unless they run already."""
    if found := running():
        pid, addresses = found
        if addresses:
            write_nodes(addresses)
            return f"the shop's backends run already (process {pid})"
        end(pid)  # an earlier version started it, which noted no addresses
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "serve", *ADDRESSES[0]],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    word, *addresses = (child.stdout.readline() if child.stdout else "").split() or [""]
    if word != "ready":
        _, errors = child.communicate(timeout=START_SECONDS)
        raise SystemExit(
            f"the shop's backends could not start: {(errors.strip() or 'no reason given').splitlines()[-1]}"
        )
    RECORD.parent.mkdir(exist_ok=True)
    record = {"pid": child.pid, "started": start_ticks(child.pid), "addresses": addresses}
    RECORD.write_text(json.dumps(record))
    write_nodes(tuple(addresses))
    where = "" if tuple(addresses) == ADDRESSES[0] else f", on {' and '.join(addresses)}: the usual places are taken"
    return f"the shop's backends run (process {child.pid}){where}"


def end(pid: int) -> None:
    """End a process, and wait for that."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + START_SECONDS
    while start_ticks(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def stop() -> str:
    """Stop the backends that `start` left."""
    found = running()
    if found:
        end(found[0])
    RECORD.unlink(missing_ok=True)
    for directory in MANIFESTS:
        (directory / NODES_FILE).unlink(missing_ok=True)
    return "the shop's backends are stopped" if found else "the shop's backends don't run"


def main(terms: list[str]) -> None:
    if terms[:1] == ["serve"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        serve(tuple(terms[1:]))
    elif terms == ["start"]:
        print(start())
    elif terms == ["stop"]:
        print(stop())
    elif terms == ["status"]:
        print(f"running as process {found[0]}" if (found := running()) else "not running")
    else:
        raise SystemExit("usage: backends.py start | stop | status")


if __name__ == "__main__":
    main(sys.argv[1:])
