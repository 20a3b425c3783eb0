"""The election and its cluster: a credential that is renewed and a server that moves cost no lead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from locallb.cli import leading
from locallb.cli.leading import taking_part
from locallb.config.settings import LeaderElection, Settings, Timing
from locallb.kubernetes.api.election import Election
from locallb.kubernetes.api.servers import KubeError
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.model.snapshot import Access
from locallb.sources.entries import KubernetesSource
from tests.support.fake_api import kubeconfig
from tests.support.servers import QuietHandler, answer_json, in_thread
from tests.support.waiting import becomes

TIMING = Timing(lease_duration=3, renew_deadline=2, retry_period=0.05)
NAME = ClusterName("demo")


class Keeper:
    """Keeps one Lease, for whoever has the credential."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.credential = "t"
        self.version = 0
        self.instead: bytes | None = None
        """What is answered in place of a Lease."""
        self.port = 0


@contextmanager
def retained() -> Iterator[Keeper]:
    keeper = Keeper()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._give(keeper.lease)

        def do_PUT(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self._is_known():
                keeper.version += 1
                given["metadata"]["resourceVersion"] = str(keeper.version)
                keeper.lease = given
            self._give(given)

        do_POST = do_PUT

        def _is_known(self) -> bool:
            return bool(self.headers["Authorization"] == f"Bearer {keeper.credential}")

        def _give(self, lease: dict[str, Any] | None) -> None:
            code = 401 if not self._is_known() else 200 if lease or keeper.instead else 404
            body = json.dumps(lease if code == 200 else {"kind": "Status", "code": code, "message": "no"}).encode()
            body = keeper.instead if keeper.instead is not None and code == 200 else body
            answer_json(self, code, body)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        keeper.port = server.server_port
        yield keeper


@contextmanager
def candidate(root: Path) -> Iterator[Election]:
    """Take part, as `watch` does, by the kubeconfig in `root`."""
    source = KubernetesSource(NAME, kubeconfig=str(root / "kubeconfig"), loopback_backends=True)
    settings = Settings((source,), (), leader_election=LeaderElection(NAME, "l", "kube-system", TIMING))
    with taking_part(settings, Home("p", "s", str(root))) as election:
        assert election
        yield election


def test_a_renewed_credential_and_a_server_that_moves_cost_no_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stand in the kubeconfig, which is looked at again before each step."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with retained() as keeper, retained() as elsewhere:
        kubeconfig(tmp_path / "kubeconfig", keeper.port)
        with candidate(tmp_path) as election:
            becomes(election.leads, lambda: election.problem)
            keeper.credential = "renewed"
            becomes(lambda: "401" in election.problem)
            kubeconfig(tmp_path / "kubeconfig", keeper.port, "renewed")
            becomes(lambda: election.leads() and not election.problem, lambda: election.problem)
            kubeconfig(tmp_path / "kubeconfig", elsewhere.port)
            becomes(lambda: elsewhere.lease and election.leads(), lambda: election.problem)


def test_lease_follows_the_current_context_of_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source names no context, as after `kubectl config use-context`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with retained() as keeper, retained() as elsewhere:
        path, ports = tmp_path / "kubeconfig", {"first": keeper.port, "second": elsewhere.port}
        clusters = [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}} for name, port in ports.items()]
        contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ports]
        users = [{"name": "u", "user": {"token": keeper.credential}}]
        config = {"clusters": clusters, "contexts": contexts, "users": users}
        path.write_text(json.dumps({**config, "current-context": "first"}))
        with candidate(tmp_path) as election:
            becomes(election.leads, lambda: election.problem)
            path.write_text(json.dumps({**config, "current-context": "second"}))
            becomes(lambda: elsewhere.lease and election.leads(), lambda: election.problem)


def test_a_live_source_of_any_type_may_keep_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type says how its API is reached, and which files say so; one without an API is refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    source = SimpleNamespace(cluster=NAME, live=True, type="played")
    settings = Settings((source,), (), leader_election=LeaderElection(NAME, "l", "kube-system", TIMING))
    played = SimpleNamespace(
        access_files=lambda _source, root: (root / "way",),
        access=lambda _source, root: (
            Access((root / "way").read_text(), ContextName("here")) if (root / "way").read_text() else None
        ),
    )
    monkeypatch.setattr(leading, "source_type", {"played": played}.__getitem__)
    (tmp_path / "way").write_text("")
    with pytest.raises(KubeError, match="source demo has no API"), taking_part(settings, Home("p", "s", str(tmp_path))):
        pass
    with retained() as keeper:
        kubeconfig(tmp_path / "kubeconfig", keeper.port)
        (tmp_path / "way").write_text(str(tmp_path / "kubeconfig"))
        with taking_part(settings, Home("p", "s", str(tmp_path))) as election:
            assert election
            becomes(election.leads, lambda: election.problem)


@pytest.mark.parametrize("text", ["", "kind: Config", "{"])
def test_a_kubeconfig_in_the_midst_of_being_rewritten_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is told, and asked again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with retained() as keeper:
        path = tmp_path / "kubeconfig"
        kubeconfig(path, keeper.port)
        with candidate(tmp_path) as election:
            becomes(election.leads, lambda: election.problem)
            path.write_text(text)
            becomes(lambda: "kubeconfig" in election.problem, lambda: election.problem)
            kubeconfig(path, keeper.port)
            becomes(lambda: election.leads() and not election.problem, lambda: election.problem)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"7", b'{"metadata": null}', b'{"metadata": "x", "spec": 7}'])
def test_an_odd_lease_is_reported_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    """As an API that doesn't answer."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with retained() as keeper:
        kubeconfig(tmp_path / "kubeconfig", keeper.port)
        with candidate(tmp_path) as election:
            becomes(election.leads, lambda: election.problem)
            keeper.instead = text
            becomes(lambda: "isn't a Kubernetes API's" in election.problem, lambda: election.problem)
            keeper.instead = None
            becomes(lambda: election.leads() and not election.problem, lambda: election.problem)
