"""Files are whole or absent; trees go without following links; places are private."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.storage import files, paths
from locallb.storage import files as stamps
from locallb.storage.files import FilesError
from locallb.storage.paths import PlaceError
from tests.support.descriptors import few_files


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """A reader that looks all the time sees the old or the new text, never a part."""
    path = tmp_path / "file"
    texts = {"a" * 50_000, "b" * 50_000}
    files.write(path, "a" * 50_000)
    observed: set[str] = set()
    stop = threading.Event()

    def inspect() -> None:
        while not stop.is_set():
            observed.add(files.read(path) or "")

    reader = threading.Thread(target=inspect)
    reader.start()
    for _ in range(50):
        for text in texts:
            files.write(path, text)
    stop.set()
    reader.join()
    assert observed <= texts
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_written_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """Mode 0600, or exactly what is asked for."""
    for umask in (0, 0o277):
        before = os.umask(umask)
        try:
            files.write(tmp_path / "private", "x")
            files.write(tmp_path / "open", "x", mode=0o644)
        finally:
            os.umask(before)
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644


def test_failed_write_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    """No directory, a directory in the way, a name that is too long."""
    (tmp_path / "directory").mkdir()
    for path in (tmp_path / "absent" / "x", tmp_path / "directory", tmp_path / ("x" * 300)):
        with pytest.raises(FilesError, match="can't be"):
            files.write(path, "x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["directory"]


def test_reading_knows_absent_from_unreadable(tmp_path: Path) -> None:
    """No file is None; something else in its place is an error; odd bytes are no error."""
    assert files.read(tmp_path / "absent") is None
    with pytest.raises(FilesError, match="can't be read"):
        files.read(tmp_path)
    (tmp_path / "odd").write_bytes(b"a\xff")
    assert files.read(tmp_path / "odd") == "a\ufffd"


@pytest.mark.parametrize(
    "made", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["a pipe", "a link to a device"]
)
def test_what_is_no_file_is_neither_waited_for_nor_read_without_an_end(
    tmp_path: Path, made: Callable[[Path], object]
) -> None:
    """A project may be a clone of somebody else's; a link to a file is followed."""
    made(tmp_path / "file")
    with pytest.raises(FilesError, match="file can't be read: it is no regular file"):
        files.read(tmp_path / "file")
    (tmp_path / "text").write_text("text")
    (tmp_path / "link").symlink_to("text")
    assert files.read(tmp_path / "link") == "text"


def test_a_tree_is_removed_and_what_its_links_point_to_stays(tmp_path: Path) -> None:
    """A link is removed as a link."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    tree = tmp_path / "root" / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "link").symlink_to(precious)
    files.remove_tree(tree, tmp_path / "root")
    files.remove_tree(tree, tmp_path / "root")
    assert not tree.exists()
    assert (precious / "file").exists()


def test_a_tree_elsewhere_is_never_removed(tmp_path: Path) -> None:
    """Only directly below the root, by its plain name, and no link."""
    root, other = tmp_path / "root", tmp_path / "other"
    for path in (root / "a" / "b", other):
        path.mkdir(parents=True)
    (root / "link").symlink_to(other)
    for path in (other, root, root / "a" / "b", root / "..", root / "link"):
        with pytest.raises(FilesError):
            files.remove_tree(path, root)
    assert (root / "a" / "b").exists()
    assert other.exists()


def test_the_state_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG_STATE_HOME where it is absolute, as its specification says; the home directory otherwise."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert paths.state_home() == Path("/somewhere/locallb")
    for given in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert paths.state_home() == tmp_path / ".local" / "state" / "locallb"


@pytest.mark.parametrize("home", [None, "relative/home"])
def test_a_user_without_a_home_learns_what_to_set(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """No HOME and no entry in /etc/passwd, or a HOME that means another directory everywhere: one sentence."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(paths, "SHARED_LEDGER", Path("/nowhere/ledger"))
    monkeypatch.delenv(paths.LEDGER_VARIABLE, raising=False)
    if home:
        monkeypatch.setenv("HOME", home)

    def nobody(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for place in (paths.state_home, paths.proxies_root, paths.ledger_directory, paths.ledgers):
        with pytest.raises(PlaceError, match="set XDG_STATE_HOME"):
            place()
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert paths.state_home() == Path("/somewhere/locallb")


def test_a_relative_ledger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each directory would have another one."""
    monkeypatch.setenv(paths.LEDGER_VARIABLE, "ledger")
    with pytest.raises(PlaceError, match="LOCALLB_LEDGER is 'ledger': write an absolute path"):
        paths.ledger_directory()


@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_links_and_fifos_are_not_read_as_files(tmp_path: Path, made: Callable[[Path], object]) -> None:
    """Neither read nor waited for, and its target keeps its mode."""
    made(tmp_path / "it")
    with pytest.raises(FilesError, match=r"regular file|it is a link|directory"):
        files.read_shared(tmp_path / "it")


def test_a_file_of_others_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """Exactly as much as is allowed."""
    (tmp_path / "it").write_text("12345")
    assert files.read_shared(tmp_path / "it", 5) == "12345"
    assert files.read_shared(tmp_path / "absent") is None
    with pytest.raises(FilesError, match="larger than 4 bytes"):
        files.read_shared(tmp_path / "it", 4)


def test_no_mode_is_set_through_a_link(tmp_path: Path) -> None:
    """What stands elsewhere keeps its own."""
    (tmp_path / "target").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FilesError, match="can't be changed"):
        files.set_mode(tmp_path / "link", 0o640)
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600


def test_permanently_locked_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has an end."""
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.05)
    with (
        files.locked(tmp_path),
        pytest.raises(FilesError, match="locked by another process"),
        files.locked(tmp_path),
    ):
        pass


def test_the_hosts_ledger_counts_where_it_may_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made by the host's setup: shared; otherwise this user's own; the variable overrides both."""
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    monkeypatch.delenv(paths.LEDGER_VARIABLE, raising=False)
    monkeypatch.setattr(paths, "SHARED_LEDGER", tmp_path / "absent")
    assert paths.ledger_directory() == Path("/somewhere/locallb/ledger")
    monkeypatch.setattr(paths, "SHARED_LEDGER", tmp_path)
    assert paths.ledger_directory() == tmp_path
    monkeypatch.setenv(paths.LEDGER_VARIABLE, "/given")
    assert paths.ledger_directory() == Path("/given")


def test_the_hosts_ledger_that_cannot_be_looked_at_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a disk fails: this user's own would be another one, with other claims."""
    monkeypatch.delenv("LOCALLB_LEDGER", raising=False)
    inspect = os.stat

    def refused(path: object, *args: object, **options: object) -> os.stat_result:
        if str(path) == str(paths.SHARED_LEDGER):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return inspect(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(paths.PlaceError, match=r"can't determine whether there is .*: Input/output error; look after"):
        paths.ledger_directory()


def test_two_names_of_a_directory_are_one(tmp_path: Path) -> None:
    """A link is no other directory; what is gone is none; what may not be looked at counts as there."""
    here, link, removed = tmp_path / "here", tmp_path / "link", tmp_path / "gone"
    here.mkdir()
    link.symlink_to(here)
    assert not paths.is_another_directory(str(link), str(here))
    assert not paths.is_another_directory(str(removed), str(here))
    assert not paths.is_another_directory(str(removed / "x"), str(here))
    assert paths.is_another_directory(str(tmp_path), str(here))
    assert paths.is_another_directory(str(here), str(removed))
    assert paths.is_another_directory("x" * 5000, str(here))


def test_directories_are_made_private(tmp_path: Path) -> None:
    """Each that is missing gets 0700, those that exist stay; a file in the way is told."""
    (tmp_path / "old").mkdir(0o755)
    paths.private_directory(tmp_path / "old" / "a" / "b")
    modes = [(tmp_path / part).stat().st_mode & 0o777 for part in ("old", "old/a", "old/a/b")]
    assert modes == [0o755, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match="can't be made"):
        paths.private_directory(tmp_path / "file" / "x")


def _edited(path: Path) -> None:
    """Change a byte, and set the time back as an editor never does."""
    status = path.stat()
    path.write_text("{ }")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("place", ["a.json", "below/b.json"])
@pytest.mark.parametrize(
    "deed",
    [_edited, Path.unlink, lambda path: files.write(path, "{}"), lambda path: path.with_name("new").touch()],
    ids=["edited", "removed", "replaced", "one more"],
)
def test_stamps_tell_whatever_happened(deed: Callable[[Path], object], place: str, tmp_path: Path) -> None:
    """As long as nothing happens they are the same."""
    for path in (tmp_path / "a.json", tmp_path / "below/b.json", tmp_path / "below/deeper/c.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    before = stamps.stamps(tmp_path)
    assert {Path(path).name for path in before} == {"a.json", "below", "b.json", "deeper"}
    assert stamps.stamps(tmp_path) == before
    deed(tmp_path / place)
    assert stamps.stamps(tmp_path) != before


def test_stamps_of_what_is_not_there_are_none(tmp_path: Path) -> None:
    """Nor do links lead elsewhere."""
    assert stamps.stamps(tmp_path / "absent") == {}
    (tmp_path / "far").mkdir()
    (tmp_path / "far/file").touch()
    (tmp_path / "near").mkdir()
    (tmp_path / "near/link").symlink_to(tmp_path / "far")
    assert set(stamps.stamps(tmp_path / "near")) == {str(tmp_path / "near/link")}


@pytest.mark.parametrize("change", ["replaced", "rewritten", "removed"])
def test_a_stamp_tells_another_file_from_the_one_before(tmp_path: Path, change: str) -> None:
    """Whatever its name, and although its times were set back."""
    path = tmp_path / "file"
    path.write_text("one")
    before, observed = stamps.stamp_of(path), path.stat()
    assert stamps.stamp_of(path) == before
    if change == "replaced":
        (tmp_path / "other").write_text("two")
        (tmp_path / "other").replace(path)
    elif change == "rewritten":
        path.write_text("more")
    else:
        path.unlink()
    if path.exists():
        os.utime(path, ns=(observed.st_atime_ns, observed.st_mtime_ns))
    assert (stamps.stamp_of(path) is None) == (change == "removed")
    assert stamps.stamp_of(path) != before


def test_a_file_for_which_there_is_no_descriptor_is_reported_with_what_helps(tmp_path: Path) -> None:
    """It is neither absent nor another user's."""
    path = tmp_path / "file"
    files.write(path, "x")
    touches: list[Callable[[], object]] = [
        lambda: files.read(path),
        lambda: files.read_shared(path),
        lambda: files.write(path, "y"),
        lambda: files.set_mode(path, 0o640),
        lambda: files.locked(tmp_path).__enter__(),
        lambda: files.remove_tree(tmp_path / "tree", tmp_path),
    ]
    (tmp_path / "tree").mkdir()
    for touch in touches:
        with few_files(0), pytest.raises(FilesError, match="Too many open files; raise the limit of open files"):
            touch()
    assert files.read(path) == "x"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "tree"]
