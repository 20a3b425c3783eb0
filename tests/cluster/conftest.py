"""Fixtures of the tests against a real Kubernetes API: one cluster for all of them, emptied after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locallb.kubernetes.api import client, connected
from tests.support.clusters import cluster, plane
from tests.support.control_plane import ControlPlane, Objects
from tests.support.stages import Stage, stage

__all__ = ["cluster", "plane"]


@pytest.fixture(autouse=True)
def _every_event_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for an event as for other requests: one that this machine's API takes late isn't lost to the tests."""
    monkeypatch.setattr(client, "EVENT_TIMEOUT", connected.TIMEOUT)


@pytest.fixture
def play(plane: ControlPlane, cluster: Objects) -> Iterator[Stage]:
    """Return a project whose only source is the cluster; destroyed before the cluster is emptied."""
    del cluster
    with stage() as made:
        made.configure(sources=[plane.source])
        yield made
