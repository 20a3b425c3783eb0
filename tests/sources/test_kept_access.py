"""Kubeconfigs that a finder keeps: what can't be read at a moment isn't gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from locallb import safe_files
from locallb.sources import SourceError
from locallb.sources.kept_access import SUFFIX, retained
from tests.support.descriptors import few_files


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_a_cluster_whose_kubeconfig_cannot_be_read_now_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It would be left out of what the finder found."""
    path = tmp_path / f"c{SUFFIX}"
    path.write_text(
        "clusters: [{cluster: {server: 'https://127.0.0.1'}}]\nusers: [{user: {token: t}}]\ncontexts: [{}]\n"
    )
    assert retained(tmp_path) == {"c": path}

    def refuse(_path: Path, _most: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(safe_files, "read", refuse)
    with pytest.raises(SourceError, match=f"{path.name} can't be read: {os.strerror(number)}; "):
        retained(tmp_path)


def test_no_cluster_is_gone_where_the_directory_can_not_be_read_now(tmp_path: Path) -> None:
    """Nor where there is no directory; that is none yet."""
    (tmp_path / f"c{SUFFIX}").write_text("contexts: []\n")
    with few_files(0), pytest.raises(SourceError, match=r"can't determine what was found before: .*; raise the limit"):
        retained(tmp_path)
    assert retained(tmp_path / "absent") == {}
