"""The wheel built from what Git has, and installed where no checkout is on the path; no package index is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
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
