"""A real cluster as a fixture: one for all tests of a run, emptied after each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, Objects, control_plane


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
