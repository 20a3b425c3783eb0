"""What tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.kubernetes.api.kubeconfig import UNWRITTEN
from tests.sources.support import Place


@pytest.fixture(autouse=True)
def _nothing_unwritten() -> Iterator[None]:
    """Leave nothing of a preview to other tests."""
    yield
    UNWRITTEN.clear()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.manifests.mkdir()
    return made
