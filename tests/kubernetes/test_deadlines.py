"""An API that sends its answers byte by byte ends nobody's patience but its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import yaml

from locallb.kubernetes.api import feed
from locallb.kubernetes.api import limits as deadline
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.servers import ANSWER_HEAD, dripping


@pytest.mark.parametrize(
    "begun", [ANSWER_HEAD + b"100\r\n\r\n", ANSWER_HEAD, b"HTTP/1.1 200 "], ids=["body", "head", "status"]
)
def test_an_answer_that_drips_ends(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its bytes comes in time; whoever asks may hold the lock of a stack."""
    monkeypatch.setattr(deadline, "TIMEOUT", 0.2)
    kubeconfig = tmp_path / "config"
    with dripping(begun) as port:
        kubeconfig.write_text(yaml.safe_dump(_document(f"http://127.0.0.1:{port}")))
        with pytest.raises(KubeError, match=r"its answer takes longer than 0\.2 s"):
            Cluster(Access(str(kubeconfig), ContextName("c"))).service("n", "web")


@pytest.mark.parametrize("begun", [ANSWER_HEAD, b"HTTP/1.1 200 "], ids=["head", "status"])
def test_a_feed_that_drips_ends_by_itself(begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else has to look after it, as followers do."""
    monkeypatch.setattr(feed, "TIMEOUT", 0.2)
    kubeconfig = tmp_path / "config"
    with dripping(begun) as port:
        kubeconfig.write_text(yaml.safe_dump(_document(f"http://127.0.0.1:{port}")))
        with (
            closing(feed.Feed(Access(str(kubeconfig), ContextName("c")), "Service")) as opened,
            pytest.raises(KubeError, match="its answer takes longer than it may"),
        ):
            opened.list()


def _document(server: str) -> object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
