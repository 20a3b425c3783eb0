"""When the CLI counts as built: whole, and with hosts made from the text that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import pulumi_build as build
from tests.support.cluster_build import pinned


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with all that a build leaves, made from a module that can be changed."""
    module, place = tmp_path / "go", tmp_path / "built"
    (module / "host").mkdir(parents=True)
    (module / "host" / "main.go").write_text("package main\n")
    (module / "go.sum").touch()
    monkeypatch.setattr(build, "MODULE", module)
    monkeypatch.setattr(build, "place", lambda: place)
    place.mkdir()
    for name in ("pulumi", "pulumi-language-python-exec", *build.hosts().values()):
        (place / name).touch()
    link(place)
    return place


def link(place: Path) -> None:
    """Let the hosts' names lead to the files that are meant."""
    for name, file in build.hosts().items():
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(file)


def test_whole_build_is_found(whole: Path) -> None:
    """By the CLI, beside which its hosts are."""
    assert build.built() == whole / "pulumi"


@pytest.mark.parametrize("lost", ["pulumi", "pulumi-language-python", "pulumi-language-python-exec"])
def test_build_that_lacks_something_is_none(whole: Path, lost: str) -> None:
    """So it's made again."""
    (whole / lost).unlink()
    assert build.built() is None


def test_host_of_another_text_is_none(whole: Path) -> None:
    """Even while it's there, and when the new one is but isn't meant yet."""
    (build.MODULE / "host" / "main.go").write_text("package main // changed\n")
    assert build.built() is None
    (whole / build.hosts()["pulumi-language-python"]).touch()
    assert build.built() is None
    link(whole)
    assert build.built() == whole / "pulumi"


def test_pinned_versions_are_one() -> None:
    """The hosts speak the CLI's protocol."""
    sdk = pinned(build.MODULE, "github.com/pulumi/pulumi/sdk/v3")
    assert build.version() == sdk
