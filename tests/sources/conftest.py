"""What tests of sources share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.support import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make an empty project."""
    made = Place(tmp_path)
    made.manifests.mkdir()
    return made
