"""An API whose answers have no end fills nobody's memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path

import pytest

from locallb.kubernetes.api import limits as size
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.seed_api import kubeconfig
from tests.support.servers import QuietHandler, QuietServer, in_thread

MIB = 1 << 20


@contextmanager
def sending(directory: Path, parts: Iterable[bytes], encoding: str) -> Iterator[tuple[Cluster, list[int]]]:
    """Serve an answer in parts until its client hangs up; give a client, and the sizes of the parts that were sent."""
    sent: list[int] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", encoding)
            self.end_headers()
            with suppress(OSError):  # it hangs up
                for part in parts:
                    self.wfile.write(part)
                    sent.append(len(part))

    server = QuietServer(("127.0.0.1", 0), Handler)
    with in_thread(server):
        (directory / "config").write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}", {"token": "t"}))
        yield Cluster(Access(str(directory / "config"), ContextName("it"))), sent


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_answer_without_an_end_ends(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told in one sentence, of a list as of an object; packed, it counts as large as it is."""
    monkeypatch.setattr(size, "LARGEST", MIB)
    parts = repeat(b" " * 65536) if encoding == "identity" else [gzip.compress(b" " * (64 * MIB))]
    with sending(tmp_path, parts, encoding) as (cluster, sent):
        for ask in (cluster.objects, lambda: cluster.service("n", "web")):
            with pytest.raises(KubeError, match=r"isn't a Kubernetes API's \(its answer is larger than 1 MiB\)$"):
                ask()
    assert sum(sent) < 64 * MIB


def test_a_large_answer_comes_whole(tmp_path: Path) -> None:
    """What a real API may say is within the limit."""
    text = b'{"kind": "Service", "metadata": {"name": "web", "x": "' + b"x" * (4 * MIB) + b'"}}'
    with sending(tmp_path, [text], "identity") as (cluster, _):
        service = cluster.service("n", "web")
    assert service is not None
    assert len(service["metadata"]["x"]) == 4 * MIB
