"""Files of a revision, whatever the directories of its repository are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from locallb.programs.git import Revision
from tests.report.repository import GIT, commit, git


@pytest.mark.parametrize("name", [b"caf\xe9", "caf\u00e9".encode(), b'a *"\tb'])
def test_a_project_below_the_top_of_a_repository_is_read_whatever_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    """Also where its bytes are no text."""
    for variable, value in GIT.items():
        monkeypatch.setenv(variable, value)
    project, written = tmp_path / "repo" / os.fsdecode(name), tmp_path / "written"
    (project / "manifests").mkdir(parents=True)
    (project / "manifests" / "a.yaml").write_text("a: 1\n")
    git(tmp_path / "repo", "init", "--quiet")
    commit(tmp_path / "repo")
    revision = Revision.open(project, "HEAD")
    revision.extract(["manifests"], (".yaml",), written)
    assert (written / os.fsdecode(name) / "manifests" / "a.yaml").read_text() == "a: 1\n"
    assert revision.prefix == f"{os.fsdecode(name)}/"
