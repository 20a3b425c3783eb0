"""What the loop knows of the world while clusters of kind come and go, with a Docker that is played."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.config.settings import Settings
from locallb.ledger.ledger import Ledger
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.model.snapshot import HostFacts
from locallb.runtimes.docker.daemon import DockerAbsentError
from locallb.sources import SourceError
from locallb.sources import snapshot_cache as worlds
from locallb.sources.entries import GardenerFinder, KindClusters, ManifestsSource
from locallb.sources.snapshot import SnapshotResult
from locallb.sources.snapshot_cache import Changes, SnapshotCache
from locallb.sources.workspace import EVERYTHING
from locallb.storage import paths
from locallb.watch.events import Cause, Mark
from locallb.watch.planner import changes_of, next_check
from tests.support.kind_containers import put_in_place_of_docker
from tests.support.seed_api import kubeconfig, served_seed
from tests.support.waiting import becomes

INSPECT = changes_of({Mark(Cause.FOUND_CLUSTERS)})
ADMIN = {
    "clusters": [{"cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"user": {"token": "t"}}],
}
"""Of a cluster whose API doesn't answer."""
SERVICE = ObjectKey(ClusterName("c"), "n", "web")


class Docker:
    """A daemon with control planes: each with its administrator's kubeconfig, none while it is being made."""

    def __init__(self) -> None:
        self.clusters: dict[str, bytes | None] = {}
        self.absent = False
        self.requested = 0

    def labelled(self, label: str) -> list[Mapping[str, Any]]:
        self.requested += 1
        if self.absent:
            raise DockerAbsentError("Docker doesn't answer")
        return [
            {"Id": name, "Names": [f"/{name}"], "Labels": {label: name, "io.x-k8s.kind.role": "control-plane"}}
            for name in self.clusters
        ]

    def inspect(self, identity: str) -> Mapping[str, Any]:
        return {"Id": identity, "Name": f"/{identity}", "State": {"Running": True}}

    def file(self, identity: str, _path: str, _largest: int) -> bytes | None:
        return self.clusters[identity]


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker()
    put_in_place_of_docker(monkeypatch, made)
    return made


@pytest.fixture
def world(docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SnapshotCache]:
    """Return the world of a stack with a directory of manifests and clusters of kind."""
    del docker
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALLB_LEDGER", str(tmp_path / "ledger"))  # whoever else serves on this host has claims too
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: worker}}")
    settings = Settings((ManifestsSource(ClusterName("c"), "manifests"),), (), finders=(KindClusters(),))
    made = SnapshotCache(Home("p", "dev", str(tmp_path)), settings, tuple, lambda _name: None)
    yield made
    made.stop()


def wrote(tmp_path: Path) -> Callable[[str], None]:
    def write(name: str) -> None:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
        document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "n"}, "spec": spec}
        (tmp_path / "manifests" / f"{name}.yaml").write_text(yaml.safe_dump(document))

    return write


def names(reading: SnapshotResult) -> set[str]:
    return {service.key.name for service in reading.snapshot.services}


def holders(reading: SnapshotResult) -> list[ObjectKey]:
    return [claim.owner.service for claim in reading.snapshot.claims]


def test_looking_for_clusters_reads_no_other_source(docker: Docker, world: SnapshotCache, tmp_path: Path) -> None:
    """And a mark of another source asks Docker nothing."""
    write = wrote(tmp_path)
    write("first")
    assert names(world.read(EVERYTHING)) == {"first"}
    write("second")
    requested = docker.requested
    assert names(world.read(INSPECT)) == {"first"}
    assert docker.requested == requested + 1
    assert names(world.read(Changes(sources=frozenset({"c"})))) == {"first", "second"}
    assert docker.requested == requested + 1


@contextmanager
def claims_refused(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Have the system refuse to open claims."""
    open_file = os.open

    def refused(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith(".json") and "ledger" in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return open_file(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        yield


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_ledger_that_the_host_cannot_read_for_a_moment_is_not_planned_with(
    world: SnapshotCache, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nor is it what counts afterwards, the ledger being the same."""
    Ledger(paths.ledgers()[0]).claim(ip_address("127.77.0.5"), Owner(Home("p", "dev", "/nowhere"), SERVICE))
    with claims_refused(monkeypatch, number), pytest.raises(ClientError, match=os.strerror(number)):
        world.read(EVERYTHING)
    assert holders(world.read(EVERYTHING)) == [SERVICE]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_claim_that_a_disk_does_not_give_for_a_moment_is_reported_and_looked_at_again(
    world: SnapshotCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """All else is planned with meanwhile. It is read once it can be, the ledger being the same."""
    wrote(tmp_path)("web")
    ledger = Ledger(paths.ledgers()[0])
    ledger.claim(ip_address("127.77.0.5"), Owner(Home("p", "dev", "/nowhere"), SERVICE))
    (path,) = ledger.directory.iterdir()
    with claims_refused(monkeypatch, number):
        reading = world.read(EVERYTHING)
        assert names(reading) == {"web"}
        (reported,) = reading.complaints
        assert reported.startswith(
            f"can't determine who holds 127.77.0.5: {path} can't be read: {os.strerror(number)}; "
        )
        assert reported.endswith("; nobody new gets the address")
        assert next_check(reading) is not None
    reading = world.read(Changes())
    assert (holders(reading), reading.complaints, next_check(reading)) == ([SERVICE], (), None)


def test_a_cluster_in_the_making_is_worth_looks_for_a_while(
    docker: Docker, world: SnapshotCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its kubeconfig is there, and not for ever; a container that comes or goes is a new beginning."""
    world.read(EVERYTHING)
    assert not world.unready()
    docker.clusters["young"] = None
    assert world.read(INSPECT).notices == ("the cluster young isn't up yet",)
    assert world.unready()
    since = world._unready
    world.read(INSPECT)
    assert world._unready == since
    world.read(changes_of({Mark(Cause.FOUND_CLUSTERS, "other")}))
    assert world._unready != since
    monkeypatch.setattr(worlds, "TIMEOUT", 0.0)
    assert not world.unready()


def test_a_cluster_that_was_found_and_does_not_answer_yet_is_no_error(docker: Docker, world: SnapshotCache) -> None:
    """Neither its first look nor any other waits for it; it says why at the look at everything."""
    world.read(EVERYTHING)
    docker.clusters["young"] = yaml.safe_dump(ADMIN).encode()
    for changes in (INSPECT, Changes(sources=frozenset({"young"})), INSPECT):
        reading = world.read(changes)
        assert reading.complaints == ()
        assert reading.notices == ("the cluster young isn't up yet",)
    (notice,) = world.read(changes_of({Mark(Cause.FULL)})).notices
    assert notice.startswith("the cluster young isn't up yet")
    docker.clusters = {}
    reading = world.read(INSPECT)
    assert (reading.notices, reading.complaints) == ((), ())


def test_a_docker_that_goes_away_takes_nothing_away(docker: Docker, world: SnapshotCache, tmp_path: Path) -> None:
    """Also where the last word was that there is no cluster; only at the start that is unknown."""
    write = wrote(tmp_path)
    docker.absent = True
    with pytest.raises(SourceError, match="or take `kind` out"):
        world.read(EVERYTHING)
    docker.absent = False
    assert world.read(EVERYTHING).complaints == ()
    docker.absent = True
    reading = world.read(INSPECT)
    assert [complaint for complaint in reading.complaints if "Docker doesn't answer" in complaint]
    write("first")
    assert names(world.read(Changes(sources=frozenset({"c"})))) == {"first"}
    docker.absent = False
    assert world.read(INSPECT).complaints == ()


def test_what_was_known_of_the_host_counts_while_its_engine_cannot_be_asked(
    world: SnapshotCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests are read meanwhile; what the engine answers then counts."""
    before, less = world.read(EVERYTHING).snapshot.host, HostFacts(envoy="less")
    for unknown, host in (("Docker doesn't answer", before), ("", less)):
        monkeypatch.setattr(worlds, "glance_at_host", lambda *_, unknown=unknown: (less, unknown))
        world.invalidate_host_facts()
        wrote(tmp_path)(f"web-{len(unknown)}")
        reading = world.read(Changes(sources=frozenset({"c"})))
        assert f"web-{len(unknown)}" in names(reading)
        assert reading.snapshot.host == host
        assert reading.complaints == ((unknown,) if unknown else ())


def test_shoots_that_come_and_sleep_are_looked_at_where_a_mark_says_so(tmp_path: Path) -> None:
    """One that was named by its seed is served with the others; while it sleeps it counts as last read."""
    with served_seed(tmp_path / "seed.kubeconfig") as seed, served_seed() as shoot:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]}
        metadata = {"namespace": "n", "name": "web", "uid": "u", "resourceVersion": "1"}
        shoot.objects["/api/v1/services"] = [{"metadata": metadata, "spec": spec}]
        settings = Settings((), (), finders=(GardenerFinder(ClusterName("seed"), "seed.kubeconfig"),))
        world = SnapshotCache(Home("p", "dev", str(tmp_path)), settings, tuple, lambda _name: None)
        assert names(world.read(EVERYTHING)) == set()
        seed.put_shoot("shoot--local--a")
        text = kubeconfig(shoot.url, {"token": "t"})
        seed.put_secret("shoot--local--a", "gardener", "kubeconfig", text)
        assert names(world.read(Changes(sources=frozenset({"seed"})))) == set()
        becomes(lambda: names(world.read(INSPECT)) == {"web"})
        shoot.refused = 503
        seed.put_shoot("shoot--local--a", hibernated=True)
        for changes in (INSPECT, EVERYTHING, INSPECT):
            reading = world.read(changes)
            assert (names(reading), dict(world.stale())) == ({"web"}, {})
        seed.drop_shoot("shoot--local--a")
        assert names(world.read(INSPECT)) == set()
        world.stop()
