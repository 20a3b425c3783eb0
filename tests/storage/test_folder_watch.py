"""A single file in the place of a directory is watched as well."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from locallb.storage.folder_watch import FolderWatch

PATIENCE = 30


@pytest.mark.parametrize("way", ["written", "replaced", "removed and made again"])
def test_a_change_of_a_single_file_is_told(tmp_path: Path, way: str) -> None:
    """However it is changed; what was told of its beginning apart."""
    path, changed = tmp_path / "all.yaml", threading.Event()
    path.write_text("one")
    watch = FolderWatch(path, changed.set)
    try:
        assert changed.wait(PATIENCE)
        changed.clear()
        match way:
            case "written":
                path.write_text("two")
            case "replaced":
                (tmp_path / "new").write_text("two")
                (tmp_path / "new").replace(path)
            case _:
                path.unlink()
                assert changed.wait(PATIENCE)
                changed.clear()
                path.write_text("two")
        assert changed.wait(PATIENCE)
        changed.clear()
        path.write_text("three")
        assert changed.wait(PATIENCE)
    finally:
        watch.stop()
