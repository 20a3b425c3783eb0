"""What a wheel has beside code: pages, examples and units, as `locallb/shipped/`. All else stands in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("deploy", "docs", "examples", "README.md", "CHANGELOG.md")


class Shipping(build_py):
    """Copies them into the package; an editable installation has the checkout itself."""

    def run(self) -> None:
        """Build the packages, then add what they need."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "locallb", "shipped")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in SHIPPED:
            copy = shutil.copy if Path(name).is_file() else _copy_tree
            copy(name, target / name)


def _copy_tree(source: str, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "benchmarks", "adr"))


setup(cmdclass={"build_py": Shipping})
