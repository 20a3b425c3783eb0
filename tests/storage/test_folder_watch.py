"""A single file in the place of a directory is watched as well."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.storage.folder_watch import CHANGES, INSPECT, FolderWatch, WatchedFile

TIMEOUT = 120


@pytest.mark.parametrize("way", ["written", "replaced", "removed and made again"])
def test_a_change_of_a_single_file_is_reported(tmp_path: Path, way: str) -> None:
    """However it is changed; what was told of its beginning apart."""
    path, changed = tmp_path / "all.yaml", threading.Event()
    path.write_text("one")
    watch = FolderWatch(path, changed.set)
    try:
        assert changed.wait(TIMEOUT)
        changed.clear()
        match way:
            case "written":
                path.write_text("two")
            case "replaced":
                (tmp_path / "new").write_text("two")
                (tmp_path / "new").replace(path)
            case _:
                path.unlink()
                assert changed.wait(TIMEOUT)
                changed.clear()
                path.write_text("two")
        assert changed.wait(TIMEOUT)
        changed.clear()
        path.write_text("three")
        assert changed.wait(TIMEOUT)
    finally:
        watch.stop()


def test_a_file_that_is_made_again_at_once_is_followed_on(tmp_path: Path) -> None:
    """It often has the number of the one that was removed; the next change of it is told all the same."""
    path, changed = tmp_path / "all.yaml", threading.Event()
    path.write_text("one")
    watch = FolderWatch(path, changed.set)
    try:
        assert changed.wait(TIMEOUT)
        for number in range(10):
            changed.clear()
            path.unlink()
            path.write_text(str(number))
            assert changed.wait(TIMEOUT)
            while changed.wait(2 * INSPECT):  # until nothing more is told of it
                changed.clear()
            path.write_text(f"{number} again")
            assert changed.wait(TIMEOUT)
    finally:
        watch.stop()


@given(st.lists(st.booleans(), max_size=200))
def test_a_file_that_is_rewritten_again_and_again_is_reported_less_and_less_often(history: list[bool]) -> None:
    """Never forgotten: whatever was written last is told within the longest wait."""
    with TemporaryDirectory() as directory:
        path, reported, written = Path(directory) / "file", list[int](), 0
        path.write_text("")
        file = WatchedFile(path, lambda _path: reported.append(written))
        ticks = [*history, *[False] * int(CHANGES.longest / INSPECT + 1)]
        for number, changes in enumerate(ticks):
            if changes:
                written += 1
                path.write_text("x" * written)
            file.inspect(number * INSPECT)
        assert reported[-1:] == [written] * bool(written)


def test_constantly_written_folder_is_read_every_two_seconds(tmp_path: Path) -> None:
    """Counted over a minute of looks."""
    path, reported = tmp_path / "file", list[Path]()
    file = WatchedFile(path, reported.append)
    for number in range(int(60 / INSPECT)):
        path.write_text("x" * number)
        file.inspect(number * INSPECT)
    assert len(reported) <= 60 / CHANGES.longest + 4


def test_a_change_that_was_not_taken_is_reported_again(tmp_path: Path) -> None:
    """Whoever is told may break off."""
    path, reported = tmp_path / "file", list[Path]()

    def take(changed: Path) -> None:
        reported.append(changed)
        if len(reported) == 1:
            raise RuntimeError

    file = WatchedFile(path, take)
    path.write_text("x")
    with pytest.raises(RuntimeError):
        file.inspect(0.0)
    file.inspect(1.0)
    file.inspect(10.0)
    assert reported == [path, path]
