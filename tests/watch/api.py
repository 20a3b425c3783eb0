"""A small API server for tests of followers: healthy until told to answer something else; counts what it is asked.

Everything runs in this process. What a Kubernetes API means by its answers is the cluster tier's.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from locallb.model.identities import ClusterName
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.followed_cluster import FollowedCluster

NAME = ClusterName("demo")
PATIENCE = 20.0
KINDS = {"services": "Service", "nodes": "Node", "endpointslices": "EndpointSlice"}


def becomes(fact: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, f"it never became true: {what()}"
        time.sleep(0.005)


def follower(access: Access) -> FollowedCluster:
    """Follow a cluster, and wait until everything is listed."""
    followed = FollowedCluster(NAME, access, lambda: None)
    becomes(followed.ready, followed.stale)
    return followed


def node(name: str, version: str = "1") -> dict[str, Any]:
    """Write a Node."""
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    return {"metadata": {"name": name, "resourceVersion": version}, "status": {"addresses": [address]}}


def balancer(name: str) -> dict[str, Any]:
    """Write a Service of type LoadBalancer."""
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30000}]
    metadata = {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": ports}}


def healthy(kind: str, objects: list[dict[str, Any]]) -> bytes:
    """Write a list as an API server does."""
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": objects}).encode()


@dataclass
class Api:
    """How it answers now; each field may be changed at any time."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    services: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """What a healthy watch of Services says, as it is added here: its type and the object."""
    listed: tuple[int, bytes] | None = None
    """Instead of a healthy list: status and body."""
    watched: tuple[int, bytes] | None = None
    """Instead of a healthy watch, which says nothing: what is answered at once, and the end."""
    silent: bool = False
    """Take requests and answer nothing."""
    drip: float = 0.0
    """Seconds between two bytes of a list."""
    asked: list[tuple[float, str]] = field(default_factory=list)
    """When, and `list` or `watch`."""
    over: threading.Event = field(default_factory=threading.Event)
    renewed: threading.Event = field(default_factory=threading.Event)
    """Set: healthy watches end."""

    def count(self, what: str) -> int:
        """Count requests."""
        return sum(kind == what for _, kind in tuple(self.asked))

    def end_watches(self) -> None:
        """End those that are open, as a server does after a while."""
        self.renewed.set()
        self.renewed = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def do_GET(self) -> None:
        """Answer a list or a watch."""
        api, watched = self.api, "watch=true" in self.path
        renewed = api.renewed
        api.asked.append((time.monotonic(), "watch" if watched else "list"))
        if api.silent:
            self._wait(renewed)
        elif not watched:
            kind = KINDS[self.path.partition("?")[0].rpartition("/")[2]]
            self._whole(
                *(api.listed or (200, healthy(kind, {"Node": api.nodes, "Service": api.services}.get(kind, []))))
            )
        elif api.watched:
            self._whole(*api.watched)
        else:
            self._head(200, "Transfer-Encoding", "chunked")
            for node in api.nodes if "/nodes" in self.path else []:
                self._say("ADDED", node)
            self._wait(renewed)

    def _head(self, status: int, name: str, value: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _whole(self, status: int, body: bytes) -> None:
        self._head(status, "Content-Length", str(len(body)))
        for number in range(len(body) if self.api.drip else 0):
            self.wfile.write(body[number : number + 1])
            if self.api.over.wait(self.api.drip):
                return
        self.wfile.write(b"" if self.api.drip else body)

    def _wait(self, renewed: threading.Event) -> None:
        """Say what happens to Services, until the client goes or the test wants another watch."""
        said = 0
        while not (self.api.over.is_set() or renewed.is_set()):
            if select.select([self.connection], [], [], 0.01)[0]:
                break
            for kind, item in self.api.events[said:] if "/services" in self.path else []:
                self._say(kind, item)
                said += 1
        if renewed.is_set():
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _say(self, kind: str, item: Mapping[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


@contextmanager
def served(directory: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API, with a kubeconfig in `directory`."""
    api = Api()
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        access = kubeconfig(directory / "kubeconfig", server.server_port)
        yield api, access
        api.over.set()
        server.shutdown()
        thread.join()


def kubeconfig(path: Path, port: int, credential: str = "t") -> Access:
    """Write a kubeconfig."""
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": credential}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return Access(str(path), "here")


def free_port() -> int:
    """Find a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
