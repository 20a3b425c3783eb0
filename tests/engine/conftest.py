"""What the engine's tests share as fixtures."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.engine import Bench, World, make_project


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a fresh project with a world of its own."""
    return Bench(make_project(tmp_path / "p"), World())


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)
