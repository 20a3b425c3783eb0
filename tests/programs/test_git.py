"""Files of a revision, whatever the directories of its repository are called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from locallb.programs import GitError, Revision
from tests.support.repository import GIT, commit, git


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


@pytest.mark.parametrize("place", ["/absolute.yaml", "//absolute.yaml", "below/../../above.yaml"])
def test_a_forged_tree_writes_nothing_elsewhere(place: str, tmp_path: Path) -> None:
    """Such a tree is fetched like any other, and only checking it out would be refused."""
    repository, written = tmp_path / "repo", tmp_path / "made" / "tree"
    repository.mkdir()
    git(repository, "init", "--quiet")
    name = place.replace("/absolute", f"{tmp_path}/absolute")
    blob = _stored(repository, "blob", b"a: 1\n")
    entries = b"".join(b"100644 %s\0%s" % (each.encode(), bytes.fromhex(blob)) for each in (name, "inside.yaml"))
    tree = _stored(repository, "tree", entries)
    head = _stored(repository, "commit", f"tree {tree}\nauthor A <a> 0 +0000\ncommitter A <a> 0 +0000\n\nx\n".encode())
    Revision.open(repository, head).extract(["."], (".yaml",), written)
    found = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.yaml")}
    assert found == {Path("made/tree/inside.yaml")}


def _stored(repository: Path, kind: str, data: bytes) -> str:
    terms = ["git", "-C", str(repository), "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.run(terms, input=data, capture_output=True, check=True).stdout.decode().strip()


def test_a_directory_that_looks_like_a_repository_runs_nothing(tmp_path: Path) -> None:
    """Anybody may commit one to the work tree in which a project lies; its configuration names programs."""
    project, made = tmp_path / "repo" / "project", tmp_path / "made"
    project.mkdir(parents=True)
    git(tmp_path / "repo", "init", "--quiet")
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "bare")
    bare = tmp_path / "bare"
    tree = _stored(bare, "tree", b"100644 a.yaml\0" + b"\x11" * 20)  # of a file that has to be fetched
    head = _stored(bare, "commit", f"tree {tree}\nauthor A <a> 0 +0000\ncommitter A <a> 0 +0000\n\nx\n".encode())
    git(bare, "update-ref", "refs/heads/main", head)
    git(bare, "config", "core.repositoryFormatVersion", "1")
    git(bare, "config", "extensions.partialClone", "origin")
    git(bare, "config", "remote.origin.url", str(bare))
    git(bare, "config", "remote.origin.promisor", "true")
    git(bare, "config", "remote.origin.uploadPack", f"touch {made}; false")
    shutil.copytree(bare, project, dirs_exist_ok=True)
    with pytest.raises(GitError, match="can't read the repository"):
        Revision.open(project, "main").extract(["."], (".yaml",), tmp_path / "written")
    assert not made.exists()
