"""Which pinned packages refuse a Python that is promised: `python -m tests.packaging.pins`, once all are installed.

`requires-python` of pyproject.toml has no patch version, so the first of its oldest minor version is meant.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

CHECKOUT = Path(__file__).resolve().parents[2]


def oldest() -> str:
    """Return the oldest Python that is promised."""
    (promised,) = SpecifierSet(tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["requires-python"])
    return f"{promised.version}.0"


def pinned(*files: Path) -> Iterator[Requirement]:
    lines = (line.partition(" #")[0].strip() for file in files for line in file.read_text().splitlines())
    yield from (Requirement(line) for line in lines if "==" in line and not line.startswith("#"))


def refusing(pins: Iterator[Requirement], python: str) -> Iterator[str]:
    """Return the installed ones of these packages that refuse a version of Python."""
    for pin in pins:
        try:
            wanted = metadata(pin.name)["Requires-Python"] or ""
        except PackageNotFoundError:
            continue
        if not SpecifierSet(wanted).contains(python):
            yield f"{pin}: it needs Python {wanted}, and {python} is promised; pin an older version"


if __name__ == "__main__":
    found = list(refusing(pinned(*CHECKOUT.glob("requirements*.txt")), oldest()))
    sys.exit("\n".join(found) if found else 0)
