"""How much of what is pure its tables and golden files reach: `make coverage` ends with a line a room.

Pure is what pyproject.toml says. Laws aren't measured: chance would have a say in the figures, and a tracer doubles
their time.
"""

from __future__ import annotations

import io
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from coverage import Coverage

ROOT = Path(__file__).parent.parent


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the table."""
    plugin = config.pluginmanager.getplugin("_cov")
    if plugin and plugin.cov_controller:
        terminalreporter.section("what is pure, under its tables and golden files")
        terminalreporter.write_line(f"{'':22}statements  missed  branches  partly  covered")
        for room, files in pure_rooms().items():
            terminalreporter.write_line(line(plugin.cov_controller.cov, room, files))


def line(coverage: Coverage, room: str, files: Sequence[str]) -> str:
    """Return a room's line: the total of coverage's own report."""
    report = io.StringIO()
    coverage.report(morfs=files, file=report, skip_covered=True)
    total = next(words for words in map(str.split, report.getvalue().splitlines()) if words[:1] == ["TOTAL"])
    return "{:22}{:>10}{:>8}{:>10}{:>8}{:>9}".format(room, *total[1:])


def pure_rooms() -> Mapping[str, Sequence[str]]:
    """Return the files that pyproject.toml calls pure, by room."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    modules = next(each["source_modules"] for each in contracts if each["name"].startswith("what is pure"))
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        rooms[".".join(module.split(".")[:2])] += map(str, _files(ROOT.joinpath(*module.split("."))))
    return rooms


def _files(place: Path) -> Iterator[Path]:
    return place.rglob("*.py") if place.is_dir() else iter([place.with_suffix(".py")])
