"""A user's own project: a directory of a home, and commands that find it from where they run."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.cli import main
from tests.support.stages import Done


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be a user in an empty directory who never had a project."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    (root / "here").mkdir()
    for name, path in {
        "XDG_DATA_HOME": "data",
        "XDG_STATE_HOME": "s",
        "LOCALLB_LEDGER": "s/ledger",
        "HOME": "",
    }.items():
        monkeypatch.setenv(name, str(root / path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{root}/nobody.sock")
    monkeypatch.chdir(root / "here")
    yield root
    shutil.rmtree(root)


def run(*terms: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(terms)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
