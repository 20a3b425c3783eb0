"""The wheel, built from what Git has; no package index is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
EPOCH = "1700000000"


def sources(place: Path) -> Path:
    """Copy the files that Git has, or would take."""
    terms = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(terms, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in listed:
        if (CHECKOUT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, place / name)
    return place


def built(kind: str, source: Path, place: Path) -> Path:
    """Build a `wheel` or an `sdist` with the tools of this environment."""
    place.mkdir()
    program = f"from setuptools.build_meta import build_{kind} as build; build({str(place)!r})"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run([sys.executable, "-c", program], cwd=source, env=environment, check=True, capture_output=True)
    (made,) = place.iterdir()
    return made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once; where it is what is tested, take that one."""
    root = tmp_path_factory.mktemp("wheel")
    if not (CHECKOUT / "locallb").is_dir():
        (installed,) = (CHECKOUT / "dist").iterdir()
        (root / "built").mkdir()
        return Path(shutil.copy(installed, root / "built"))
    return built("wheel", sources(root / "source"), root / "built")
