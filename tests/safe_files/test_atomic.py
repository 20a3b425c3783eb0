"""What a killed writer left goes; what is being written stays."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb import safe_files
from locallb.model.identities import Home
from locallb.sources import stack_home
from locallb.storage import files
from locallb.storage.paths import stack_directory

WRITE_HALF = """
import sys
from pathlib import Path
from locallb.storage import files
def hang(*_):
    print("written", flush=True)
    sys.stdin.read()
files.os.fchmod = hang
files.write(Path(sys.argv[1]), "text")
"""


def test_unfinished_file_stays_until_its_writer_is_killed(tmp_path: Path) -> None:
    """However long it takes; in directories directly below as well."""
    below = tmp_path / "kind"
    below.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_HALF, str(below / "c.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "written\n"
        safe_files.remove_abandoned(tmp_path)
        (written,) = below.iterdir()
        assert written.name.startswith(".c.json.")
        writer.kill()
        writer.wait()
    safe_files.remove_abandoned(tmp_path)
    assert list(below.iterdir()) == []


def test_only_what_is_called_so_goes(tmp_path: Path) -> None:
    """Never a file of another name, a directory, a link, a FIFO, nor what lies behind a link."""
    elsewhere = tmp_path / "elsewhere"
    place = tmp_path / "place"
    (elsewhere / "x").mkdir(parents=True)
    place.mkdir()
    retained = [place / ".c.json.0123456.new", place / "c.json.01234567.new", elsewhere / ".a.01234567.new"]
    for path in retained:
        path.touch()
    (place / ".dir.01234567.new").mkdir()
    (place / ".link.01234567.new").symlink_to(retained[0])
    (place / "linked").symlink_to(elsewhere)
    os.mkfifo(place / ".fifo.01234567.new")
    before = sorted(tmp_path.rglob("*"))
    safe_files.remove_abandoned(place)
    safe_files.remove_abandoned(tmp_path / "absent")
    assert sorted(tmp_path.rglob("*")) == before


def test_unfinished_file_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock it looks like a dead writer's."""
    lock, removals = fcntl.flock, iter([True])

    def late(descriptor: int, how: int) -> None:
        if next(removals, False):
            for path in tmp_path.iterdir():
                path.unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    files.write(tmp_path / "c.json", "text")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"c.json": "text"}


def test_the_next_run_of_a_stack_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """In the stack's own directory."""
    home = Home("p", "dev", str(tmp_path))
    remaining = stack_directory(home) / ".c.json.01234567.new"
    remaining.parent.mkdir(parents=True)
    remaining.write_text("half")
    stack_home.settle(home)
    assert not remaining.exists()


def test_a_link_is_put_in_place_at_once_or_not_at_all(tmp_path: Path) -> None:
    """On a full disk, or where a directory stands, all is as before."""
    path = tmp_path / "link"
    for to in ("a", "b"):
        safe_files.put_link(path, to)
        assert str(path.readlink()) == to
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        safe_files.put_link(tmp_path / "directory", "a")
    with pytest.raises(OSError, match="File name too long"):
        safe_files.put_link(path, "x" * 5000)
    assert str(path.readlink()) == "b"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["directory", "link"]


def test_unfinished_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    """Links too, once no living writer can be about to put them in place; nothing of other files, nothing fresh."""
    path = tmp_path / "a[b].service"
    remaining = [tmp_path / ".a[b].service.01234567.new", tmp_path / ".a[b].service.89abcdef.new"]
    names = [".a[b].service.76543210.new", ".ab.service.01234567.new", "a[b].service", ".a[b].service.d.01234567.new"]
    retained = [tmp_path / name for name in names]
    remaining[0].touch()
    remaining[1].symlink_to("elsewhere")
    os.utime(remaining[1], (0, 0), follow_symlinks=False)
    retained[0].symlink_to("elsewhere")
    for other in retained[1:]:
        other.touch()
    safe_files.remove_abandoned_of(path)
    assert sorted(tmp_path.iterdir()) == sorted(retained)


@pytest.mark.parametrize("write", [files.write, safe_files.put_link])
def test_a_remainder_that_stays_hides_no_error(
    tmp_path: Path, write: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong first is told, not that it could not be cleared up."""

    def failing(error: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(error, os.strerror(error))

        return fail

    monkeypatch.setattr(Path, "unlink", failing(errno.EROFS))
    monkeypatch.setattr(Path, "replace", failing(errno.ENOSPC))
    monkeypatch.setattr(os, "fchmod", failing(errno.ENOSPC))
    with pytest.raises((files.FilesError, OSError), match=os.strerror(errno.ENOSPC)):
        write(tmp_path / "a", "text")
