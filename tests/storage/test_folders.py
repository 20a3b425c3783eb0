"""A directory that is read again and again: only what may be different is opened, and nothing different is missed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from locallb.storage import folders
from locallb.storage.folders import Folder, ReadLimits, read_folder

TICK = 0.02
"""Seconds after which every kernel gives a change another time."""


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files count as settled at once, where a user's would three seconds later."""
    monkeypatch.setattr(folders, "_SETTLED", 0)
    time.sleep(TICK)


def read(directory: Path, before: Folder | None = None) -> Folder:
    """Read it, a moment after it was changed."""
    time.sleep(TICK)
    return read_folder(directory, (".yaml",), ReadLimits(1000, 5000), before)


def contents(folder: Folder) -> dict[str, bytes]:
    return {file.path: file.data for file in folder.files}


@pytest.mark.usefixtures("settled")
def test_a_file_that_is_as_it_was_is_the_one_that_was_read(tmp_path: Path) -> None:
    """The very same object, so that whoever understood it need not do so again; its neighbour is read again."""
    for name in ("same", "other"):
        (tmp_path / f"{name}.yaml").write_text("one")
    before = read(tmp_path)
    (tmp_path / "other.yaml").write_text("two")
    after = read(tmp_path, before)
    assert [file.path for file in after.files if any(file is existing for existing in before.files)] == ["same.yaml"]
    assert contents(after) == {"same.yaml": b"one", "other.yaml": b"two"}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("way", ["written", "renamed", "linked"])
def test_other_bytes_of_the_same_size_and_time_are_seen(tmp_path: Path, way: str) -> None:
    """However they came, and although somebody gave the file its old time back."""
    directory, path = tmp_path / "d", tmp_path / "d" / "a.yaml"
    directory.mkdir()
    path.write_text("one")
    before, times = read(directory), path.stat()
    if way == "written":
        path.write_text("two")
    else:
        (tmp_path / "b.yaml").write_text("two")
        path.unlink()
        (tmp_path / "b.yaml").rename(path) if way == "renamed" else path.symlink_to(tmp_path / "b.yaml")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert contents(read(directory, before)) == {"a.yaml": b"two"}


@pytest.mark.usefixtures("settled")
def test_a_link_that_leads_elsewhere_is_seen(tmp_path: Path) -> None:
    """As a mounted ConfigMap changes: the link's own directory stays as it is."""
    directory = tmp_path / "d"
    directory.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(name)
    (tmp_path / "data").symlink_to("one")
    (directory / "a.yaml").symlink_to("../data/a.yaml")
    before = read(directory)
    (tmp_path / "swapped").symlink_to("two")
    (tmp_path / "swapped").rename(tmp_path / "data")
    assert contents(read(directory, before)) == {"a.yaml": b"two"}


def test_a_file_of_this_moment_is_always_opened(tmp_path: Path) -> None:
    """Two changes within one tick of the clock have one time."""
    (tmp_path / "a.yaml").write_text("one")
    assert [file.stamp for file in read(tmp_path).files] == [None]


@pytest.mark.usefixtures("settled")
def test_file_that_became_unreadable_is_reported(tmp_path: Path) -> None:
    """What was read before doesn't stand in for it."""
    (tmp_path / "a.yaml").write_text("one")
    before = read(tmp_path)
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    assert [bool(file.why) for file in read(tmp_path, before).files] == [True]
