"""Clusters of kind: how their API is reached from here, and what counts while Docker doesn't answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.clients.containers import Containers, ContainersError, DockerAbsentError
from locallb.planning.model import ClusterName, Home
from locallb.planning.settings import KindSource, KubernetesSource, Settings
from locallb.sources import SourceError
from locallb.sources.kind import endpoint, find_clusters
from locallb.sources.kubernetes import read_kubernetes
from locallb.sources.readings import Readings
from locallb.sources.snapshot import find_sources, readings_directory

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


class Docker:
    """A daemon with containers, as far as kind's clusters matter."""

    def __init__(self) -> None:
        self.clusters: dict[str, dict[str, Any]] = {}
        self.absent = False

    def labelled(self, label: str) -> list[Mapping[str, Any]]:
        """List the nodes of every cluster."""
        assert label == "io.x-k8s.kind.cluster"
        if self.absent:
            raise DockerAbsentError("no Docker daemon answers")
        return [
            {"Id": f"{role} {name}", "Names": [f"/{name}-{role}"], "Labels": {label: name, "io.x-k8s.kind.role": role}}
            for name in self.clusters
            for role in ("worker", "control-plane")
        ]

    def inspect(self, identity: str) -> dict[str, Any]:
        """Read a control-plane container."""
        role, _, name = identity.partition(" ")
        assert role == "control-plane"
        return self.clusters[name]

    def file(self, identity: str, path: str) -> bytes | None:
        """Read the administrator's kubeconfig, which is there once kubeadm is done."""
        assert path == "/etc/kubernetes/admin.conf"
        if identity.endswith("young"):
            return None
        document = {"clusters": [{"cluster": {"server": INSIDE}}], "users": [{"user": {"token": identity}}]}
        return yaml.safe_dump(document).encode()


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    """Put a daemon in Docker's place."""
    made = Docker()
    for name in ("labelled", "inspect", "file"):
        monkeypatch.setattr(Containers, name, lambda _self, *words, name=name: getattr(made, name)(*words))
    return made


def source(name: str, directory: Path) -> KubernetesSource:
    """Make the source that a cluster is taken as."""
    return KubernetesSource(ClusterName(name), str(directory / f"{name}.kubeconfig"), f"kind-{name}", found=True)


def test_each_cluster_is_a_source_with_a_kubeconfig_for_this_user_only(docker: Docker, tmp_path: Path) -> None:
    """Its name is the cluster's; the credentials are those of its administrator."""
    docker.clusters = {"shop": container(), "test": container()}
    directory = tmp_path / "kind"
    found = find_clusters(KindSource(), directory)
    assert found.sources == (source("shop", directory), source("test", directory))
    assert (found.complaints, found.notices) == ((), ())
    path = directory / "shop.kubeconfig"
    assert (path.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": "control-plane shop"}


def test_only_those_that_are_named(docker: Docker, tmp_path: Path) -> None:
    """One that isn't there is told, and is no error: it may come."""
    docker.clusters = {"shop": container(), "test": container()}
    found = find_clusters(KindSource(frozenset({"test", "later"})), tmp_path)
    assert found.sources == (source("test", tmp_path),)
    assert found.notices == ("kind has no cluster later; make it, or take it out of local-lb:sources",)


def test_a_docker_that_does_not_answer_is_not_one_without_clusters(docker: Docker, tmp_path: Path) -> None:
    """Those that were found last count, and the run must not end well; where none is known, nothing begins."""
    docker.absent = True
    with pytest.raises(SourceError, match="start Docker, or correct local-lb:sources"):
        find_clusters(KindSource(), tmp_path)
    docker.absent, docker.clusters = False, {"shop": container()}
    before = find_clusters(KindSource(), tmp_path)
    docker.absent = True
    found = find_clusters(KindSource(), tmp_path)
    assert found.sources == before.sources
    assert found.complaints[0].endswith("so those count that were found last: shop")


def test_a_cluster_is_forgotten_when_docker_says_that_it_is_gone(docker: Docker, tmp_path: Path) -> None:
    """Its context goes with it, so that nobody waits for it; a Docker that is away later doesn't bring it back."""
    docker.clusters = {"shop": container(), "test": container()}
    find_clusters(KindSource(), tmp_path)
    del docker.clusters["shop"]
    assert find_clusters(KindSource(), tmp_path).sources == (source("test", tmp_path),)
    assert yaml.safe_load((tmp_path / "shop.kubeconfig").read_text())["contexts"] == []
    docker.absent = True
    assert find_clusters(KindSource(), tmp_path).sources == (source("test", tmp_path),)


def test_one_that_is_stopped_stays_and_one_that_is_not_up_yet_is_told(docker: Docker, tmp_path: Path) -> None:
    """A stopped container keeps what is known of it; one that kubeadm still works on has nothing to know."""
    docker.clusters = {"shop": container()}
    find_clusters(KindSource(), tmp_path)
    docker.clusters = {"shop": container(running=False), "young": container()}
    found = find_clusters(KindSource(), tmp_path)
    assert found.sources == (source("shop", tmp_path),)
    assert found.notices == ("the cluster young of kind isn't up yet",)
    assert found.unready


def test_only_a_cluster_in_the_making_is_worth_another_look(docker: Docker, tmp_path: Path) -> None:
    """One that runs without a kubeconfig; neither one that is stopped, nor one that is up."""
    docker.clusters = {"shop": container(), "young": container(running=False)}
    assert not find_clusters(KindSource(), tmp_path).unready
    docker.clusters["young"] = container()
    assert find_clusters(KindSource(), tmp_path).unready
    assert not find_clusters(KindSource(frozenset({"shop"})), tmp_path).unready


def test_a_docker_that_refuses_is_asked_again_and_one_that_is_away_tells_of_its_return(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that goes at this very moment makes Docker refuse; nobody tells when that is over."""
    docker.clusters = {"shop": container()}
    find_clusters(KindSource(), tmp_path)
    docker.absent = True
    assert not find_clusters(KindSource(), tmp_path).unready

    def refuse(*_words: object) -> bytes:
        raise ContainersError("Docker refuses: it is being removed")

    docker.absent = False
    monkeypatch.setattr(Containers, "file", refuse)
    found = find_clusters(KindSource(), tmp_path)
    assert found.sources == (source("shop", tmp_path),)
    assert found.unready


def test_one_that_does_not_answer_is_no_error_only_while_nothing_is_known_of_it(docker: Docker, tmp_path: Path) -> None:
    """The kubeconfig is written before the API answers; whoever served it before must hear that it doesn't."""
    here = [{"HostIp": "127.0.0.1", "HostPort": "1"}]
    docker.clusters = {"shop": container(here)}
    (found,) = find_clusters(KindSource(), tmp_path / "kind").sources
    young = read_kubernetes(found, tmp_path, tmp_path, held=False)
    assert young.unready
    assert young.reading.stale == ()
    (notice,) = young.reading.parsed.notices
    assert notice.startswith("the cluster shop of kind isn't up yet: https://127.0.0.1:1 doesn't answer")
    with pytest.raises(SourceError, match="start it, or correct local-lb:sources"):
        read_kubernetes(found, tmp_path, tmp_path, held=True)
    Readings(tmp_path).keep(ClusterName("shop"), {"kind-shop": ({"kind": "Service"},)})
    (stale,) = read_kubernetes(found, tmp_path, tmp_path, held=False).reading.stale
    assert "its Services count as last read" in stale


def test_what_was_read_of_a_cluster_that_is_gone_says_nothing_of_the_next_one(docker: Docker, tmp_path: Path) -> None:
    """Clusters are called `kind` where nobody gives them a name."""
    home = Home("p", "dev", str(tmp_path))
    settings = Settings((), (), kind=KindSource())
    docker.clusters = {"kind": container()}
    find_sources(home, settings)
    readings = Readings(readings_directory(home))
    readings.keep(ClusterName("kind"), {"kind-kind": ({"kind": "Service"},)})
    find_sources(home, settings)
    assert readings.load(ClusterName("kind"))
    docker.clusters = {}
    find_sources(home, settings)
    assert readings.load(ClusterName("kind")) is None
