"""Fixtures of the tests with real kubelets: one cluster for all of them, emptied after each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubelets.workloads import Workloads
from tests.support.docker_command import DockerError
from tests.support.kubelet_cluster import Cluster, kubelet_cluster
from tests.support.kubelets_ready import make_ready
from tests.support.stages import Stage, stage
from tests.support.watching import Watch, watching


@pytest.fixture(scope="session")
def ready() -> None:
    """Have what Nodes need; skip where there is no Docker or nothing to make Nodes of, which CI must have."""
    try:
        make_ready()
    except (DockerError, FileNotFoundError) as error:
        if os.environ.get("CI") or os.environ.get("LOCALLB_TEST_DOCKER"):
            pytest.fail(str(error))
        pytest.skip(f"no Nodes with kubelets: {error}")


@pytest.fixture(scope="session")
def cluster(ready: None) -> Iterator[Cluster]:
    del ready
    with kubelet_cluster() as made:
        yield made


@pytest.fixture(params=["nodePorts", "pods"])
def world(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Workloads]:
    """Return the owner of the cluster, which has but Nodes; its pods are reached by routes, or by NodePorts."""
    made = Workloads(cluster, straight=request.param == "pods")
    with made.client:
        yield made
        made.empty()


@pytest.fixture
def play(world: Workloads) -> Iterator[Stage]:
    """Return a project whose only source is the cluster; destroyed before the cluster is emptied."""
    with stage() as made:
        made.configure(sources=[world.plane.source], **world.settings)
        yield made


@pytest.fixture
def watch(play: Stage) -> Iterator[Watch]:
    with watching(play, "--plain") as running:
        yield running
