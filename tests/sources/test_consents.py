"""Which clusters a stack may use without naming them: those of this host, and those that were confirmed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from locallb.kubernetes.access.errors import UnconfirmedError
from locallb.kubernetes.access.kubeconfig import meaning
from locallb.model.identities import ClusterName, ContextName
from locallb.sources import consents
from locallb.sources.consents import allowed, allowed_meaning, is_local, remember
from locallb.sources.kubernetes.entry import KubernetesSource
from locallb.sources.readings import ReadCache

DEMO = ClusterName("demo")
ELSEWHERE = "https://203.0.113.9:6443"
NAMES = {
    "host.test": ["127.0.0.1", "::1"],
    "both.test": ["127.0.0.1", "203.0.113.9"],
    "far.test": ["203.0.113.9"],
    "none.test": [],
    "localhost": ["127.0.0.1"],
}


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know these names and no others; no proxy is asked."""
    monkeypatch.setattr(consents, "addresses_of", lambda name, _seconds: NAMES[name])
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def write(path: Path, *contexts: str, server: str = ELSEWHERE, **cluster: object) -> Path:
    """Write a kubeconfig with these contexts, the first current, of one cluster."""
    document = {
        "current-context": contexts[0],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in contexts],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("server", "cluster", "local"),
    [
        ("https://127.0.0.1:6443", {}, True),
        ("http://127.77.0.1", {}, True),
        ("https://[::1]:6443", {}, True),
        ("https://0.0.0.0:6443", {}, True),
        ("https://[::ffff:127.0.0.1]:6443", {}, True),
        ("https://localhost:6443", {}, True),
        ("http://localhost:8001", {}, True),
        ("https://host.test:6443", {}, True),
        ("https://host.test:6443", {"insecure-skip-tls-verify": True}, False),
        ("http://host.test:6443", {}, False),
        ("https://both.test:6443", {}, False),
        ("https://far.test:6443", {}, False),
        ("https://none.test:6443", {}, False),
        (ELSEWHERE, {}, False),
        (ELSEWHERE, {"tls-server-name": "localhost"}, False),
        ("https://[::ffff:203.0.113.9]:6443", {}, False),
        ("https://[fe80::1%25lo]:6443", {}, False),
        ("https://10.255.255.1", {}, False),
        ("https://127.0.0.1:6443", {"proxy-url": "http://127.0.0.1:3128"}, False),
        ("nonsense", {}, False),
        ("", {}, False),
    ],
)
def test_a_cluster_is_of_this_host_by_every_address_of_its_server(
    tmp_path: Path, server: str, cluster: dict[str, object], *, local: bool
) -> None:
    """Not by a private range, not by one of several addresses, not by a name that nothing proves."""
    path = write(tmp_path / "config", "a", server=server, **cluster)
    assert is_local(meaning(str(path), ContextName(""), tmp_path).server) is local


@pytest.mark.parametrize(
    ("exempt", "local"), [("", False), ("host.test", True), (".test", True), ("other.test", False), ("*", True)]
)
def test_behind_a_proxy_of_the_environment_no_cluster_is_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str, *, local: bool
) -> None:
    """A name means there what it means to the proxy; loopback is never asked through one."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", exempt)
    servers = [
        meaning(str(write(tmp_path / "c", "a", server=url)), ContextName(""), tmp_path).server
        for url in ("https://host.test", "https://127.0.0.1")
    ]
    assert [*map(is_local, servers)] == [local, True]


def test_a_name_in_the_configuration_is_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context, or a file that is for one cluster alone; not a file that kubectl changes, whatever it is called."""
    one, two = write(tmp_path / "one", "a"), write(tmp_path / "two", "a", "b")
    assert allowed(KubernetesSource(DEMO, str(two), ContextName("b")), tmp_path).context == "b"
    assert allowed(KubernetesSource(DEMO, str(one)), tmp_path).context == "a"
    with pytest.raises(UnconfirmedError, match="the current context a of"):
        allowed(KubernetesSource(DEMO, str(two)), tmp_path)
    monkeypatch.setenv("KUBECONFIG", f"{two}:{one}")
    (tmp_path / "link").symlink_to(one)
    for named in ("", str(one), "link"):
        with pytest.raises(UnconfirmedError, match=r"203\.0\.113\.9.*write `context: a` into the entry demo"):
            allowed(KubernetesSource(DEMO, named), tmp_path)


def test_a_yes_is_for_one_server_by_one_context_of_one_source(tmp_path: Path) -> None:
    """Whatever else the kubeconfig means later is asked again; what was confirmed before is still known then."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "stack/clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    remember(file, DEMO, meaning(str(path), ContextName(""), tmp_path))
    assert allowed(source, tmp_path).context == "a"
    write(path, "b", "a")
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    write(path, "a", "b", server="https://203.0.113.10:6443")
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    remember(file, DEMO, meaning(str(path), ContextName(""), tmp_path))
    write(path, "a", "b")
    assert allowed(source, tmp_path).context == "a"
    with pytest.raises(UnconfirmedError):
        allowed(KubernetesSource(ClusterName("other"), str(path), consents=str(file)), tmp_path)
    with pytest.raises(UnconfirmedError):
        allowed(KubernetesSource(DEMO, str(path)), tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"clusters": 5}', '{"clusters": {"demo": [{}]}}', "[" * 100_000])
def test_a_broken_record_confirms_nothing(tmp_path: Path, text: str) -> None:
    """It is named, in a sentence."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "clusters"
    file.write_text(text)
    with pytest.raises(UnconfirmedError):
        allowed(KubernetesSource(DEMO, str(path), consents=str(file)), tmp_path)


def test_a_reading_of_an_earlier_version_counts_until_something_is_written_down(tmp_path: Path) -> None:
    """By its context, as there is nothing more in it; a broken one counts for nothing."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    ReadCache(tmp_path).keep(DEMO, {"b": ()})
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    (tmp_path / "demo.json").write_text(json.dumps({"version": 1, "files": {"a": []}}))
    meant = allowed_meaning(source, tmp_path)
    remember(file, DEMO, meant)
    write(path, "a", "b", server="https://203.0.113.10:6443")
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    (tmp_path / "demo.json").write_text("{")
    file.unlink()
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
