"""Which clusters a stack may use without naming them: those of this host, and those that were confirmed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
import yaml

from locallb.kubernetes.api.kubeconfig import meaning
from locallb.kubernetes.api.servers import UnconfirmedError
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.sources import consents
from locallb.sources.configuration import is_confirmable, stack_settings
from locallb.sources.consents import allowed, allowed_meaning, is_local, note_served, remember
from locallb.sources.entries import KubernetesSource, MachinesFinder
from locallb.sources.kubernetes import nodes
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
    intended = allowed_meaning(source, tmp_path)
    remember(file, DEMO, intended)
    write(path, "a", "b", server="https://203.0.113.10:6443")
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    (tmp_path / "demo.json").write_text("{")
    file.unlink()
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)


@pytest.mark.parametrize(
    "cluster",
    [
        {"proxy-url": "socks5://127.0.0.1:1080"},
        {"certificate-authority-data": "b3RoZXI="},
        {"certificate-authority": "other.crt"},
        {"tls-server-name": "other.test"},
        {"insecure-skip-tls-verify": True},
    ],
    ids=lambda cluster: next(iter(cluster)),
)
def test_a_yes_is_for_a_cluster_and_not_for_its_url(tmp_path: Path, cluster: dict[str, object]) -> None:
    """One URL may lead to several: through a proxy, or proven by another certificate."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    remember(file, DEMO, meaning(str(path), ContextName(""), tmp_path))
    write(path, "a", "b", server=ELSEWHERE, **cluster)
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    write(path, "a", "b", extensions=[])
    assert allowed(source, tmp_path).context == "a"


def test_reading_a_cluster_of_this_host_confirms_no_other(tmp_path: Path) -> None:
    """Neither by what is written down, nor by the reading itself, in which the other has the same context."""
    path, file = write(tmp_path / "config", "default", "b", server="https://127.0.0.1:6443"), tmp_path / "clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    note_served(source, allowed_meaning(source, tmp_path), tmp_path)
    ReadCache(tmp_path).keep(DEMO, {"default": ()})
    (tmp_path / "demo.json").write_text(json.dumps({"version": 1, "files": {"default": []}}))
    assert allowed(source, tmp_path).context == "default"
    for other in ({"server": ELSEWHERE}, {"server": "https://127.0.0.1:6443", "proxy-url": "socks5://127.0.0.1:1"}):
        write(path, "default", "b", **other)
        with pytest.raises(UnconfirmedError):
            allowed(source, tmp_path)


def test_a_cluster_that_an_earlier_version_served_is_written_down_once(tmp_path: Path) -> None:
    """Then its context alone no longer counts."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    (tmp_path / "demo.json").write_text(json.dumps({"version": 1, "files": {"a": []}}))
    note_served(source, allowed_meaning(source, tmp_path), tmp_path)
    assert allowed(source, tmp_path).context == "a"
    write(path, "a", "b", **{"proxy-url": "http://127.0.0.1:1"})
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)


def test_a_yes_without_the_way_to_its_cluster_is_asked_for_again(tmp_path: Path) -> None:
    """It can be read; other sources' beside it count on."""
    path, file = write(tmp_path / "config", "a", "b"), tmp_path / "clusters"
    source = KubernetesSource(DEMO, str(path), consents=str(file))
    consent = {"kubeconfig": str(path), "context": "a", "server": ELSEWHERE}
    file.write_text(json.dumps({"format": 1, "clusters": {"demo": [consent]}}))
    with pytest.raises(UnconfirmedError):
        allowed(source, tmp_path)
    remember(file, DEMO, meaning(str(path), ContextName(""), tmp_path))
    assert allowed(source, tmp_path).context == "a"


def test_nodes_of_a_cluster_are_asked_for_only_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A current context that leads elsewhere is sent nothing, and the sentence says where to name it."""
    monkeypatch.setattr(nodes, "MachinesApi", lambda _access: pytest.fail("it was asked"))
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", "prod", "b")))
    finder = MachinesFinder(DEMO, "infra-demo")
    found = nodes.find_nodes(finder, tmp_path, tmp_path, keep=False)
    assert "write `context: prod` into `nodes` of the entry demo" in found.complaints[0]


def test_a_stack_with_nodes_of_a_current_context_can_be_read() -> None:
    """Only sources and finders that users may confirm know the file with confirmed clusters."""
    text = json.dumps([{"kubernetes": {"name": "demo", "nodes": {}}}])
    settings = stack_settings({"local-lb:sources": text}, Home("p", "dev", "/p"))
    (source,), (finder,) = settings.sources, settings.finders
    assert [is_confirmable(entry) for entry in (source, finder)] == [True, False]
    assert cast("KubernetesSource", source).consents.endswith("/clusters")
