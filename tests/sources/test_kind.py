"""Clusters of kind: how their API is reached from here, and what counts while Docker doesn't answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locallb.config.settings import Settings
from locallb.kubernetes.api.kubeconfig import UNWRITTEN, connection, stamp
from locallb.kubernetes.api.servers import KubeError, NoContextError
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.model.snapshot import Access
from locallb.runtimes.docker.daemon import ContainersError, DockerAbsentError
from locallb.runtimes.docker.engine_api import Containers
from locallb.sources import SourceError
from locallb.sources.entries import KindClusters, KubernetesSource
from locallb.sources.found import find_sources
from locallb.sources.kept_access import LARGEST
from locallb.sources.kind import SOURCE, admitted, endpoint, find_clusters
from locallb.sources.kubernetes.reading import read_kubernetes
from locallb.sources.readings import ReadCache
from locallb.storage.paths import stack_directory
from tests.sources.support import files_in
from tests.support.kind_containers import put_in_place_of_docker

INSIDE = "https://shop-control-plane:6443"


def container(published: list[dict[str, str]] | None = None, *, running: bool = True) -> dict[str, Any]:
    """Make what Docker says of a control-plane container."""
    return {
        "Name": "/shop-control-plane",
        "Config": {"Hostname": "shop-control-plane"},
        "State": {"Running": running},
        "NetworkSettings": {
            "Ports": {"6443/tcp": published},
            "Networks": {"none": {"IPAddress": ""}, "kind": {"IPAddress": "172.18.0.3"}},
        },
    }


@pytest.mark.parametrize(
    ("server", "published", "reached"),
    [
        (INSIDE, [{"HostIp": "127.0.0.1", "HostPort": "40123"}], "https://127.0.0.1:40123"),
        (INSIDE, [{"HostIp": "0.0.0.0", "HostPort": "40123"}], "https://127.0.0.1:40123"),
        (INSIDE, [{"HostIp": "::", "HostPort": "40123"}], "https://[::1]:40123"),
        (INSIDE, [{"HostIp": "fd00::1", "HostPort": "40123"}], "https://[fd00::1]:40123"),
        (INSIDE, None, "https://172.18.0.3:6443"),
        ("https://192.168.1.9:6443", None, "https://192.168.1.9:6443"),
    ],
)
def test_the_api_is_reached_where_it_is_published(
    server: str, published: list[dict[str, str]] | None, reached: str
) -> None:
    """Otherwise at the container's address; an address that isn't the container's name stays."""
    assert endpoint(server, container(published)) == reached


def admin(cluster: dict[str, Any], user: dict[str, Any]) -> bytes:
    return yaml.safe_dump({"clusters": [{"cluster": cluster}], "users": [{"user": user}]}).encode()


class Docker:
    """A daemon with containers, as far as kind's clusters matter."""

    def __init__(self) -> None:
        self.clusters: dict[str, dict[str, Any]] = {}
        self.absent = False

    def labelled(self, label: str) -> list[Mapping[str, Any]]:
        assert label == "io.x-k8s.kind.cluster"
        if self.absent:
            raise DockerAbsentError("no Docker daemon answers")
        return [
            {"Id": f"{role} {name}", "Names": [f"/{name}-{role}"], "Labels": {label: name, "io.x-k8s.kind.role": role}}
            for name in self.clusters
            for role in ("worker", "control-plane")
        ]

    def inspect(self, identity: str) -> dict[str, Any]:
        role, _, name = identity.partition(" ")
        assert role == "control-plane"
        return self.clusters[name]

    def file(self, identity: str, path: str, maximum: int) -> bytes | None:
        """Read the administrator's kubeconfig, which is there once kubeadm is done."""
        assert (path, maximum) == ("/etc/kubernetes/admin.conf", LARGEST)
        if identity.endswith("young"):
            return None
        return admin({"server": INSIDE}, {"token": identity})


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker()
    put_in_place_of_docker(monkeypatch, made)
    return made


def source(name: str, directory: Path) -> KubernetesSource:
    """Make the source that a cluster is taken as."""
    return KubernetesSource(
        ClusterName(name), str(directory / f"{name}.kubeconfig"), ContextName(f"kind-{name}"), found=True
    )


def test_each_cluster_is_a_source_with_a_kubeconfig_for_this_user_only(docker: Docker, tmp_path: Path) -> None:
    """Its name is the cluster's; the credentials are those of its administrator."""
    docker.clusters = {"shop": container(), "test": container()}
    directory = tmp_path / "kind"
    finding = find_clusters(KindClusters(), directory, keep=True)
    assert finding.sources == (source("shop", directory), source("test", directory))
    assert (finding.complaints, finding.notices) == ((), ())
    path = directory / "shop.kubeconfig"
    assert (path.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": "control-plane shop"}


def test_only_those_that_are_named(docker: Docker, tmp_path: Path) -> None:
    """One that isn't there is told, and is no error: it may come."""
    docker.clusters = {"shop": container(), "test": container()}
    finding = find_clusters(KindClusters(frozenset({"test", "later"})), tmp_path, keep=True)
    assert finding.sources == (source("test", tmp_path),)
    assert finding.notices == ("kind has no cluster later; make it, or take it out of local-lb:sources",)


def test_a_docker_that_does_not_answer_is_not_one_without_clusters(docker: Docker, tmp_path: Path) -> None:
    """Those that were found last count, and the run must not end well; where none is known, nothing begins."""
    docker.absent = True
    with pytest.raises(SourceError, match="or take `kind` out of local-lb:sources"):
        find_clusters(KindClusters(), tmp_path, keep=True)
    docker.absent, docker.clusters = False, {"shop": container()}
    before = find_clusters(KindClusters(), tmp_path, keep=True)
    docker.absent = True
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    assert finding.sources == before.sources
    assert finding.complaints[0].endswith("so those count that were found last: shop")


def test_a_cluster_is_forgotten_when_docker_says_that_it_is_gone(docker: Docker, tmp_path: Path) -> None:
    """Its context goes with it, so that nobody waits for it; a Docker that is away later doesn't bring it back."""
    docker.clusters = {"shop": container(), "test": container()}
    find_clusters(KindClusters(), tmp_path, keep=True)
    del docker.clusters["shop"]
    assert find_clusters(KindClusters(), tmp_path, keep=True).sources == (source("test", tmp_path),)
    assert yaml.safe_load((tmp_path / "shop.kubeconfig").read_text())["contexts"] == []
    docker.absent = True
    assert find_clusters(KindClusters(), tmp_path, keep=True).sources == (source("test", tmp_path),)


def test_stopped_kind_cluster_is_kept_and_a_starting_one_reported(docker: Docker, tmp_path: Path) -> None:
    """A stopped container keeps what is known of it; while kubeadm works on one there is nothing to know."""
    docker.clusters = {"shop": container()}
    find_clusters(KindClusters(), tmp_path, keep=True)
    docker.clusters = {"shop": container(running=False), "young": container()}
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    assert finding.sources == (source("shop", tmp_path),)
    assert finding.notices == ("the cluster young isn't up yet",)
    assert finding.unready


def test_only_a_cluster_in_the_making_is_worth_another_look(docker: Docker, tmp_path: Path) -> None:
    """One that runs without a kubeconfig; neither one that is stopped, nor one that is up."""
    docker.clusters = {"shop": container(), "young": container(running=False)}
    assert not find_clusters(KindClusters(), tmp_path, keep=True).unready
    docker.clusters["young"] = container()
    assert find_clusters(KindClusters(), tmp_path, keep=True).unready
    assert not find_clusters(KindClusters(frozenset({"shop"})), tmp_path, keep=True).unready


def test_a_docker_that_refuses_is_asked_again_and_one_that_is_away_tells_of_its_return(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that goes at this very moment makes Docker refuse; nobody tells when that is over."""
    docker.clusters = {"shop": container()}
    find_clusters(KindClusters(), tmp_path, keep=True)
    docker.absent = True
    assert not find_clusters(KindClusters(), tmp_path, keep=True).unready

    def refuse(*_terms: object) -> bytes:
        raise ContainersError("Docker refuses: it is being removed")

    docker.absent = False
    monkeypatch.setattr(Containers, "file", refuse)
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    assert finding.sources == (source("shop", tmp_path),)
    assert finding.unready


def test_silent_kind_cluster_is_no_error_only_while_nothing_is_known_of_it(docker: Docker, tmp_path: Path) -> None:
    """The kubeconfig is written before the API answers; silence of a cluster that was served must be reported."""
    here = [{"HostIp": "127.0.0.1", "HostPort": "1"}]
    docker.clusters = {"shop": container(here)}
    (source,) = find_clusters(KindClusters(), tmp_path / "kind", keep=True).sources
    young = read_kubernetes(source, tmp_path, tmp_path, held=False)
    assert young.unready
    assert young.reading.stale == ()
    (notice,) = young.reading.parsed.notices
    assert notice.startswith("the cluster shop isn't up yet: https://127.0.0.1:1 doesn't answer")
    with pytest.raises(SourceError, match="start it, or correct local-lb:sources"):
        read_kubernetes(source, tmp_path, tmp_path, held=True)
    ReadCache(tmp_path).keep(ClusterName("shop"), {"kind-shop": ({"kind": "Service"},)})
    (stale,) = read_kubernetes(source, tmp_path, tmp_path, held=False).reading.stale
    assert "its Services count as last read" in stale


def test_reading_of_a_deleted_kind_cluster_is_dropped(docker: Docker, tmp_path: Path) -> None:
    """The next one may have the same name: clusters are called `kind` unless they are named."""
    home = Home("p", "dev", str(tmp_path))
    configured = Settings((), (), finders=(KindClusters(),))
    docker.clusters = {"kind": container()}
    find_sources(home, configured, keep=True)
    readings = ReadCache(stack_directory(home))
    readings.keep(ClusterName("kind"), {"kind-kind": ({"kind": "Service"},)})
    find_sources(home, configured, keep=True)
    assert readings.load(ClusterName("kind"))
    docker.clusters = {}
    find_sources(home, configured, keep=True)
    assert readings.load(ClusterName("kind")) is None


def test_deselected_kind_cluster_keeps_its_kubeconfig_while_it_exists(docker: Docker, tmp_path: Path) -> None:
    """So that its statuses can be withdrawn; once it is gone as well, nobody waits for it."""
    docker.clusters = {"a": container(), "b": container()}
    find_clusters(KindClusters(), tmp_path, keep=True)
    before = files_in(tmp_path)
    finding = find_clusters(KindClusters(frozenset({"a"})), tmp_path, keep=True)
    assert (finding.sources, finding.removed) == ((source("a", tmp_path),), ())
    assert files_in(tmp_path) == before
    docker.clusters["b"] = container([{"HostIp": "127.0.0.1", "HostPort": "40123"}])
    find_clusters(KindClusters(frozenset({"a"})), tmp_path, keep=True)
    assert connection(Access(str(tmp_path / "b.kubeconfig"), ContextName("kind-b"))).server == "https://127.0.0.1:40123"
    docker.absent = True
    finding = find_clusters(KindClusters(frozenset({"a"})), tmp_path, keep=True)
    assert finding.sources == (source("a", tmp_path),)
    docker.absent = False
    del docker.clusters["b"]
    assert find_clusters(KindClusters(frozenset({"a"})), tmp_path, keep=True).removed == (ClusterName("b"),)
    with pytest.raises(KubeError) as caught:
        connection(Access(str(tmp_path / "b.kubeconfig"), ContextName("kind-b")))
    assert isinstance(caught.value, NoContextError)


def test_kind_clusters_stay_when_docker_host_leads_elsewhere(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is removed; only removing a file says that they are gone for good."""
    docker.clusters = {"a": container(), "b": container()}
    find_clusters(KindClusters(), tmp_path, keep=True)
    before = files_in(tmp_path)
    docker.clusters, here = {}, Containers().host
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere")
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    assert (finding.sources, finding.removed, finding.notices) == (
        (source("a", tmp_path), source("b", tmp_path)),
        (),
        (),
    )
    (reported,) = finding.complaints
    assert reported.startswith(
        f"source kind: a, b ran in the engine at {here}, this is Docker at unix:///elsewhere, so"
    )
    assert (
        f"so those count as last found; correct DOCKER_HOST, or remove {tmp_path}/docker if they are gone" in reported
    )
    assert files_in(tmp_path) == before
    docker.clusters = {"c": container()}
    finding = find_clusters(KindClusters(frozenset({"a", "c"})), tmp_path, keep=True)
    assert [source.cluster for source in finding.sources] == ["a", "c"]
    (tmp_path / "docker").unlink()
    assert find_clusters(KindClusters(), tmp_path, keep=True).removed == (ClusterName("a"), ClusterName("b"))


def test_unselected_kind_cluster_is_not_asked_for_its_credentials(docker: Docker, tmp_path: Path) -> None:
    """Clusters of others are left alone."""
    docker.clusters = {"a": container(), "b": container()}
    find_clusters(KindClusters(frozenset({"a"})), tmp_path, keep=True)
    assert sorted(files_in(tmp_path)) == ["a.kubeconfig", "docker"]


NAMED = st.frozensets(st.sampled_from("abc"))


@given(st.lists(st.tuples(NAMED, NAMED, NAMED, st.booleans(), st.booleans()), max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_kubeconfig_ends_only_with_its_container_and_previews_write_nothing(
    docker: Docker,
    steps: list[tuple[frozenset[str], frozenset[str], frozenset[str], bool, bool]],
) -> None:
    """Whatever is meant, stopped, away, in whatever order; what a preview finds is reached all the same."""
    with tempfile.TemporaryDirectory() as place:
        directory, served = Path(place), set[str]()
        for exist, stopped, intended, absent, keep in steps:
            docker.absent = False
            docker.clusters = {name: container(running=name not in stopped) for name in exist}
            docker.absent = absent
            before = files_in(directory)
            try:
                finding = find_clusters(KindClusters(intended), directory, keep=keep)
            except SourceError:
                assert absent
                continue
            if not keep:
                assert files_in(directory) == before
            for source in finding.sources:
                connection(Access(source.kubeconfig, source.context))
            if keep and not absent:
                served = (served & exist) | {str(source.cluster) for source in finding.sources}
            for name in served:
                connection(Access(str(directory / f"{name}.kubeconfig"), ContextName(f"kind-{name}")))
    UNWRITTEN.clear()


def test_a_preview_reaches_a_cluster_without_writing_how(docker: Docker, tmp_path: Path) -> None:
    """What it found is forgotten once it is written."""
    docker.clusters = {"shop": container()}
    (source,) = find_clusters(KindClusters(), tmp_path / "kind", keep=False).sources
    assert not (tmp_path / "kind").exists()
    access = Access(source.kubeconfig, source.context)
    assert connection(access).server == "https://172.18.0.3:6443"
    assert stamp(access) == stamp(access) != ()
    find_clusters(KindClusters(), tmp_path / "kind", keep=True)
    assert UNWRITTEN == {}
    docker.clusters = {}
    before = files_in(tmp_path)
    assert find_clusters(KindClusters(), tmp_path / "kind", keep=False).removed == (ClusterName("shop"),)
    assert files_in(tmp_path) == before


DATA = {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}


@pytest.mark.parametrize(
    ("cluster", "user", "claimed", "refused"),
    [
        ({}, DATA, DATA, ()),
        ({"certificate-authority-data": "Q0E="}, {"token": "t"}, {"token": "t"}, ()),
        ({}, {**DATA, "exec": {"command": "sh", "args": ["-c", "touch ran"]}}, DATA, ("exec",)),
        ({}, {**DATA, "auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}}, DATA, ("auth-provider",)),
        ({}, {**DATA, "tokenFile": "/etc/passwd"}, DATA, ("tokenFile",)),
        ({}, {**DATA, "client-key": "/root/key"}, DATA, ("client-key",)),
        ({}, {**DATA, "as": "x", "as-groups": ["system:masters"]}, DATA, ("as", "as-groups")),
        ({}, {"token": "t", "username": "u", "password": "p"}, {"token": "t"}, ("username", "password")),
        ({}, {"token": "t", "extensions": [{"name": "x"}]}, {"token": "t"}, ("extensions",)),
        ({"proxy-url": "http://evil"}, {"token": "t"}, {"token": "t"}, ("proxy-url",)),
        ({"insecure-skip-tls-verify": True}, {"token": "t"}, {"token": "t"}, ("insecure-skip-tls-verify",)),
        ({"certificate-authority": "/etc/passwd"}, {"token": "t"}, {"token": "t"}, ("certificate-authority",)),
        ({"tls-server-name": "x", "extensions": []}, {"token": "t"}, {"token": "t"}, ("tls-server-name", "extensions")),
        ({}, {"token": ["t"]}, None, ("token",)),
        ({}, {"exec": {"command": "sh"}}, None, ("exec",)),
        ({}, {}, None, ("no certificate and no token",)),
    ],
)
def test_a_container_gives_certificates_and_tokens_and_nothing_else(
    cluster: dict[str, Any], user: dict[str, Any], claimed: dict[str, str] | None, refused: tuple[str, ...]
) -> None:
    """Nothing that runs a command here, reads a file, leads elsewhere or trusts everybody."""
    way = admitted(ContextName("kind-x"), admin({"server": INSIDE, **cluster}, user), container())
    assert set(way.refused) == set(refused)
    if claimed is None:
        assert way.text == ""
        return
    document = yaml.safe_load(way.text)
    assert document["users"] == [{"name": "kind-x", "user": claimed}]
    (entry,) = document["clusters"]
    assert entry["cluster"].keys() <= {"server", "certificate-authority-data"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[",
        b"a: *a",
        b"clusters: 5",
        b"clusters: [{cluster: [1]}]\nusers: [{user: {}}]",
        b"clusters: [{cluster: {server: 'https://[x'}}]\nusers: [{user: {token: t}}]",
        b"\x00\xff",
        admin({"server": INSIDE}, {"token": "t"})[:30],
        b"x: &x [" + b"y, " * 50_000 + b"y]\nz: [" + b"*x, " * 50_000 + b"*x]",
        None,
    ],
)
def test_node_without_kubeconfig_is_no_cluster_yet(text: bytes | None) -> None:
    """It isn't made yet, or never will be."""
    assert admitted(ContextName("kind-x"), text, container()).text == ""


def test_kind_kubeconfig_with_more_than_credentials_is_reported(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a credential of its own the cluster doesn't count as starting; a kept kubeconfig with more isn't used."""
    docker.clusters = {"shop": container()}
    evil = admin({"server": INSIDE}, {"exec": {"command": "sh"}})
    monkeypatch.setattr(Containers, "file", lambda *_terms: evil)
    (tmp_path / "shop.kubeconfig").write_text(
        yaml.safe_dump({**yaml.safe_load(evil), "contexts": [{"name": "kind-shop"}], "kind": "Config"})
    )
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    reported = (
        "the kubeconfig in the container of the cluster shop of kind has exec; local-lb takes certificates and a token"
    )
    assert finding.notices == (f"{reported} from there and nothing else, so the cluster isn't read",)
    assert (finding.sources, finding.unready) == ((), False)
    monkeypatch.setattr(
        Containers, "file", lambda *_terms: admin({"server": INSIDE, "proxy-url": "http://evil"}, {"token": "t"})
    )
    finding = find_clusters(KindClusters(), tmp_path, keep=True)
    assert finding.notices[0].endswith(
        "has proxy-url; local-lb takes certificates and a token from there and nothing else, that is passed over"
    )
    assert finding.sources == (source("shop", tmp_path),)


@pytest.mark.parametrize("classes", [True, False])
def test_found_clusters_get_classes_as_their_entry_says(docker: Docker, tmp_path: Path, *, classes: bool) -> None:
    """By default they do."""
    docker.clusters = {"shop": container()}
    finder = KindClusters() if classes else KindClusters(classes=False)
    finding = SOURCE.find(finder, tmp_path, tmp_path / "kind", keep=True)
    assert [found.classes for found in finding.sources] == [classes]
