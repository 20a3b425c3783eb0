"""A cluster whose EndpointSlices may not be read: Services are served by NodePorts, and that is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locallb.kubernetes import answers as watch_pace
from locallb.kubernetes.api.feed import Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, RefusedError
from locallb.model.pacing import Pace
from locallb.model.snapshot import Access
from locallb.sources import SourceError
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes import followed_cluster
from locallb.sources.kubernetes import informers as followed_objects
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.reading import read_kubernetes
from tests.support.fake_api import NAME, Api, balancer, follower, node, served
from tests.support.waiting import becomes

SLICES = "endpointslices"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, Access]]:
    """Serve an API of a cluster with a Service, its Node and its endpoint; it is asked again soon."""
    monkeypatch.setattr(watch_pace, "LISTS", Pace(first=0.02, longest=0.05, floor=0.02))
    monkeypatch.setattr(watch_pace, "WATCHES", Pace(first=0.02, longest=0.05, floor=0.02))
    with served(tmp_path) as (answers, access):
        answers.nodes, answers.services = [node("a")], [balancer("web")]
        answers.others[SLICES] = [endpoint_slice()]
        yield answers, access


def endpoint_slice() -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "web"}
    metadata = {"namespace": "n", "name": "web-1", "uid": "s", "resourceVersion": "1", "labels": labels}
    ports, endpoints = [{"name": "", "port": 8080, "protocol": "TCP"}], [{"addresses": ["10.0.0.1"]}]
    return {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}


def knows_endpoints(followed: FollowedCluster) -> bool:
    return bool(followed.parsed().slices)


def is_served_by_node_ports(followed: FollowedCluster) -> bool:
    """Return whether all but EndpointSlices is known and current, and the right is told in one sentence."""
    parsed = followed.parsed()
    assert parsed.services
    assert parsed.nodes
    (notice,) = parsed.notices
    assert "403" in notice
    assert "deploy/rbac.yaml is given, its Services are reached by NodePorts" in notice
    return not parsed.slices and followed.stale() == ""


def test_without_the_right_from_the_start_services_are_served(api: tuple[Api, Access]) -> None:
    """The API isn't asked again and again."""
    answers, access = api
    answers.refused = {SLICES}
    followed = follower(access)
    assert is_served_by_node_ports(followed)
    assert not any(one.get("kind") == "EndpointSlice" for one in followed.objects())
    assert answers.paths.count("/apis/discovery.k8s.io/v1/endpointslices") == 1
    followed.stop()


def test_the_right_is_used_as_soon_as_it_is_given(api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a restart, and the loop is woken."""
    answers, access = api
    monkeypatch.setattr(followed_cluster, "REFUSED", 0.02)
    answers.refused = {SLICES}
    wakes: list[bool] = []
    followed = FollowedCluster(NAME, access, lambda: wakes.append(True), loopback=True)
    becomes(followed.ready, followed.stale)
    answers.refused, woken = set(), len(wakes)
    becomes(lambda: knows_endpoints(followed))
    becomes(lambda: followed.parsed().notices == () and followed.stale() == "", followed.stale)
    assert len(wakes) > woken
    followed.stop()


@pytest.mark.parametrize("passing", [0.0, 3600.0])
def test_a_right_that_goes_missing_is_no_outage_at_once(
    api: tuple[Api, Access], monkeypatch: pytest.MonkeyPatch, passing: float
) -> None:
    """A server that has just started may refuse what it grants a moment later; later addresses of pods are others'."""
    answers, access = api
    followed = follower(access)
    becomes(lambda: knows_endpoints(followed))
    monkeypatch.setattr(followed_objects, "PASSING", passing)
    answers.refused = {SLICES}
    answers.end_watches()
    if passing == 0:
        becomes(lambda: not knows_endpoints(followed), followed.stale)
        assert is_served_by_node_ports(followed)
    else:
        becomes(followed.stale)
        assert knows_endpoints(followed)
    followed.stop()


def test_single_read_without_the_right_to_endpoints_serves_by_node_ports(
    api: tuple[Api, Access], tmp_path: Path
) -> None:
    """By `up`, also where the last good reading had endpoints; the source isn't stale for that."""
    answers, access = api
    source = KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=True)
    assert read_kubernetes(source, tmp_path, tmp_path, keep=True).reading.parsed.slices
    answers.refused = {SLICES}
    read = read_kubernetes(source, tmp_path, tmp_path, keep=True).reading
    followed = follower(access)
    assert (read.parsed.services, read.parsed.slices, read.stale) == (followed.parsed().services, (), ())
    assert "reached by NodePorts" in read.parsed.notices[0]
    followed.stop()


@pytest.mark.parametrize("refused", ["services", "nodes"])
def test_rights_without_which_nothing_can_be_served_are_an_error(
    api: tuple[Api, Access], refused: str, tmp_path: Path
) -> None:
    """As ever."""
    answers, access = api
    answers.refused = {refused}
    with pytest.raises(SourceError, match=r"deploy/rbac\.yaml"):
        read_kubernetes(
            KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=True), tmp_path, tmp_path
        )
    followed = FollowedCluster(NAME, access, lambda: None, loopback=True)
    becomes(followed.stale)
    assert not followed.ready()
    followed.stop()


@pytest.mark.parametrize("status", [401, 403, 500])
def test_only_a_missing_right_is_one(api: tuple[Api, Access], status: int) -> None:
    """Credentials that ran out say nothing of rights."""
    answers, access = api
    answers.listed = (status, b"{}")
    with closing(Feed(access, "EndpointSlice")) as feed, pytest.raises(KubeError) as caught:
        feed.list()
    assert isinstance(caught.value, ForbiddenError) == (status == 403)
    assert (isinstance(caught.value, RefusedError)) == (status < 500)
