"""Fifty edits of the configuration and of a kubeconfig: what is followed afterwards costs what it did before."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.model.identities import ClusterName, ContextName, Home
from locallb.sources.entries import KindClusters, KubernetesSource, ManifestsSource
from locallb.sources.kubernetes.source import Following
from locallb.sources.snapshot_cache import SnapshotCache
from locallb.sources.workspace import EVERYTHING, Workspace
from locallb.watch.events import Cause, Mark
from locallb.watch.planner import Planner
from locallb.watch.triggers import Triggers
from tests.support.descriptors import resources
from tests.support.fake_api import Api, kubeconfig, served
from tests.support.waiting import becomes

EDITS = 50
NAME = ClusterName("demo")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, int]]:
    """Serve an API; give its port too."""
    with served(tmp_path) as (answers, access):
        port = int(Path(access.kubeconfig).read_text().partition("127.0.0.1:")[2].split()[0])
        yield answers, port


def source(root: Path) -> KubernetesSource:
    return KubernetesSource(NAME, kubeconfig=str(root / "kubeconfig"), loopback_backends=True)


def test_edits_of_a_kubeconfig_leave_no_thread_and_no_descriptor(api: tuple[Api, int], tmp_path: Path) -> None:
    """Each renews the credential, so everything is followed again; and the API isn't asked more often for it."""
    answers, port = api
    following = Following(Home("p", "s", str(tmp_path)), lambda _name: None)
    following.read(source(tmp_path), (), everything=True, moved=True)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 2)
    before = resources()
    begun = len(answers.requested)
    for number in range(EDITS):
        kubeconfig(tmp_path / "kubeconfig", port, f"credential {number}")
        following.read(source(tmp_path), (), everything=False, moved=True)
    live = following._live[NAME]
    becomes(lambda: live.followed.ready() and not live.followed.stale(), live.followed.stale)
    becomes(lambda: resources() <= before, resources)
    times = [at for at, _ in answers.requested[begun:]]
    assert max(sum(first <= at < first + 1 for at in times) for first in times) <= 18
    following.stop()


def test_edits_of_the_configuration_go_on_following_what_stays(api: tuple[Api, int], tmp_path: Path) -> None:
    """The world is another one, its clusters are not: nothing is listed for it."""
    answers, _ = api
    texts = iter(range(1000))
    base = Settings((source(tmp_path),), ())

    def load() -> Settings:
        return replace(base, metrics=f"127.0.0.1:{2000 + next(texts)}")

    home = Home("p", "s", str(tmp_path))
    workspace = Workspace(home, load(), cache=SnapshotCache(home, base, tuple, lambda _name: None))

    def read(cluster: KubernetesSource) -> None:
        assert workspace.cache
        workspace.cache.followed("kubernetes").read(cluster, (), everything=True, moved=True)

    read(source(tmp_path))
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 2)
    before, requested = resources(), len(answers.requested)
    caches = set()
    for _ in range(EDITS):
        workspace = workspace.configured(load())
        caches.add(id(workspace.cache))
        read(source(tmp_path))
    assert len(caches) > 1
    assert len(answers.requested) == requested
    becomes(lambda: resources() <= before, resources)
    read(replace(source(tmp_path), context=ContextName("here")))
    becomes(lambda: resources() <= before, resources)
    assert workspace.cache
    workspace.cache.stop()
    becomes(lambda: threading.active_count() <= before[0] - 3)


def test_a_cluster_that_becomes_manifests_of_the_same_name_is_followed_no_more(
    api: tuple[Api, int], tmp_path: Path
) -> None:
    """Nobody would ever end its threads otherwise, and the API would go on being asked."""
    answers, _ = api
    base = Settings((source(tmp_path),), ())
    before = resources()
    cache = SnapshotCache(Home("p", "s", str(tmp_path)), base, tuple, lambda _name: None)
    cache.followed("kubernetes").read(source(tmp_path), (), everything=True, moved=True)
    becomes(lambda: answers.count("watch") == 3 and answers.count("discovery") == 2)
    cache = cache.configured(replace(base, sources=(ManifestsSource(NAME, str(tmp_path)),)))
    cache._find(EVERYTHING)
    becomes(lambda: resources() <= before, resources)
    cache.stop()


def test_edits_of_the_configuration_leave_no_watch_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files, directories and containers, also where Docker isn't there."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    triggers = Triggers(Home("p", "s", str(tmp_path)), tmp_path / "stack.yaml", lambda _mark: None)
    base = Settings((ManifestsSource(NAME, str(tmp_path)), source(tmp_path)), (), finders=(KindClusters(),))
    triggers.follow(base)
    threads = threading.active_count()
    for number in range(EDITS):
        triggers.follow(replace(base, metrics=f"127.0.0.1:{2000 + number}"))
    becomes(lambda: threading.active_count() <= threads)
    triggers.stop()
    becomes(lambda: threading.active_count() <= threads - 3)


def test_failed_start_of_watching_is_repeated_at_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unexpected error the loop must not take itself for one that follows."""
    marks: list[Mark] = []
    home = Home("p", "s", str(tmp_path))
    triggers = Triggers(home, tmp_path / "stack.yaml", marks.append)
    settings = Settings((ManifestsSource(NAME, str(tmp_path)),), ())

    def refuse(_changed: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    engine = cast(
        "Engine",
        SimpleNamespace(state_stamp=lambda: 0, read_stamp=lambda: 0, readings=1, resources=tuple, unfinished=frozenset),
    )
    planner = Planner(home, engine, lambda: settings, marks.append, triggers)
    with monkeypatch.context() as here:
        here.setattr("locallb.watch.triggers.RouteEvents", refuse)
        with pytest.raises(OSError, match="Too many"):
            planner.open((Mark(Cause.START),))
    threads = threading.active_count()
    planner.open((Mark(Cause.START),))
    assert triggers._runs is not None
    planner.stop()
    becomes(lambda: threading.active_count() <= threads - 2)
