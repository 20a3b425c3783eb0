"""A state home of its own for every test of the provider, with nothing left running at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.runtimes.handover import stop_all
from locallb.storage import paths
from tests.support.provider import Driver, Wanted, block, owner


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty XDG_STATE_HOME with a short path; what runs there at the end is stopped."""
    directory = Path(tempfile.mkdtemp(prefix="lb"))
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    monkeypatch.setenv(paths.LEDGER_VARIABLE, str(directory / "ledger"))
    yield directory
    root = paths.proxies_root()
    for path in root.iterdir() if root.is_dir() else ():
        stop_all(path)
    shutil.rmtree(directory)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def driver(home: Path) -> Driver:
    del home
    return Driver()


@pytest.fixture
def wanted(root: Path) -> Wanted:
    """Return a proxy that listens on one port; nobody need be behind it."""
    return Wanted(owner(root), f"{block()}.5", {8080: 9})
