"""Which of several workers runs a test: the one of its file, of a group of files, or the last one that is left.

Each worker imports all tests. At first it compiles a share of them for all, which takes longer than importing them.

`pytest -n 2 --dist loadfile` distributes files. Files that use the same part of the host, which there is once, are a
group for one worker: Docker's daemon, one Podman at a time, the other users whose inotify instances tests use up. What
uses up root's own comes when the other workers have ended. Ids of tests stay as they are, so `--last-failed` knows
them. Not here: which tests a tier has (`tiers`).
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ALONE = "alone"
GROUPS = {
    ALONE: r"tests/e2e/test_scale\.py",
    "podman": r"tests/(docker/(test_podman\.py|.*\[podman)|ci/test_left_behind\.py::test_containers_of_a_podman_)",
    "docker": r"tests/((docker|takeover|packaging)/|cli/test_own_project\.py|cluster/test_(containers|kind|pods)\.py)",
    "other users": r"tests/(host|ledger)/|tests/faults/test_host_faults\.py",
}
"""How the ids of a group's tests begin; the first group that fits has the test."""


def group(nodeid: str) -> str:
    """Return a test's group, or else its file."""
    found = (name for name, pattern in GROUPS.items() if re.match(pattern, nodeid))
    return next(found, nodeid.partition("::")[0])


class Groups(LoadFileScheduling):
    """Gives each worker whole groups and files, those with many tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)
        if list(self.workqueue) != [ALONE] or len(self.nodes) == 1:
            super()._assign_work_unit(node)
        elif not any(other.shutting_down for other in self.nodes):
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """Go on with those that are left: one of them may wait for this."""
        crashed = super().remove_node(node)
        if self.collection_is_completed:
            for other in self.nodes:
                self._reschedule(other)
        return crashed


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Compile every third file, if this is one of three workers; what another one hasn't compiled yet is no fault."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    places = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    files = sorted(path for place in places for path in (place.rglob("test_*.py") if place.is_dir() else [place]))
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(SyntaxError, OSError):  # importing it says so
            if not session.config.hook.pytest_ignore_collect(collection_path=path, config=session.config):
                compile_test(path, session.config)


def compile_test(path: Path, config: pytest.Config) -> None:
    """Leave a test file where pytest looks for it once it is compiled, its assertions rewritten."""
    compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite.try_makedirs(compiled.parent) and rewrite._read_pyc(path, compiled) is None:
        source, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, compiled)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    return Groups(config, log) if config.getoption("dist") == "loadfile" else None
