"""An API that sends its answers byte by byte ends nobody's patience but its own."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.limits import deadline
from locallb.model.snapshot import Access

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "


@pytest.mark.parametrize("begun", [HEAD + b"100\r\n\r\n", HEAD, b"HTTP/1.1 200 "], ids=["body", "head", "status"])
def test_an_answer_that_drips_ends(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its bytes comes in time; whoever asks may hold the lock of a stack."""
    monkeypatch.setattr(deadline, "PATIENCE", 0.2)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_drip, args=(server, over, begun))
        thread.start()
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(yaml.safe_dump(_document(f"http://127.0.0.1:{server.getsockname()[1]}")))
        try:
            with pytest.raises(KubeError, match=r"its answer takes longer than 0\.2 s"):
                Cluster(Access(str(kubeconfig), "c")).service("n", "web")
        finally:
            over.set()
            thread.join()


def _drip(server: socket.socket, over: threading.Event, begun: bytes) -> None:
    client, _ = server.accept()
    with client, suppress(OSError):  # it hangs up
        client.recv(1 << 16)
        client.sendall(begun)
        while not over.wait(0.02):
            client.sendall(b" ")


def _document(server: str) -> object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
