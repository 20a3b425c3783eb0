"""A directory whose changes the kernel names is read as by who looks at everything, and nothing else is looked at."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locallb.storage import folder_watch, named_changes
from locallb.storage.folder_watch import FollowedFolder
from locallb.storage.folders import Folder, FolderError, ReadLimits, read_folder

ENDINGS, LIMITS = (".yaml",), ReadLimits(3000, 7000)
NAMES = ("a.yaml", "b.yaml", "d/a.yaml", "d/e/c.yaml", ".hidden.yaml", "note.txt", "d/.h/a.yaml")
CONTENTS = ("one", "two", "x" * 2999, "y" * 3001)
WRITING = ("write", "append", "replace", "touch")
MOVING = ("remove", "move", "link", "link to directory", "second name")
ABOVE = ("remove above", "move above", "swap all", "swap parent")
STEPS = st.lists(
    st.lists(
        st.tuples(st.sampled_from((*WRITING, *MOVING, *ABOVE)), st.sampled_from(NAMES), st.sampled_from(CONTENTS)),
        max_size=3,
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_watch, "FEW", 0)
        yield


@pytest.fixture(name="whole")
def fixture_whole(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Note the directories that are read whole."""
    observed: list[Path] = []

    def noted(directory: Path, *args: object) -> Folder:
        observed.append(directory)
        return read_folder(directory, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(folder_watch, "read_folder", noted)
    return observed


class Directory:
    """A directory that somebody changes, and who follows it."""

    def __init__(self, root: Path) -> None:
        self.root, self.path, self.count = root, root / "parent" / "now", 0
        self.path.mkdir(parents=True)
        self.followed = FollowedFolder(ENDINGS, LIMITS)
        self.last: Folder | None = None

    def change(self, way: str, name: str, content: str = "") -> None:
        """Change one file, or what is above it."""
        self.count += 1
        path = self.path / name
        if way in WRITING:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(way, path, content)
        elif way in {"swap all", "swap parent"}:
            self._swap(self.path if way == "swap all" else self.path.parent)
        elif os.path.lexists(path):
            self._move(way, path)

    def _write(self, way: str, path: Path, content: str) -> None:
        aside = self.root / f"aside-{self.count}"
        if way == "replace":
            aside.write_text(content)
            aside.rename(path)
        elif way == "touch":
            path.touch()
        else:
            with path.open("a" if way == "append" else "w") as file:
                file.write(content)

    def _swap(self, directory: Path) -> None:
        """Put another directory with the same in the place of one."""
        aside = self.root / f"aside-{self.count}"
        shutil.copytree(directory, aside, symlinks=True)
        directory.rename(self.root / f"gone-{self.count}")
        aside.rename(directory)

    def _move(self, way: str, path: Path) -> None:
        above = path.parent if path.parent != self.path else path
        aside = self.root / f"aside-{self.count}"
        match way:
            case "remove":
                path.unlink()
            case "link":
                path.rename(aside)
                path.symlink_to(aside)
            case "link to directory":
                (path.parent / f"link-{self.count}").symlink_to(path.parent)
            case "second name":
                (path.parent / f"second-{self.count}.yaml").hardlink_to(path)
            case "move":
                path.rename(path.parent / f"moved-{self.count}.yaml")
            case "remove above":
                shutil.rmtree(above) if above.is_dir() else above.unlink()
            case "move above":
                above.rename(self.path / f"above-{self.count}")

    def read(self) -> Folder | None:
        try:
            self.last = self.followed.read(self.path, self.last)
        except FolderError:
            self.last = None
        return self.last


@given(STEPS)
@example([[("write", "a.yaml", "one")], [("write", "a.yaml", "two")], [("replace", "a.yaml", "one")]])
@example([[("write", "d/a.yaml", "one")], [("move above", "d/a.yaml", "")], [("write", "d/a.yaml", "two")]])
@example([[("write", "a.yaml", "one")], [("link", "a.yaml", "")], [("append", "a.yaml", "two")]])
@example([[("write", "a.yaml", "one")], [("swap all", "a.yaml", "")], [("write", "a.yaml", "two")]])
@example([[("write", "a.yaml", "one")], [("swap parent", "a.yaml", ""), ("write", "a.yaml", "two")]])
@example([[("write", "a.yaml", "one")], [("link to directory", "a.yaml", "")]])
@example([[("write", name, "one") for name in NAMES[:4]], [("write", name, "x" * 2999) for name in NAMES[:3]]])
@settings(max_examples=150, deadline=None)
def test_followed_folder_equals_a_fresh_reading_over_any_history(steps: list[list[tuple[str, str, str]]]) -> None:
    """Over any history: files and directories that change, come, go, move, lead elsewhere, are too large."""
    with TemporaryDirectory() as root:
        directory = Directory(Path(root))
        for steps_until_read in steps:
            for way, name, content in steps_until_read:
                directory.change(way, name, content)
            assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)
        directory.followed.close()


@pytest.mark.parametrize("way", ["write", "append", "replace", "touch"])
def test_only_what_changed_is_looked_at(way: str, tmp_path: Path, whole: list[Path]) -> None:
    """Every other file is the very same object; where nothing happened, all of it is."""
    directory = Directory(tmp_path)
    for name in ("a.yaml", "b.yaml", "d/a.yaml"):
        directory.change("write", name, "one")
    before = directory.read()
    directory.change(way, "b.yaml", "two")
    directory.change("write", "note.txt", "not read")
    after = directory.read()
    assert before
    assert after
    same = [file.path for file in after.files if any(file is old for old in before.files)]
    assert (same, len(whole)) == (["a.yaml", "d/a.yaml"], 1)
    assert directory.read() is after


def test_names_that_come_and_go_or_are_not_read_have_nothing_looked_at(tmp_path: Path, whole: list[Path]) -> None:
    """As editors and builds make them; one that stays and is to be read has all looked at."""
    directory = Directory(tmp_path)
    directory.change("write", "a.yaml", "one")
    before = directory.read()
    for name in ("4913", "b.yaml", "d.tmp", ".a.yaml.swp"):
        directory.change("write", name, "one")
    for name in ("4913", "b.yaml", "d.tmp"):
        (directory.path / name).unlink()
    directory.change("write", "built.o", "one")
    assert (directory.read(), len(whole)) == (before, 1)
    directory.change("write", "b.yaml", "one")
    assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)
    assert len(whole) == 2


@pytest.mark.parametrize("why", ["second name", "link", "unreadable"])
def test_where_something_may_change_from_elsewhere_all_is_looked_at(
    why: str, tmp_path: Path, whole: list[Path]
) -> None:
    """A file that is written through another of its names is seen at the next look."""
    directory, other = Directory(tmp_path), tmp_path / "other"
    directory.change("write", "a.yaml", "one")
    match why:
        case "second name":
            other.hardlink_to(directory.path / "a.yaml")
        case "link":
            other.write_text("one")
            (directory.path / "b.yaml").symlink_to(other)
        case _:
            os.mkfifo(directory.path / "b.yaml")
    directory.read()
    if why != "unreadable":
        other.write_text("another")
    assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)
    assert len(whole) == 2


def test_a_queue_that_ran_over_has_all_looked_at(
    tmp_path: Path, whole: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are lost aren't missed, and later ones are told again."""
    directory = Directory(tmp_path)
    directory.change("write", "a.yaml", "one")
    directory.read()
    directory.change("write", "a.yaml", "two")
    with monkeypatch.context() as patch:
        overflow = struct.pack("iIII", -1, 0x4000, 0, 0)
        patch.setattr(os, "read", lambda _descriptor, _size: overflow)
        assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)
    directory.change("write", "a.yaml", "one")
    assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)
    assert len(whole) == 2


def test_continuous_writes_do_not_keep_a_folder_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that come while the queue is emptied are named the next time."""
    directory, reads, take = Directory(tmp_path), 0, os.read
    for name in ("a.yaml", "b.yaml"):
        directory.change("write", name, "one")
    directory.read()

    def claimed(queue: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads > 10:
            pytest.fail("it goes on for as long as somebody writes")
        events = take(queue, size)
        (directory.path / "b.yaml").write_text(f"{reads}")
        return events

    directory.change("write", "a.yaml", "two")
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", claimed)
        directory.read()
    assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)


def test_without_an_instance_all_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel has no queue to give, nothing else is different."""

    class Library:
        def inotify_init1(self, _flags: int) -> int:
            return -1

    monkeypatch.setattr(named_changes, "_library", Library)
    directory = Directory(tmp_path)
    for content in ("one", "two"):
        directory.change("write", "a.yaml", content)
        assert directory.read() == read_folder(directory.path, ENDINGS, LIMITS)


def test_closed_folder_watch_frees_its_inotify_instance(tmp_path: Path) -> None:
    """And who reads again and again holds one."""

    def count() -> int:
        own = Path("/proc/self/fd")
        return [str(path.readlink()) for path in own.iterdir() if path.is_symlink()].count("anon_inode:inotify")

    directory, before = Directory(tmp_path), count()
    directory.change("write", "a.yaml", "one")
    for _ in range(3):
        directory.change("remove", "b.yaml")
        directory.change("write", "b.yaml", "one")
        directory.read()
    assert count() == before + 1
    directory.followed.close()
    assert count() == before
