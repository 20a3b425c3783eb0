"""How much of what is pure its tables and golden files reach: `make coverage` ends with a line a room.

Pure is what pyproject.toml says. Nothing but imports and those tests is traced: laws aren't measured, because chance
would have a say in the figures, and a tracer doubles their time.
"""

from __future__ import annotations

import io
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

ROOT = Path(__file__).parent.parent
TESTS = tuple(
    ROOT / "tests" / name
    for name in (
        *(
            "config",
            "envoy/test_goldens.py",
            "envoy/test_words.py",
            "host/test_doctor.py",
            "host/test_setup_plan.py",
            "host/test_hosts_file.py",
            "trust/test_plan.py",
        ),
        *(
            "gateway",
            "kubernetes",
            "model",
            "planning",
            "report",
            "watch/marks/test_schedule.py",
            "watch/marks/test_silence.py",
            "watch/converging/test_work.py",
        ),
    )
)
UNMEASURED = ("hypothesis", "envoy", "browser")


def _coverage(config: pytest.Config) -> Coverage | None:
    plugin: Any = config.pluginmanager.getplugin("_cov")
    return plugin.cov_controller.cov if plugin and plugin.cov_controller else None


def pytest_collection_finish(session: pytest.Session) -> None:
    if coverage := _coverage(session.config):
        coverage.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Trace one test, if it is one of those."""
    coverage = _coverage(item.config) if is_measured(item) else None
    if not coverage:
        return (yield)
    coverage.start()
    try:
        return (yield)
    finally:
        coverage.stop()


def is_measured(item: pytest.Item) -> bool:
    """Return whether it is a table or a golden file of something pure."""
    marked = any(item.get_closest_marker(name) for name in UNMEASURED)
    return not marked and any(item.path.is_relative_to(place) for place in TESTS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if coverage := _coverage(config):
        terminalreporter.section("what is pure, under its tables and golden files")
        terminalreporter.write_line(f"{'':22}statements  missed  branches  partly  covered")
        for room, files in pure_rooms().items():
            terminalreporter.write_line(line(coverage, room, files))


def line(coverage: Coverage, room: str, files: Sequence[str]) -> str:
    """Return a room's line: the total of coverage's own report."""
    report = io.StringIO()
    coverage.report(morfs=files, file=report, skip_covered=True)
    total = next(terms for terms in map(str.split, report.getvalue().splitlines()) if terms[:1] == ["TOTAL"])
    return "{:22}{:>10}{:>8}{:>10}{:>8}{:>9}".format(room, *total[1:])


def pure_rooms() -> Mapping[str, Sequence[str]]:
    """Return the files that pyproject.toml calls pure, by room."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    modules = next(contract["source_modules"] for contract in contracts if contract["name"].startswith("purity"))
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        rooms[".".join(module.split(".")[:2])] += map(str, _files(ROOT.joinpath(*module.split("."))))
    return rooms


def _files(place: Path) -> Iterator[Path]:
    return place.rglob("*.py") if place.is_dir() else iter([place.with_suffix(".py")])
