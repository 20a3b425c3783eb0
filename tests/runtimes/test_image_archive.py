"""The archive of which images are made: what a rootless Docker needs of it, too."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path, PurePosixPath

from locallb.runtimes.docker.image import add_program


def test_everybody_may_enter_every_directory_of_an_image(tmp_path: Path) -> None:
    """Docker makes what is missing as it likes; each stands there once, before what is in it."""
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        for name in ("usr/local/bin/one", "usr/local/bin/two"):
            add_program(tar, Path(sys.executable).resolve(), name)
    with tarfile.open(tmp_path / "root.tar") as tar:
        entries = tar.getmembers()
    directories = [entry.name for entry in entries if entry.isdir()]
    assert len(directories) == len(set(directories))
    assert all(entry.mode == 0o755 and entry.uid == entry.gid == 0 for entry in entries)
    seen: set[str] = set()
    for entry in entries:
        assert {str(parent) for parent in PurePosixPath(entry.name).parents[:-1]} <= seen
        seen.add(entry.name)
