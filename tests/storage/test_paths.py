"""Directories of ours: where one can't be made, what helps is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from locallb.storage.paths import PlaceError, private_directory


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EDQUOT, "make room within your quota"),
        (errno.EACCES, "give a writable XDG_STATE_HOME"),
        (errno.EROFS, "give a writable XDG_STATE_HOME"),
    ],
)
def test_unusable_path_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """On a full disk that isn't another place, which may well be on the same one."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(PlaceError, match=f": {remedy}$"):
        private_directory(tmp_path / "a" / "b")
