"""Kubeconfigs: which context is meant, what of it can't be had, and the sentence for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.kubernetes.api.client import Cluster, Clusters
from locallb.kubernetes.api.connected import auth_of
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.kubeconfig import LARGEST, connection, kubeconfig_path, meaning, resolve
from locallb.kubernetes.api.servers import KubeconfigError, KubeError, NoContextError
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from tests.support.kubeconfigs import SERVER, written

TEN = ", ".join(f"{{name: c{n}}}" for n in range(10))


def test_the_current_context_is_chosen_where_none_is_named(tmp_path: Path) -> None:
    """Relative to the project; the context by its name, so that another current one later changes nothing."""
    access = written(tmp_path / "config")
    assert resolve("config", ContextName(""), tmp_path) == access
    assert resolve(str(tmp_path / "config"), ContextName("here"), Path("/elsewhere")) == access


def test_a_file_means_the_same_until_it_says_something_else_of_that_cluster(tmp_path: Path) -> None:
    """It is rewritten all the time: another namespace or order, and what is said of other clusters, is nothing."""
    path = tmp_path / "config"
    access = written(path)
    before = meaning("config", ContextName(""), tmp_path)
    assert before.access == access
    document = yaml.safe_load(path.read_text())
    document["contexts"] = [{"name": "new", "context": {"cluster": "x", "user": "x"}}, *document["contexts"]]
    document["contexts"][1]["context"]["namespace"] = "n"
    path.write_text(json.dumps(document))
    assert meaning("config", ContextName(""), tmp_path) == before
    path.write_text(json.dumps({**document, "current-context": "new"}))
    assert meaning("config", ContextName("here"), tmp_path) == before
    with pytest.raises(KubeError, match="no cluster x"):
        meaning("config", ContextName(""), tmp_path)
    for changed in ({"cluster": {"server": f"{SERVER}/other"}}, {"user": {"token": "other"}}):
        written(path, **changed)
        assert meaning("config", ContextName(""), tmp_path) != before


def test_the_first_file_of_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the documentation says; without it the one in the home."""
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert kubeconfig_path("", Path("/p")) == tmp_path / "a"
    monkeypatch.delenv("KUBECONFIG")
    assert kubeconfig_path("", Path("/p")) == Path("~/.kube/config").expanduser()


@pytest.mark.parametrize(
    ("text", "context", "fault", "reported"),
    [
        (None, "", KubeconfigError, "can't be read: No such file or directory"),
        ("{", "", KubeconfigError, "isn't a kubeconfig"),
        ("[1]", "", KubeconfigError, "isn't a kubeconfig"),
        ("contexts: [{context: {}}]", "x", KubeconfigError, "isn't a kubeconfig"),
        ("contexts: 5", "x", KubeconfigError, "isn't a kubeconfig"),
        ("", "x", KubeconfigError, "is empty; it may be half-written"),
        ("# nothing\n", "x", KubeconfigError, "is empty; it may be half-written"),
        ("kind: Config\n---\nkind: Config\n", "x", KubeconfigError, "isn't a kubeconfig"),
        (f"a: &a [{'x, ' * 9}x]\nb: [{'*a, ' * 99_999}*a]", "x", KubeconfigError, "its aliases stand for more than"),
        ("kind: Config", "", KubeconfigError, "has no current context; name one in `context`: it has none"),
        (
            f"contexts: [{TEN}]",
            "",
            KubeconfigError,
            "no current context; .*: it has c0, c1, c2, c3, c4 and 5 more",
        ),
        ("contexts: null", "gone", KubeconfigError, "has no context gone now, but it may be half-written"),
        ("kind: Config", "gone", KubeconfigError, "has no context gone now, but it may be half-written"),
        ("contexts: null\nkind: Config", "gone", NoContextError, "has no context gone; it has none"),
        (
            f"{{contexts: [{TEN}]}}",
            "gone",
            NoContextError,
            "no context gone; it has c0, c1, c2, c3, c4 and 5 more",
        ),
    ],
)
def test_invalid_kubeconfig_is_reported_by_file(
    tmp_path: Path, text: str | None, context: str, fault: type[KubeError], reported: str
) -> None:
    """One sentence that names the file."""
    if text is not None:
        (tmp_path / "config").write_text(text)
    with pytest.raises(KubeError, match=reported) as caught:
        resolve("config", ContextName(context), tmp_path)
    assert type(caught.value) is fault
    assert str(tmp_path / "config") in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "user", "reported"),
    [
        ({"server": ""}, None, "its server is missing; write a URL"),
        ({"server": "localhost"}, None, "its server is localhost; write a URL"),
        ({"server": "https://[::1"}, None, r"its server is https://\[::1; write a URL"),
        ({"server": "https://api:65536"}, None, "its server is https://api:65536; write a URL"),
        ({"server": "https://999.1.1.1:6443"}, None, "999.1.1.1"),
        ({"proxy-url": "http://proxy:port"}, None, "its proxy-url is http://proxy:port; write a URL"),
        ({"tls-server-name": "a b"}, None, "its tls-server-name .a b. isn't a hostname"),
        ({"tls-server-name": ["api"]}, None, "its tls-server-name .* isn't a hostname"),
        ({"tls-server-name": "*.shop"}, None, "isn't a hostname.*; write the name that the server's certificate has"),
        ({"proxy-url": "carrier://pigeon"}, None, "its proxy-url is carrier://pigeon; write a URL"),
        (
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v2", "command": "login"}},
            "its user comes from login with client.authentication.k8s.io/v2; let it give",
        ),
        ({}, {"auth-provider": {"name": "gcp"}}, "its user has an auth-provider"),
        ({}, {"token": "t", "as": "admin"}, "its user impersonates another one"),
        (
            {},
            {"client-certificate-data": "eA=="},
            "its user has a client-certificate without a client-key; write the key",
        ),
        ({}, {"client-certificate": "/nowhere/crt", "client-key": "/nowhere/key"}, "No such file"),
        ({"certificate-authority": "nowhere.crt"}, None, "No such file"),
    ],
)
def test_unsupported_kubeconfig_fields_are_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, reported: str
) -> None:
    """Before anything is sent, with the file, the context and the remedy."""
    access = written(tmp_path / "config", cluster=cluster, user=user)
    with pytest.raises(KubeError, match=reported) as caught:
        Cluster(access)
    assert isinstance(caught.value, KubeconfigError)
    assert f"the context here of {tmp_path}/config can't be used" in str(caught.value)


def test_a_part_that_a_context_names_must_be_there(tmp_path: Path) -> None:
    """The cluster and the user."""
    access = written(tmp_path / "config")
    text = (tmp_path / "config").read_text()
    (tmp_path / "config").write_text(text.replace("name: u", "name: other"))
    with pytest.raises(KubeError, match="has no user u, which its context here names"):
        connection(access)


def test_a_context_without_a_user_shows_no_credentials(tmp_path: Path) -> None:
    """As with `kubectl proxy`, which has them itself."""
    access = written(tmp_path / "config")
    document = yaml.safe_load((tmp_path / "config").read_text())
    for entry in document["contexts"]:
        del entry["context"]["user"]
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert auth_of(connection(access)) is None
    Cluster(access)


def test_the_first_of_several_files_that_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty entries and missing files are passed over; where all are missing the first is the one to name."""
    (tmp_path / "b").touch()
    monkeypatch.setenv("KUBECONFIG", f":{tmp_path}/a:{tmp_path}/b")
    assert kubeconfig_path("", tmp_path) == tmp_path / "b"
    (tmp_path / "b").unlink()
    assert kubeconfig_path("", tmp_path) == tmp_path / "a"


def test_files_of_the_environment_are_found_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the configuration names is; another directory's files of the same names don't count."""
    (tmp_path / "b").touch()
    monkeypatch.chdir("/")
    monkeypatch.setenv("KUBECONFIG", "a:b")
    assert kubeconfig_path("", tmp_path) == tmp_path / "b"


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_file_of_the_environment_that_cannot_be_inspected_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """It may name another cluster than the next one: reading it tells what is wrong."""
    (tmp_path / "b").touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")

    def stat(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Path, "stat", stat)
    assert kubeconfig_path("", tmp_path) == tmp_path / "a"


def test_a_proxy_of_the_kubeconfig_counts_and_one_of_the_environment_not_for_this_host(tmp_path: Path) -> None:
    """As with kubectl."""
    local = connection(written(tmp_path / "local"))
    assert (local.proxy, local.trust_env) == (None, False)
    elsewhere = connection(written(tmp_path / "elsewhere", cluster={"server": "https://10.0.0.1:6443"}))
    assert (elsewhere.proxy, elsewhere.trust_env) == (None, True)
    proxied = connection(written(tmp_path / "proxied", cluster={"proxy-url": "http://127.0.0.1:3128"}))
    assert (proxied.proxy, proxied.trust_env) == ("http://127.0.0.1:3128", False)


@pytest.mark.parametrize("what", ["pipe", "endless", "directory", "loop", "large"])
@pytest.mark.parametrize("role", ["kubeconfig", "token"])
def test_fifo_or_oversized_kubeconfig_is_reported(tmp_path: Path, what: str, role: str) -> None:
    """Nothing waits for it and nothing reads it without end, be it the kubeconfig or a file that it names."""
    odd = tmp_path / "odd"
    match what:
        case "pipe":
            os.mkfifo(odd)
        case "endless":
            odd.symlink_to("/dev/zero")
        case "directory":
            odd.mkdir()
        case "loop":
            odd.symlink_to(odd)
        case _:
            with odd.open("wb") as file:
                file.truncate(LARGEST + 1)
    access = (
        Access(str(odd), ContextName("here"))
        if role == "kubeconfig"
        else written(tmp_path / "c", user={"tokenFile": "odd"})
    )
    with pytest.raises(KubeError, match=r"odd.*(no regular file|symbolic links|more than|Is a directory)") as caught:
        connection(access)
    assert isinstance(caught.value, KubeconfigError)


def test_connections_are_kept_until_the_kubeconfig_changes(tmp_path: Path) -> None:
    """Another file under the name is another connection of whoever has the cluster; a missing one an error."""
    cluster = Cluster(written(tmp_path / "config"))
    first = cluster._connection()
    assert cluster._connection() is first
    (tmp_path / "config").unlink()
    with pytest.raises(KubeError, match="can't be read"):
        cluster.objects()
    written(tmp_path / "config", user={"token": "other"})
    assert cluster._connection() is not first


def test_unused_connection_is_closed(tmp_path: Path) -> None:
    """Not while a request of another thread goes on, nor only at the next garbage collection."""
    cluster = Cluster(written(tmp_path / "config"))
    used = cluster._connection()
    closed: list[str] = []
    weakref.finalize(used, closed.append, "closed")
    written(tmp_path / "config", user={"token": "other"})
    assert cluster._connection() is not used
    assert not closed
    del used
    assert closed


def test_clusters_without_requests_are_released(tmp_path: Path) -> None:
    """Otherwise each context that was ever named would keep its connections."""
    now = 0.0
    clusters = Clusters(lambda: now)
    first, other = written(tmp_path / "one"), written(tmp_path / "two")
    retained = clusters.at(first)
    for now in (300.0, 800.0, 1300.0):  # noqa: B007 - the clock reads it
        assert clusters.at(first) is retained
    clusters.at(other)
    for now in (1800.0, 2300.0):  # noqa: B007 - the clock reads it
        clusters.at(other)
    assert list(clusters._existing) == [other]
    assert clusters.at(first) is not retained


@pytest.mark.parametrize("way", ["renewed in place", "replaced"])
def test_a_credential_that_is_renewed_beside_the_kubeconfig_counts(tmp_path: Path, way: str) -> None:
    """As clusters that renew their certificates and tokens do it, whose kubeconfig stays the same."""
    token = tmp_path / "token"
    token.write_text("one")
    access = written(tmp_path / "config", user={"tokenFile": "token"})
    cluster = Clusters().at(access)
    first = cluster._connection()
    assert cluster._connection() is first
    if way == "replaced":
        (tmp_path / "new").write_text("two")
        (tmp_path / "new").replace(token)
    else:
        token.write_text("two")
    assert cluster._connection() is not first
    token.unlink()
    with pytest.raises(KubeError, match=r"token, which the kubeconfig .*config names, can't be read"):
        cluster.objects()


def test_a_token_file_is_beside_the_kubeconfig(tmp_path: Path) -> None:
    """As kubectl has it, wherever this process is; other sections of the file, be they broken, don't matter."""
    (tmp_path / "token").write_text("t")
    access = written(tmp_path / "config", user={"tokenFile": "token"})
    document = yaml.safe_load((tmp_path / "config").read_text())
    document["users"].append({"name": "broken", "user": {"token": 5}})
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert connection(access).user.token_file == str(tmp_path / "token")


@pytest.mark.parametrize("odd", [b"", b"\n", b"secret\nmore", b"secret\xff", "secr\u00e4t".encode(), b"secret\0"])
def test_invalid_token_is_refused_without_printing_it(tmp_path: Path, odd: bytes) -> None:
    """In a file that is being written, or inline; as soon as it is one, it counts."""
    (tmp_path / "token").write_bytes(odd)
    access = written(tmp_path / "config", user={"tokenFile": "token"})
    for ask in (lambda: Cluster(access).objects(), lambda: Feed(access, "Service")):
        with pytest.raises(KubeError, match="has no token in one line") as caught:
            ask()
        assert (type(caught.value), "secr" in str(caught.value)) == (KubeconfigError, False)
    (tmp_path / "token").write_bytes(b"one\n")
    assert connection(access).files == (str(tmp_path / "token"),)
    if odd.strip():
        with pytest.raises(KubeError, match="its user's token isn't one line") as caught:
            connection(written(tmp_path / "inline", user={"token": odd.decode("latin-1")}))
        assert "secr" not in str(caught.value)


def test_stacks_of_manifests_load_no_client() -> None:
    """It takes a tenth of a second to import, which `up` of a directory needn't wait for."""
    code = (
        "import sys, locallb.cli, locallb.provider, locallb.sources.snapshot, locallb.components.stack\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'httpx2'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "named", ["tokenFile", "client-key", "client-certificate", "certificate-authority", "proxy-url"]
)
@pytest.mark.parametrize("sibling", [False, True])
def test_a_file_of_others_sends_nothing_of_this_user_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, *, sibling: bool
) -> None:
    """A file that it names may be this user's, also by a link beside it; that is refused before anything is read."""
    path, mine = tmp_path / "config", tmp_path / "mine"
    secret = path.with_name("link") if sibling else mine
    value = "http://127.0.0.1:9" if named == "proxy-url" else secret.name if sibling else str(secret)
    in_cluster = named in {"certificate-authority", "proxy-url"}
    access = written(path, **{"cluster" if in_cluster else "user": {named: value}})
    path.chmod(0o666)
    with pytest.raises(KubeconfigError, match=rf"isn't used, because it has {named}, as other users may write .*chmod"):
        connection(access)
    mine.write_text("t")
    if sibling:
        secret.symlink_to(mine)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert connection(access).beyond
    monkeypatch.delenv("KUBECONFIG")
    path.chmod(0o600)
    assert connection(access).beyond


def test_a_file_of_others_without_other_files_is_used(tmp_path: Path) -> None:
    """It sends what it has in it."""
    access = written(tmp_path / "config", cluster={"certificate-authority-data": "", "tls-server-name": "a.test"})
    Path(access.kubeconfig).chmod(0o666)
    assert connection(access).beyond == ()
