"""Events of Kubernetes are best effort: whatever the API does, none of them holds anybody up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
import yaml

from locallb.kubernetes.api import client, connected
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.servers import QuietHandler, in_thread

BODY = {"metadata": {"name": "web.1", "namespace": "n"}, "note": "serves"}


def access(directory: Path, port: int) -> Access:
    """Make a kubeconfig for a server at this port."""
    path = directory / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return Access(str(path), ContextName("c"))


@pytest.fixture
def refusing() -> Iterator[tuple[int, list[str]]]:
    """Run a server that can't answer just now; gives its port and what it was asked."""
    requested: list[str] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            requested.append(self.path)
            self.send_response(503)
            self.send_header("Retry-After", "3600")
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield server.server_port, requested


def test_an_event_that_is_refused_is_not_tried_again(tmp_path: Path, refusing: tuple[int, list[str]]) -> None:
    """Whatever the API wishes about another attempt."""
    port, requested = refusing
    with pytest.raises(KubeError, match="503"):
        Cluster(access(tmp_path, port)).create_event("n", BODY)
    assert requested == ["/apis/events.k8s.io/v1/namespaces/n/events?fieldManager=local-lb"]


def test_an_api_that_hangs_holds_up_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests may wait for as long as it takes; this ends because an event has a time of its own."""
    monkeypatch.setattr(connected, "TIMEOUT", httpx2.Timeout(None))
    monkeypatch.setattr(client, "EVENT_TIMEOUT", httpx2.Timeout(0.05))
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # connections are taken, and nothing ever comes
        cluster = Cluster(access(tmp_path, hanging.getsockname()[1]))
        with pytest.raises(KubeError, match="doesn't answer"):
            cluster.create_event("n", BODY)
