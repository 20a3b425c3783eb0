"""Fixtures of the tests against a real Kubernetes API: one cluster for all of them, emptied after each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locallb.kubernetes.api import client, connected
from tests.cluster.controlplane import ControlPlane, Objects, control_plane
from tests.e2e.support import Backend, Stage, backends, stage


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """Run one cluster with a short path."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        with control_plane("real", root / "c") as made:
            yield made
    finally:
        shutil.rmtree(root)


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Objects]:
    """Return the owner of the cluster with one Node, 127.0.0.1; nothing of a test stays."""
    with plane.client() as client:
        made = Objects(plane, client)
        made.node("node-a")
        yield made
        made.clear()


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


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    with backends() as make:
        yield make
