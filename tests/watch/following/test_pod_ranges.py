"""Where a CNI says that pods are: read of running clusters where routes are asked for, and followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.config.settings import PodRouting, Settings
from locallb.kubernetes import answers as watch_pace
from locallb.model.identities import Home
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources.entries import KubernetesSource
from locallb.sources.found import find_sources
from locallb.sources.kubernetes import followed_cluster
from locallb.sources.kubernetes import informers as discovered_kinds
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.reading import ClusterResult, read_kubernetes
from tests.support.fake_api import NAME, RANGES, Api, balancer, follower, node, served
from tests.support.pod_ranges import CORE, block, ranges_of
from tests.support.waiting import becomes

BLOCKS, CILIUM_NODES = "blockaffinities", "ciliumnodes"
SOON = Pace(first=0.02, longest=0.05, floor=0.02)
CALICO_PATH, _ = RANGES
REFUSAL = 403, b'{"kind": "Status", "code": 403}'


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API of a cluster with a Service and a Node, which is asked again soon."""
    monkeypatch.setattr(watch_pace, "LISTS", SOON)
    monkeypatch.setattr(watch_pace, "WATCHES", SOON)
    monkeypatch.setattr(discovered_kinds, "QUERIED", SOON)
    monkeypatch.setattr(discovered_kinds, "EVERY", 0.05)
    with served(tmp_path) as (answers, access):
        answers.nodes, answers.services = [node("a")], [balancer("web")]
        yield answers, access


def read(access: Access, directory: Path, *, requested: bool = True) -> ClusterResult:
    source = KubernetesSource(
        NAME, access.kubeconfig, access.context, reads_pod_ranges=requested, loopback_backends=True
    )
    return read_kubernetes(source, directory, directory / "readings", keep=True)


def test_blocks_of_calico_and_ranges_of_cilium_are_read(api: tuple[Api, Access], tmp_path: Path) -> None:
    """By `up`, and kept for when they can't be; nothing is asked where nobody wants routes."""
    answers, access = api
    assert ranges_of(read(access, tmp_path, requested=False).reading.parsed) == []
    assert not any(path in RANGES for path in answers.paths)
    answers.others[BLOCKS] = [block("10.9.0.0/26")]
    answers.others[CILIUM_NODES] = [
        {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"ipam": {"podCIDRs": ["10.8.0.0/24"]}}}
    ]
    assert ranges_of(read(access, tmp_path).reading.parsed) == ["10.9.0.0/26", "10.8.0.0/24"]


@pytest.mark.parametrize("odd", [(500, b"{}"), (200, b"rubbish"), (200, b'{"kind": "Odd"}'), (200, b"[]"), REFUSAL])
def test_unreadable_pod_ranges_count_as_last_read_and_are_reported(
    odd: tuple[int, bytes], api: tuple[Api, Access], tmp_path: Path
) -> None:
    """Services are served all the same, by `up` and while following; the sentence goes with the trouble."""
    answers, access = api
    answers.others[BLOCKS] = [block("10.9.0.0/26")]
    read(access, tmp_path)
    answers.discoveries[CALICO_PATH] = odd
    last = read(access, tmp_path).reading.parsed
    assert ranges_of(last) == ["10.9.0.0/26"]
    (notice,) = last.notices
    assert "deploy/rbac-pod-ranges.yaml" in notice
    with following(access) as followed:
        becomes(lambda: len(followed.parsed().notices) == 1)
        assert ranges_of(followed.parsed(ranges=last.ranges)) == ["10.9.0.0/26"]
        assert followed.lacks() >= {"BlockAffinity", "CiliumNode"}
        assert not followed.stale()
        answers.others[BLOCKS] = [block("10.9.0.64/26")]
        answers.discoveries.clear()
        becomes(lambda: ranges_of(followed.parsed()) == ["10.9.0.64/26"])
        assert followed.parsed().notices == ()


def test_blocks_that_come_and_go_are_heard_of(api: tuple[Api, Access]) -> None:
    """Also those of a CNI that is installed later, and removed: then spec.podCIDRs count again."""
    answers, access = api
    answers.nodes[0]["spec"] = {"podCIDRs": ["10.244.0.0/24"]}
    with following(access) as followed:
        becomes(lambda: not followed.lacks() & followed_cluster.RANGE_KINDS)
        assert ranges_of(followed.parsed()) == ["10.244.0.0/24"]
        answers.others[BLOCKS] = [block("10.9.0.0/26")]
        becomes(lambda: ranges_of(followed.parsed()) == ["10.9.0.0/26"])
        becomes(lambda: f"{CALICO_PATH}/{BLOCKS}" in answers.paths and answers.count("watch") > len(CORE))
        answers.other_events[BLOCKS] = [("ADDED", block("10.9.0.64/26", "2"))]
        becomes(lambda: ranges_of(followed.parsed()) == ["10.9.0.0/26", "10.9.0.64/26"])
        assert {one["kind"] for one in followed.objects()} >= {"BlockAffinity"}
        del answers.others[BLOCKS]
        becomes(lambda: ranges_of(followed.parsed()) == ["10.244.0.0/24"])


def test_a_missing_right_is_reported_and_what_was_read_last_counts(api: tuple[Api, Access], tmp_path: Path) -> None:
    """The kind is there, and may not be listed: in `up` and in `watch`, whose Services go on."""
    answers, access = api
    answers.others[BLOCKS] = [block("10.9.0.0/26")]
    last = read(access, tmp_path).reading.parsed
    answers.refused.add(BLOCKS)
    retry = read(access, tmp_path).reading.parsed
    with following(access) as followed:
        becomes(lambda: len(followed.parsed().notices) == 1)
        for parsed in (retry, followed.parsed(ranges=last.ranges)):
            (notice,) = parsed.notices
            assert "403" in notice
            assert "by the rights of deploy/rbac-pod-ranges.yaml" in notice
            assert ranges_of(parsed) == ["10.9.0.0/26"]
            assert parsed.services
        assert not followed.stale()


def test_next_follower_keeps_the_wait_of_the_former_one(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubeconfig that changes repeatedly causes no more requests than one that doesn't."""
    answers, access = api
    monkeypatch.setattr(discovered_kinds, "QUERIED", replace(SOON, floor=1e6))
    with following(access) as first:
        becomes(lambda: not first.lacks() & followed_cluster.RANGE_KINDS)
        requested = answers.paths.count(CALICO_PATH)
    retry = FollowedCluster(NAME, access, lambda: None, first.paces(), reads_ranges=True, loopback=True)
    becomes(retry.ready)
    assert retry.lacks() >= followed_cluster.RANGE_KINDS
    retry.stop()
    assert answers.paths.count(CALICO_PATH) == requested


def test_failures_of_lists_are_handed_on_from_follower_to_follower(api: tuple[Api, Access]) -> None:
    """Each hands on what it saw itself, and not what it was told of other kinds."""
    answers, access = api
    with following(access) as first:
        becomes(first.ready)
        before = first.paces()
    answers.listed = 500, b"{}"
    retry = FollowedCluster(NAME, access, lambda: None, before, reads_ranges=True, loopback=True)
    becomes(lambda: retry.paces()["Service"].lists.failures > 1)
    retry.stop()
    assert retry.paces().keys() >= before.keys()


@pytest.mark.parametrize("routing", list(PodRouting))
def test_a_cluster_is_asked_only_where_routes_are_wanted(
    routing: PodRouting, api: tuple[Api, Access], tmp_path: Path
) -> None:
    """Not where its ranges are named, nor where its Nodes are pods: whoever knows better is believed.

    Without the key only clusters that `kind` finds are.
    """
    _, access = api
    plain = KubernetesSource(NAME, access.kubeconfig, access.context, loopback_backends=True)
    named = replace(plain, pod_cidrs=(ip_network("10.0.0.0/16"),))
    shoot = replace(plain, node_routes=())
    home = Home(str(tmp_path), "dev", "local-lb")
    sources, _ = find_sources(home, Settings((plain, named, shoot), (), pod_routes=routing), keep=False)
    requested = [source.reads_pod_ranges for source in sources if isinstance(source, KubernetesSource)]
    assert requested == [routing in {PodRouting.HOST, PodRouting.CONTAINER}, False, False]


@contextmanager
def following(access: Access) -> Iterator[FollowedCluster]:
    followed = follower(access, reads_ranges=True)
    try:
        yield followed
    finally:
        followed.stop()
