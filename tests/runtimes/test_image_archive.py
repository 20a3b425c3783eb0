"""The archive of which images are made: what a rootless Docker needs of it, too."""

from __future__ import annotations

import resource
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

import pytest

from locallb.model.identities import ImageName
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import add_program, load_program
from locallb.storage.files import FilesError


def test_image_archive_lists_each_parent_directory_once_before_its_files(tmp_path: Path) -> None:
    """Open to all users: Docker would create missing ones with modes of its own."""
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        for name in ("usr/local/bin/one", "usr/local/bin/two"):
            add_program(tar, Path(sys.executable).resolve(), name)
    with tarfile.open(tmp_path / "root.tar") as tar:
        entries = tar.getmembers()
    directories = [entry.name for entry in entries if entry.isdir()]
    assert len(directories) == len(set(directories))
    assert all(entry.mode == 0o755 and entry.uid == entry.gid == 0 for entry in entries)
    observed: set[str] = set()
    for entry in entries:
        assert {str(parent) for parent in PurePosixPath(entry.name).parents[:-1]} <= observed
        observed.add(entry.name)


@pytest.mark.parametrize("room", [0, 5000, 20_000])
def test_an_archive_for_which_there_is_no_room_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """With the image, the directory and what helps; nothing of it stays, and no daemon is asked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    reported = (
        rf"^the image a:b can't be written to {tmp_path}: File too large; raise .*; or name another .* in TMPDIR$"
    )
    try:
        with pytest.raises(FilesError, match=reported):
            load_program(Containers(), ImageName("a:b"), Path(sys.executable).resolve(), "usr/bin/one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*tmp_path.iterdir()] == []


def test_an_archive_for_which_there_is_no_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may name one that is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(FilesError, match=rf"^the image a:b can't be written to {tmp_path}/gone: No such file"):
        load_program(Containers(), ImageName("a:b"), Path(sys.executable).resolve(), "usr/bin/one")
