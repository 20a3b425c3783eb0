"""What the engine's tests share as fixtures."""

from pathlib import Path

import pytest

from tests.engine.support import Bench, World, make_project


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a fresh project with a world of its own."""
    return Bench(make_project(tmp_path / "p"), World())
