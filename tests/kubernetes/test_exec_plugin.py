"""Exec plugins: whatever they do, nobody waits long, nothing of theirs stays, and nothing that they say is told."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from locallb.kubernetes.api import exec_plugin
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.exec_plugin import Plugin, token
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.kubeconfig import EXEC_VERSIONS, connection, sign_in
from locallb.kubernetes.api.servers import KubeconfigError, KubeError, RefusedError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.kubeconfigs import written
from tests.support.servers import QuietHandler, answer_json, in_thread
from tests.support.waiting import becomes

BETA = "client.authentication.k8s.io/v1beta1"
SECRET = "s3cret"  # noqa: S105 - it is none


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know no token of another test, and have little patience."""
    monkeypatch.setattr(exec_plugin, "_SUPPORTED", {})
    monkeypatch.setattr(exec_plugin, "DEADLINE", 1.0)


def answer(text: str, expires: datetime | None = None) -> str:
    status = {"token": text, **({"expirationTimestamp": expires.isoformat()} if expires else {})}
    return json.dumps({"apiVersion": BETA, "kind": "ExecCredential", "status": status})


def plugin(script: str, directory: Path) -> Plugin:
    """Make a plugin of a shell script, which may note its runs in `runs`."""
    section = {"apiVersion": BETA, "command": "sh", "args": ["-c", f"cd {directory}; echo x >> runs; {script}"]}
    return Plugin.of(section, Access(str(directory / "config"), ContextName("here")))


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


def rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time pass for which a plugin isn't asked again."""
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + exec_plugin.REST)
    monkeypatch.setattr(exec_plugin, "time", clock)


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("exit 3", "it ended with 3"),
        (f"echo {SECRET}", "what it prints is no ExecCredential with a token"),
        ("echo '{}'", "what it prints is no ExecCredential with a token"),
        ("echo '[1]'", "what it prints is no ExecCredential with a token"),
        ('echo \'{"status": {"token": null}}\'', "what it prints is no ExecCredential with a token"),
        ('echo \'{"status": {"token": "a\\nb"}}\'', "what it prints is no ExecCredential with a token"),
        ('echo \'{"status": {"token": "a", "expirationTimestamp": "soon"}}\'', "no ExecCredential"),
        (f"echo {SECRET} >&2; exit 1", "it ended with 1"),
        (f"echo {SECRET}; sleep 1000", "it was ended after 1 s"),
        ("cat; exit 7", "it ended with 7"),
        ("sleep 1000 & exit 0", "it was ended after 1 s"),
        ("trap '' TERM INT HUP; sleep 1000", "it was ended after 1 s"),
        ("cat /dev/zero", "it prints more than 1048576 bytes"),
    ],
)
def test_failed_exec_plugin_is_reported_without_its_output(tmp_path: Path, script: str, reported: str) -> None:
    """With the command and the context, and nothing of what it printed."""
    with pytest.raises(KubeError, match=reported) as caught:
        token(plugin(script, tmp_path))
    sentence = str(caught.value)
    assert sentence.startswith(f"the context here of {tmp_path}/config can't be used: its plugin sh gives no token: ")
    assert SECRET not in sentence
    assert "\n" not in sentence
    assert isinstance(caught.value, KubeconfigError)


def test_timed_out_exec_plugin_ends_with_its_children(tmp_path: Path) -> None:
    """Its whole process group."""
    with pytest.raises(KubeError):
        token(plugin("sleep 1000 & echo $! > child; wait", tmp_path))
    child = int((tmp_path / "child").read_text())
    becomes(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_failed_exec_plugin_is_not_run_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many want its token: they hear the same."""
    failing = plugin("exit 1", tmp_path)
    for _ in range(5):
        with pytest.raises(KubeError, match="it ended with 1"):
            token(failing)
    assert runs(tmp_path) == 1
    rest(monkeypatch)
    with pytest.raises(KubeError, match="it ended with 1"):
        token(failing)
    assert runs(tmp_path) == 2


def test_concurrent_token_requests_run_the_plugin_once(tmp_path: Path) -> None:
    """They wait for the same run."""
    good = plugin(f"sleep 0.2; echo '{answer('t')}'", tmp_path)
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(token(good))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (got, runs(tmp_path)) == (["t"] * 8, 1)


def test_a_token_counts_until_it_expires(tmp_path: Path) -> None:
    """One that has expired is fetched again; one that soon will is given while the next one is fetched."""
    now = datetime.now(UTC)
    text = tmp_path / "answer"
    made = plugin("cat answer", tmp_path)
    text.write_text(answer("old", now - timedelta(seconds=1)))
    token(made)
    text.write_text(answer("brief", now + timedelta(seconds=exec_plugin.EARLY / 2)))
    assert token(made) == "brief"
    text.write_text(answer("long", now + timedelta(hours=1)))
    assert token(made) in {"brief", "long"}
    becomes(lambda: token(made) == "long")
    count = runs(tmp_path)
    assert [token(made), token(made)] == ["long", "long"]
    assert runs(tmp_path) == count


def test_the_next_token_that_does_not_come_costs_nothing_while_the_old_one_is_good(tmp_path: Path) -> None:
    """A plugin that hangs then holds up nobody."""
    text = tmp_path / "answer"
    made = plugin("cat answer; [ $(wc -l < runs) = 1 ] || sleep 1000", tmp_path)
    text.write_text(answer("brief", datetime.now(UTC) + timedelta(seconds=exec_plugin.EARLY / 2)))
    assert token(made) == "brief"
    becomes(lambda: token(made) == "brief" and runs(tmp_path) == 2)
    assert token(made) == "brief"


def test_a_command_with_a_slash_is_beside_the_kubeconfig(tmp_path: Path) -> None:
    """As kubectl has it; the variables are passed on, and it may know that nobody can be asked."""
    (tmp_path / "login").write_text('#!/bin/sh\ntest -n "$KUBERNETES_EXEC_INFO" && eval "$SAY"\n')
    (tmp_path / "login").chmod(0o755)
    section = {"apiVersion": BETA, "command": "./login", "env": [{"name": "SAY", "value": f"echo '{answer('t')}'"}]}
    assert token(Plugin.of(section, Access(str(tmp_path / "config"), ContextName("here")))) == "t"


@pytest.mark.parametrize("version", EXEC_VERSIONS)
def test_a_plugin_learns_the_version_that_its_kubeconfig_names(tmp_path: Path, version: str) -> None:
    """And may answer with that one alone, by which kubectl's own plugins decide."""
    document = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}})
    script = f"echo \"$KUBERNETES_EXEC_INFO\" | grep -qF '\"{version}\"' && echo '{document}'"
    user = {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}}
    plugin_of_file = connection(written(tmp_path / "config", user=user)).plugin
    assert plugin_of_file
    assert token(plugin_of_file) == "t"


@pytest.mark.parametrize("asks", [True, False])
def test_a_plugin_learns_of_its_cluster_what_it_asks_for(asks: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    """Server, authority (the content of a file) and what the cluster has for plugins; nothing where it doesn't ask."""
    (tmp_path / "ca").write_text("mine")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "ca", "extensions": [extension]}
    script = f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info; echo '{answer('t')}'"
    section = {"apiVersion": BETA, "command": "sh", "args": ["-c", script], "provideClusterInfo": asks}
    plugin_of_file = connection(written(tmp_path / "config", cluster=cluster, user={"exec": section})).plugin
    assert plugin_of_file
    assert token(plugin_of_file) == "t"
    known = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(b"mine").decode(),
        "config": {"audience": "a"},
    }
    assert json.loads((tmp_path / "info").read_text())["spec"].get("cluster") == (known if asks else None)


@pytest.mark.parametrize(
    "section", [{}, {"command": "x", "env": 5, "apiVersion": BETA}, {"command": "x", "env": ["y"]}]
)
def test_a_section_that_is_none_is_reported(section: dict[str, object], tmp_path: Path) -> None:
    """Before anything runs."""
    with pytest.raises(KubeError, match="its user's `exec` isn't valid"):
        Plugin.of(section, Access(str(tmp_path / "config"), ContextName("here")))


@pytest.fixture
def api() -> Iterator[tuple[str, list[str]]]:
    """Serve an API without objects, which refuses the token `revoked`; give its URL, and the tokens that it saw."""
    observed: list[str] = []

    class Handler(QuietHandler):
        """Answers each request with an empty list."""

        def do_GET(self) -> None:
            observed.append(self.headers.get("Authorization", ""))
            body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
            answer_json(self, 401 if observed[-1].endswith("revoked") else 200, body)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", observed


def test_requests_and_feeds_share_the_token_and_a_refused_one_is_fetched_again(
    api: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run for both; a token that is new isn't fetched again for being refused."""
    url, observed = api
    (tmp_path / "answer").write_text(answer("revoked"))
    script = f"cd {tmp_path}; echo x >> runs; cat answer"
    section = {"apiVersion": BETA, "command": "sh", "args": ["-c", script]}
    access = written(tmp_path / "config", cluster={"server": url}, user={"exec": section})
    with pytest.raises(KubeError) as caught:
        Cluster(access).objects()
    assert isinstance(caught.value, RefusedError)
    assert runs(tmp_path) == 1
    (tmp_path / "answer").write_text(answer("good"))
    rest(monkeypatch)
    assert Cluster(access).objects() == []
    feed = Feed(access, "Service")
    assert feed.list() == ([], "1")
    feed.close()
    assert runs(tmp_path) == 2
    assert observed[-2:] == ["Bearer good"] * 2


def test_a_plugin_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """By its name, out of whatever asks the API."""
    section = {"apiVersion": BETA, "command": "no-such-plugin"}
    access = written(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={"exec": section})
    for ask in (Cluster(access).objects, Feed(access, "Node").list):
        with pytest.raises(KubeError, match="its plugin no-such-plugin gives no token: it isn't installed"):
            ask()


def test_a_token_that_was_fetched_before_is_there_when_something_is_locked(
    api: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing in tells of no failure and asks no API; contexts without a plugin need none."""
    url, observed = api
    section = {"apiVersion": BETA, "command": "sh", "args": ["-c", f"echo '{answer('t')}'"]}
    access = written(tmp_path / "config", cluster={"server": url}, user={"exec": section})
    failing = written(tmp_path / "failing", user={"exec": {**section, "args": ["-c", "exit 1"]}})
    sign_in([failing, Access(str(tmp_path / "none"), ContextName("x")), written(tmp_path / "plain"), access])
    assert observed == []
    monkeypatch.setattr(exec_plugin, "_run", lambda _plugin: pytest.fail("it was asked again"))
    assert Cluster(access).objects() == []


def test_its_standard_input_is_nobodys(tmp_path: Path) -> None:
    """It can't take what is typed for a prompt of ours."""
    read, write = os.pipe()
    saved = os.dup(0)
    os.dup2(read, 0)
    try:
        os.write(write, b"typed\n")
        assert token(plugin(f"read line && exit 5; echo '{answer('t')}'", tmp_path)) == "t"
    finally:
        os.dup2(saved, 0)
        for descriptor in (read, write, saved):
            os.close(descriptor)
