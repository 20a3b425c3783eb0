"""Pinned packages install on every Python that is promised."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import Requirement

from tests.packaging.pins import CHECKOUT, oldest, pinned, refusing


def test_every_pinned_package_takes_the_oldest_python_that_is_promised() -> None:
    """Of this environment; `make docs` and `make release` hold their own tools against it in the same way."""
    pins = list(pinned(*CHECKOUT.glob("requirements*.txt")))
    assert len(pins) > 40
    assert list(refusing(iter(pins), oldest())) == []


def test_a_package_that_needs_a_later_patch_version_is_found(tmp_path: Path) -> None:
    """By its metadata; markers and comments of a pin don't hide it."""
    (tmp_path / "some.txt").write_text('# tools\npytest==9.0 ; python_version > "3" # why\nnever-installed==1\n')
    pins = list(pinned(tmp_path / "some.txt"))
    assert [pin.name for pin in pins] == [Requirement("pytest").name, "never-installed"]
    (found,) = refusing(iter(pins), "3.2.1")
    assert "3.2.1 is promised" in found
