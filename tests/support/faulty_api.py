"""A proxy on 127.0.0.1 between local-lb and the API server that fails on purpose: each fault for so many requests."""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import ssl
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.support.control_plane import ControlPlane
from tests.support.servers import QuietHandler, QuietServer, in_thread

ENDLESS = httpx2.Limits(max_connections=None)
"""A watch whose client went is noticed only when the API says something."""
HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "accept-encoding"}


@dataclass
class Fault:
    """What happens to requests whose line (`GET /api/v1/services`) matches, and how often."""

    line: str
    times: int
    status: int = 0
    """Answer with it and pass nothing on."""
    retry_after: int | None = None
    body: str = ""
    empty: bool = False
    """Nothing is said at all, not even why."""
    cut: bool = False
    """Close without an answer."""
    late: bool = False
    """Pass it on first: it takes effect, but the answer is lost."""
    hang: float = 0.0
    """Seconds of silence before it is cut."""
    first: Callable[[], None] | None = None
    """Done before."""


@dataclass
class FaultyApi:
    """The API as local-lb sees it."""

    plane: ControlPlane
    kubeconfig: Path
    faults: list[Fault] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Every request that came."""
    times: list[float] = field(default_factory=list)
    """When each came (monotonic)."""
    watched: set[socket.socket] = field(default_factory=set)
    """Connections with a watch that is passed on."""
    changes: list[float] = field(default_factory=list)
    """When a watch told, for the first time, that a load balancer is wanted otherwise (monotonic)."""
    wanted: dict[str, str] = field(default_factory=dict)
    """How each is wanted, by uid, as far as watches told."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, line: str, times: int = 1, **what: Any) -> Fault:  # noqa: ANN401 - fields of Fault
        self.faults.append(Fault(line, times, **what))
        return self.faults[-1]

    def reported(self, line: str) -> None:
        reported = json.loads(line)["object"]
        if reported["kind"] != "Service" or reported.get("spec", {}).get("type") != "LoadBalancer":
            return
        uid, going = reported["metadata"]["uid"], "deletionTimestamp" in reported["metadata"]
        with self.lock:
            if self.wanted.get(uid) != (wanted := json.dumps([reported["spec"], going])):
                self.wanted[uid] = wanted
                self.changes.append(time.monotonic())

    def take(self, line: str) -> Fault | None:
        """Find the fault of a request, once."""
        with self.lock:
            self.lines.append(line)
            self.times.append(time.monotonic())
        for fault in self.faults:
            if fault.times > 0 and re.search(fault.line, line):
                fault.times -= 1
                return fault
        return None

    def heal(self) -> None:
        self.faults.clear()

    def busiest(self, line: str = "", since: float = 0.0, until: float = math.inf) -> list[str]:
        """Return the requests of the busiest second, of those between two moments whose line matches."""
        with self.lock:
            requested = [
                (at, asked_for) for at, asked_for in zip(self.times, self.lines, strict=True) if since <= at < until
            ]
        requested = [(at, request) for at, request in requested if re.search(line, request)]
        first, begin, end = 0, 0, 0
        for last, (at, _) in enumerate(requested):
            while at - requested[first][0] >= 1:
                first += 1
            if last + 1 - first > end - begin:
                begin, end = first, last + 1
        return [request for _, request in requested[begin:end]]

    def in_each_second(self) -> Iterator[tuple[float, int]]:
        """Return when each request came, and how many in the second that begins then."""
        with self.lock:
            times = tuple(self.times)
        return ((at, bisect_left(times, at + 1) - first) for first, at in enumerate(times))

    def end_watches(self) -> None:
        """End the watches that are open, as the server does now and again."""
        for connection in tuple(self.watched):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def source(self) -> dict[str, Any]:
        """The cluster, reached through here, as a source."""
        return {"kubernetes": {"name": self.plane.name, "kubeconfig": str(self.kubeconfig), "loopbackBackends": True}}


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    api: FaultyApi
    client: httpx2.Client

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.api.take(f"{self.command} {self.path}")
        if fault is None and "watch=true" in self.path:
            self.api.watched.add(self.connection)
            try:
                self._pass_watch_on()
            finally:
                self.api.watched.discard(self.connection)
            return
        if fault is None:
            self._answer(*self._passed_on(body))
            return
        if fault.first:
            fault.first()
        if fault.late:
            self._passed_on(body)
        if fault.hang:
            time.sleep(fault.hang)
        if fault.cut or fault.hang:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        reason = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": fault.status,
            "message": "on purpose",
        }
        heads = {"Content-Type": "text/plain" if fault.body else "application/json"}
        if fault.retry_after is not None:
            heads["Retry-After"] = str(fault.retry_after)
        self._answer(fault.status, heads, b"" if fault.empty else (fault.body or json.dumps(reason)).encode())

    do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _any

    def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        heads = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        done = self.client.request(self.command, self.path, content=body, headers=heads)
        retained = {name: value for name, value in done.headers.items() if name.lower() not in HOP}
        return done.status_code, retained, done.content

    def _pass_watch_on(self) -> None:
        """Pass on what the API says as it says it, until either side goes."""
        heads = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        self.close_connection = True
        with self.client.stream("GET", self.path, headers=heads, timeout=None) as done:
            self.send_response(done.status_code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.flush()
            for line in done.iter_lines():
                self.api.reported(line)
                self.wfile.write(line.encode() + b"\n")

    def _answer(self, status: int, heads: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in heads.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def faulty_api(plane: ControlPlane, directory: Path) -> Iterator[FaultyApi]:
    """Run the proxy; its kubeconfig has the user local-lb."""
    directory.mkdir(parents=True, exist_ok=True)
    api = FaultyApi(plane, directory / "faulty.kubeconfig")
    base = f"https://127.0.0.1:{plane.port}"
    trust = ssl.create_default_context(cafile=plane.root / "certs/apiserver.crt")
    with httpx2.Client(base_url=base, verify=trust, trust_env=False, timeout=30, limits=ENDLESS) as client:
        handler = type("Handler", (_Handler,), {"api": api, "client": client})
        with in_thread(QuietServer(("127.0.0.1", 0), handler)) as server:
            document = yaml.safe_load(plane.kubeconfig.read_text())
            # Its certificate stays, as every local cluster has one: where there is none, all of the system's are read.
            document["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{server.server_port}"
            api.kubeconfig.write_text(yaml.safe_dump(document))
            yield api


@pytest.fixture
def api(plane: ControlPlane, tmp_path: Path) -> Iterator[FaultyApi]:
    """Put the faulty API between local-lb and the cluster."""
    with faulty_api(plane, tmp_path / "faulty") as made_here:
        yield made_here
