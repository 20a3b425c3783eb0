"""What `make coverage` measures of what is pure: tests that are there, of modules that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure_coverage import TESTS, pure_rooms


def test_every_measured_file_exists() -> None:
    """A file that moved would be measured no more, without a word."""
    assert [place for place in TESTS if not place.exists()] == []


@pytest.mark.checkout
def test_every_module_listed_as_pure_exists() -> None:
    """By pyproject.toml, where the checkout is."""
    files = [Path(file) for files in pure_rooms().values() for file in files]
    assert [file for file in files if not file.exists()] == []
