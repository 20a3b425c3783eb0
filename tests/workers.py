"""Which of several workers runs a test: the one of its file, of a group of files, or the last one that is left.

`pytest -n 2 --dist loadfile` distributes files. Files that use the same part of the host, which there is once, are a
group for one worker: Docker's daemon, one Podman at a time, the other users whose inotify instances tests use up. What
uses up root's own comes when the other workers have ended. Ids of tests stay as they are, so `--last-failed` knows
them. Not here: which tests a tier has (`tiers`).
"""

from __future__ import annotations

import re

import pytest
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    return Groups(config, log) if config.getoption("dist") == "loadfile" else None
