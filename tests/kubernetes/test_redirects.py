"""An answer that leads elsewhere is told as such: a kubeconfig that names a login page, or http for https."""

from __future__ import annotations

from pathlib import Path

import pytest

from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.servers import UnreachableError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.servers import QuietHandler, QuietServer, in_thread


@pytest.mark.parametrize("code", [301, 302, 304, 307])
def test_a_redirect_is_one_sentence_with_its_place_and_without_its_secrets(tmp_path: Path, code: int) -> None:
    """Nobody follows it: credentials are for one server."""
    requested: list[str] = []

    class Handler(QuietHandler):
        """Leads elsewhere."""

        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(code)
            self.send_header("Location", "https://user:hush-hush@login.example/sign-in?token=hush-hush")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with in_thread(QuietServer(("127.0.0.1", 0), Handler)) as server:
        file = tmp_path / "kubeconfig"
        file.write_text(
            f'{{clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{server.server_port}"}}}}],'
            " users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: c, user: u}}]}"
        )
        with pytest.raises(UnreachableError) as caught:
            Cluster(Access(str(file), ContextName("x"))).objects()
    reported = str(caught.value)
    assert f"it leads to https://xxxxx@login.example/sign-in?xxxxx ({code})" in reported
    assert "hush-hush" not in reported
    assert "JSON" not in reported
    assert len(requested) == 1
