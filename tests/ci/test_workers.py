"""Which worker runs a test: files and groups stay together, ids stay as they are, and who must be alone is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.control_plane import node_ports
from tests.workers import GROUPS, group

pytestmark = pytest.mark.slow
SECONDS = 600
"""Until something hangs."""
CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = {
    "docker/test_a.py": 2,
    "docker/test_b.py": 2,
    "docker/test_podman.py": 1,
    "takeover/test_c.py": 3,
    "cluster/test_kind.py": 1,
    "e2e/test_scale.py": 4,
    "e2e/test_d.py": 1,
    "envoy/test_e.py": 7,
}
"""Files of tests, and how many each has."""
TESTS = """
import json, os, time
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_it(number, request):
    begun = time.monotonic()
    time.sleep(0.05)
    reported = [request.node.nodeid, os.environ.get("PYTEST_XDIST_WORKER", ""), begun, time.monotonic()]
    with open({log!r}, "a") as log:
        log.write(json.dumps(reported) + "\\n")
    assert not os.environ.get("FAILS")
"""


def ran(place: Path, *terms: str, files: tuple[str, ...] = tuple(PLACES), **more: str) -> list[list[str | float]]:
    """Run such files, and return for each test its id, its worker, its begin and its end."""
    log = place / "log"
    log.unlink(missing_ok=True)
    for name in files:
        (place / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "tests" / name).write_text(TESTS.format(number=PLACES[name], log=str(log)))
    (place / "pytest.ini").write_text("[pytest]\n")
    plugin = {"PYTHONPATH": str(place / "plugin")}
    (place / "plugin").mkdir(exist_ok=True)
    (place / "plugin/workers_plugin.py").write_text((CHECKOUT / "tests/workers.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "workers_plugin", *terms]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=place, env={**environment, **plugin, **more}, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == int("FAILS" in more), done.stdout + done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_group_has_one_worker_and_exclusive_tests_run_alone(tmp_path: Path) -> None:
    """Each test runs once; those that use up what is the whole user's begin when all others have ended."""
    reported = ran(tmp_path, "-n", "3", "--dist", "loadfile")
    assert len(reported) == sum(PLACES.values())
    by_group: dict[str, set[str | float]] = {}
    for nodeid, worker, _, _ in reported:
        by_group.setdefault(group(str(nodeid)), set()).add(worker)
    assert by_group.keys() == {"alone", "podman", "docker", "tests/e2e/test_d.py", "tests/envoy/test_e.py"}
    assert {len(each) for each in by_group.values()} == {1}
    assert len(set.union(*by_group.values())) > 1
    alone = [float(begun) for nodeid, _, begun, _ in reported if group(str(nodeid)) == "alone"]
    others = [float(ended) for nodeid, _, _, ended in reported if group(str(nodeid)) != "alone"]
    assert min(alone) > max(others)


@pytest.mark.parametrize("files", [("e2e/test_scale.py",), ("e2e/test_d.py", "e2e/test_scale.py")])
def test_few_files_run_as_well(tmp_path: Path, files: tuple[str, ...]) -> None:
    """With workers that get nothing."""
    reported = ran(tmp_path, "-n", "2", "--dist", "loadfile", files=files)
    assert len(reported) == sum(PLACES[name] for name in files)


def test_failed_tests_are_repeated_by_id(tmp_path: Path) -> None:
    """As `.ci/run` does it: in one process, with the ids that the workers told."""
    files = ("docker/test_a.py", "e2e/test_scale.py")
    ran(tmp_path, "-n", "2", "--dist", "loadfile", files=files, FAILS="1")
    reported = ran(tmp_path, "-n", "2", "--dist", "loadfile", "-n", "0", "--last-failed", files=files)
    assert {(re.sub(r"\[.*", "", str(nodeid)), worker) for nodeid, worker, _, _ in reported} == {
        ("tests/docker/test_a.py::test_it", ""),
        ("tests/e2e/test_scale.py::test_it", ""),
    }


@pytest.mark.parametrize("name", GROUPS)
def test_every_group_has_a_test_of_this_project(name: str) -> None:
    """A file that is renamed takes its group along."""
    files = [f"{path.relative_to(CHECKOUT)}" for path in (CHECKOUT / "tests").rglob("test_*.py")]
    parameters = ("", "::test[podman-x]")
    assert any(group(file + more) == name for file in files for more in parameters)


def test_every_test_that_starts_podman_is_in_the_podman_group() -> None:
    """One at a time, in whatever file it is."""
    texts = {path: path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py")}
    starting = {path: text for path, text in texts.items() if "\nfrom tests.support.podman import " in text}
    assert len(starting) > 1
    for path, text in starting.items():
        names = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
        assert "podman" in {group(f"{path.relative_to(CHECKOUT)}::{name}") for name in names}, path


def test_clusters_of_workers_side_by_side_give_no_node_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has enough for a thousand Services; alone it has all."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    whole = _numbers(node_ports())
    of_all: list[int] = []
    for worker in ("gw0", "gw1", "gw7"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        own = _numbers(node_ports())
        assert len(own) > 1000
        assert set(own) < set(whole)
        of_all += own
    assert len(of_all) == len(set(of_all))


def _numbers(ports: str) -> range:
    first, last = map(int, ports.split("-"))
    return range(first, last + 1)


def test_workers_compile_tests_for_each_other(tmp_path: Path) -> None:
    """Each loads what the other one compiled; a file that can't be compiled is named as without."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "workers_plugin.py").write_text((CHECKOUT / "tests/workers.py").read_text())
    (tmp_path / "later.py").write_text(LATER)
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(f"def test_it():\n    one = {number}\n    assert one != 2\n")
    (tmp_path / "test_4.py").write_text("def\n")
    terms = ["-q", "-n", "2", "-p", "later", "-p", "workers_plugin", "--continue-on-collection-errors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *terms],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert "assert 2 != 2" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 3 passed, 1 error" in done.stdout, done.stdout
    assert "SyntaxError" in done.stdout


LATER = """
import time
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    "Wait until all are compiled, and let nothing be compiled afterwards but what can't be."
    place = Path(__file__).parent / "__pycache__"
    while hasattr(session.config, "workerinput") and len(list(place.glob("test_*-pytest-*.pyc"))) < 4:
        time.sleep(0.01)
    compiling = rewrite._rewrite_test

    def refused(path, config):
        assert path.name == "test_4.py", path
        return compiling(path, config)

    rewrite._rewrite_test = refused
"""
