"""A file of the system changed in one step: with the owner and the mode that it had, and nothing else in its place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from locallb.storage import files
from locallb.storage.files import FilesError, rewrite


def test_file_mode_and_other_bytes_are_kept(tmp_path: Path) -> None:
    """Its mode, and bytes that are no UTF-8; nothing is left beside it."""
    path = tmp_path / "hosts"
    path.write_bytes(b"a\xff\n")
    path.chmod(0o604)
    rewrite(path, lambda text: f"{text}b\n")
    assert path.read_bytes() == b"a\xff\nb\n"
    assert path.stat().st_mode & 0o7777 == 0o604
    before = path.stat().st_ino
    rewrite(path, lambda text: text)
    assert path.stat().st_ino == before
    assert [each.name for each in tmp_path.iterdir()] == ["hosts"]


@pytest.mark.root(only="can give a file away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    """Root may change a file of somebody."""
    path = tmp_path / "hosts"
    path.write_text("a")
    os.chown(path, 12345, 12346)
    rewrite(path, lambda _: "b")
    assert (path.stat().st_uid, path.stat().st_gid, path.read_text()) == (12345, 12346, "b")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.symlink_to(path.with_name("other")), "it is a link"),
        (lambda path: path.mkdir(), "Is a directory"),
        (os.mkfifo, "it is no regular file"),
        (lambda _: None, "No such file"),
    ],
    ids=["link", "directory", "pipe", "nothing"],
)
def test_path_that_is_no_regular_file_is_refused(make: object, why: str, tmp_path: Path) -> None:
    """And nothing is written through it."""
    (tmp_path / "other").write_text("x")
    assert callable(make)
    make(tmp_path / "hosts")
    with pytest.raises(FilesError, match=why):
        rewrite(tmp_path / "hosts", lambda _: "y")
    assert (tmp_path / "other").read_text() == "x"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.root(only="can mount a file system")
def test_a_file_system_that_is_read_only_is_reported(tmp_path: Path) -> None:
    """It refuses as well to remove what isn't there: that hides nothing, and is no failure by itself."""
    path = tmp_path / "hosts"
    subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], check=True)
    try:
        path.write_text("a")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with pytest.raises(FilesError, match="hosts can't be changed: Read-only file system; mount it writable"):
            rewrite(path, lambda _: "b")
        with pytest.raises(FilesError, match="hosts can't be removed: Read-only file system"):
            files.remove(path)
        files.remove(tmp_path / "absent")
        assert path.read_text() == "a"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
