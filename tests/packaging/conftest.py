"""The wheel built from what Git has, and installed where no checkout is on the path; no package index is asked."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.packages import wheel

__all__ = ["wheel"]


@pytest.fixture(scope="session")
def tool(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own, which borrows what it depends on; return its `locallb`.

    The path of what is borrowed is one line of a .pth: links to a checkout that lie there aren't followed.
    """
    root = tmp_path_factory.mktemp("tool")
    venv.create(root)
    python = root / "bin/python"
    place = Path(sysconfig.get_path("purelib", "venv", {"base": str(root)}))
    (place / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    terms = ["--python", str(python), "install", "--no-index", "--no-deps", "--force-reinstall", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *terms], check=True, capture_output=True)
    return root / "bin/locallb"
